"""`tpu serve`: drives jobs for as long as it runs, whatever happens to one of them, to a cluster or to the store.

Several may run at once, on one machine or many: leases decide who drives what, and what one leaves another takes over.
"""
