"""`tpu serve`: a daemon that drives jobs through failures of single jobs, of clusters and of the store.

Several may run at once, on one machine or many: leases decide which one drives a job, and another takes over when it
stops.
"""
