"""What a data type is, and how its fill value is read from JSON and written to it."""
