"""Moving bytes: local files, requests, mappings, locks, and work at the same time."""
