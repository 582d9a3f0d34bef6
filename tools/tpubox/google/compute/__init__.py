"""Compute Engine: networks, machine types, quotas, OS Login."""
