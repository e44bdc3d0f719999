"""The command line: `status`, `check` and `migrate`, with the extra `cli`."""
