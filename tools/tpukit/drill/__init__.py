"""`tpu drill`: run a job unbroken, run it again once for each loss in a plan, and compare the runs.

The deciding modules (`losses`, `planning`, `judging`, `offsets`, `advice`, `costs`) are pure. `engine` and the modules
that it starts act.
"""
