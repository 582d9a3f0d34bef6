"""Run Python programs sent by applications and return their results: the kernel's use on a collection of its own.

Any Firestore client can write and read the document; the same interface exists on SQLite. Each job is recorded as
completed once: a worker holds a lease while it runs the code, a worker that lost the lease cannot write, and the jobs
of a dead worker are resumed. Infrastructure faults are retried, errors of the code never.
"""

from tpukit.code_queue.client import AsyncClient, Client

__all__ = ["AsyncClient", "Client"]
