"""Adapters for Google Cloud over REST: plain data out, errors of tpukit, and a timeout on every call."""
