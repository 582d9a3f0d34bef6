"""Actions of people and programs on jobs: submit, follow, wait, stop, resume, close, read logs.

The command line and the Python API call the same functions. Each takes a `Session`; none prints or asks.
"""
