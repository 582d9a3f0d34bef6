"""Notices about jobs and idle slices: a webhook or a command when a job ends, waits too long or is idle.

Rules, with their addresses, are in a file on the machine of `tpu serve`. The store holds only which notices were sent.
"""
