"""TPU VMs of the sandbox as hosts: what one can log in to.

Every worker of a TPU VM that is READY is one process with an address of its own on loopback. It serves SSH and the
metadata server there, and every process that somebody starts on it is its descendant, however it was detached, so that
a host can be frozen or taken away as one. The API side (`sandbox.google`) says in its documents what should run; the
hypervisor makes it so and tells nobody else what to do.
"""
