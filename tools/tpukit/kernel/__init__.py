"""The kernel of every control loop. It drives keys, whatever they stand for.

For each key: hold, observe, decide, write, act, report. Steps are serial per key and parallel across keys, and one call
observes many keys. A decision is written before it is carried out, with compare-and-set under a lease, and acts are
idempotent. A kernel may therefore be killed at any moment, and another one continues from the record.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tpukit.kernel.controller import Decision, Holding, Hooks, Kernel, Records, Use
    from tpukit.kernel.leases import Leases

__all__ = ["Decision", "Holding", "Hooks", "Kernel", "Leases", "Records", "Use"]


def __getattr__(name: str) -> Any:
    """Load the loop on first use: every command reads a store, and few run a loop."""
    if name not in __all__:
        raise AttributeError(name)
    from tpukit.kernel import controller, leases

    return getattr(leases if name == "Leases" else controller, name)
