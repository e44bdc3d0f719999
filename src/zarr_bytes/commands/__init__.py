"""`status`, `check` and `migrate`, as functions and commands; the codec imports none of them."""
