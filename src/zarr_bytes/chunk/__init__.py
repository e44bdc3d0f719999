"""How a selection of a chunk is read and written: plan, files, requests, elements."""
