"""Projects and the APIs that they enable."""
