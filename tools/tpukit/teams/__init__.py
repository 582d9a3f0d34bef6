"""Teams: what each may use of the slices, who belongs to it, and what its queue holds.

A team is a namespace with a queue of the same name. Everything here is plain data in and out; one module talks to the
cluster.
"""
