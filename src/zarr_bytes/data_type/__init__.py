"""The data types, and their fill values from JSON and to JSON."""
