"""A local emulation of the Google Cloud services for TPUs, to test real tools against."""
