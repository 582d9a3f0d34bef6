"""Rules for stopping the peers of a failed host: delay and grace. Pure."""

from __future__ import annotations

from collections.abc import Collection

from tpukit.places.verdict import ABORTED, TERMINATED

SETTLE_SECONDS = 0.3
"""Delay from the first failure to stopping its peers, because their own exit codes say more than ours."""
ABANDONED_SECONDS = 5.0
"""Time that peers may take to notice that one of them hangs, once the first has given up."""
PEER_GRACE = 2.0
"""Grace for peers of a failed host. They cannot save without it, and JAX ignores a SIGTERM inside a collective."""


def leave(codes: Collection[int], grace: float) -> tuple[float, float]:
    """Return the delay after the first failure and the grace. `codes`: of the failed hosts."""
    if TERMINATED in codes:  # hosts that were told to stop save together and need the time for it
        return SETTLE_SECONDS, grace
    if all(code == ABORTED for code in codes):
        return ABANDONED_SECONDS, 0.0
    return SETTLE_SECONDS, PEER_GRACE
