"""The kernel under everything that watches: it drives keys, and knows nothing of what they stand for.

For each key: hold it, see it, decide, write the decision, act, report. Serial per key, parallel across keys, one call
to see many. What is decided is written before it is done, with compare-and-set under a lease; acting is repeatable, so
a kernel may be killed at any moment and another one anywhere goes on from the record.
"""

from tpukit.kernel.controller import Decision, Holding, Hooks, Kernel, Records, Use
from tpukit.kernel.leases import Leases

__all__ = ["Decision", "Holding", "Hooks", "Kernel", "Leases", "Records", "Use"]
