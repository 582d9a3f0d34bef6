"""Cloud Build."""
