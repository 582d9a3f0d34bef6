"""A node pool for each slice that a JobSet waits for, and none for longer than it is needed.

The second use of the kernel: `decide` (pure), `observe`, `act`, `driver`. Its store is the cluster itself: labels of
node pools say whose they are, an annotation of the JobSet says what was tried, so that a new replica needs nothing from
the old one. Creating twice creates once, because the name of a pool follows from the Job that it is for.
"""
