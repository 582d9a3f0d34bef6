"""`tpu drill`: a job is run unbroken, then again under a plan of losses, and the runs are compared.

What decides (`losses`, `planning`, `judging`, `offsets`, `advice`, `costs`) is pure; `engine` and what it starts act.
"""
