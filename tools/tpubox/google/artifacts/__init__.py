"""Artifact Registry, and the images that nodes pull from it."""
