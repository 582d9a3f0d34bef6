"""Code in, result out: a queue of programs for applications, the kernel's use on a collection of its own.

The document is one that a plain Firestore client can write and read; the same interface stands on SQLite. Code of a job
runs to its end once as recorded: a worker holds a lease while it runs it, whoever lost the lease cannot write, and what
a dead worker left is taken up again. Faults of the infrastructure are tried again, errors of the code never.
"""

from tpukit.code_queue.client import AsyncClient, Client

__all__ = ["AsyncClient", "Client"]
