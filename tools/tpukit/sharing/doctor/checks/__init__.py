"""Checks of the doctor, one per file."""
