"""Moving bytes: local files, requests, mappings, locks, and concurrent work."""
