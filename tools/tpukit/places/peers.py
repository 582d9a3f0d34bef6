"""When a host has failed, its peers leave: after how long, and with how much time to do so. Pure."""

from __future__ import annotations

from collections.abc import Collection

from tpukit.places.verdict import ABORTED, TERMINATED

SETTLE_SECONDS = 0.3
"""How long after the first failure its peers are told to leave: their own exit codes say more than ours."""
ABANDONED_SECONDS = 5.0
"""How long peers may take to notice that one of them hangs, once the first has given up."""
PEER_GRACE = 2.0
"""Grace for peers of a failed host. They cannot save without it, and JAX ignores a SIGTERM inside a collective."""


def leave(codes: Collection[int], grace: float) -> tuple[float, float]:
    """Seconds after the first failure, and the grace then. `codes`: of the hosts that failed."""
    if TERMINATED in codes:  # hosts that were told to leave save together: they get the time for it
        return SETTLE_SECONDS, grace
    if all(code == ABORTED for code in codes):
        return ABANDONED_SECONDS, 0.0
    return SETTLE_SECONDS, PEER_GRACE
