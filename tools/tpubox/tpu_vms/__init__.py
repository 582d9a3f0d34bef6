"""TPU VMs of the sandbox as hosts that users can log in to.

Every worker of a READY TPU VM is one process with its own loopback address. It serves SSH and the metadata server
there, and every process started on it is its descendant, even if detached, so that a host can be frozen or removed as
one. The API side (`sandbox.google`) records in its documents what should run; the hypervisor reconciles the hosts with
them and instructs no other component.
"""
