"""Cloud Monitoring."""
