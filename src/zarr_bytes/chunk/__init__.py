"""Reading and writing of a selection of a chunk: plan, files, requests, elements."""
