"""Create a node pool for each slice that a JobSet waits for, and delete it when it is no longer needed.

The second use of the kernel: `decide` (pure), `observe`, `act`, `driver`. Its store is the cluster itself: labels of
node pools name their owner, and an annotation of the JobSet records what was tried, so that a new replica needs nothing
from the old one. Creating is idempotent, because the name of a pool follows from its Job.
"""
