"""`status`, `check` and `migrate`: as functions, and as commands. The codec imports none of it."""
