"""One check in each file."""
