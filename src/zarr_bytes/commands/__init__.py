"""The functions and commands for users; the codec imports none of them."""
