"""Teams: which slices each may use, who belongs to it, and the contents of its queue.

A team is a namespace with a queue of the same name. Everything here is plain data in and out; one module accesses the
cluster.
"""
