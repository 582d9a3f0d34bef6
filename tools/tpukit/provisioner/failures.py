"""Failed creates: their kind, the next choice, and when to try it. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from tpukit.core import retry
from tpukit.google import refusals
from tpukit.google.gke import Operation
from tpukit.provisioner.observation import Tries

FIRST, LONGEST = 30.0, 600.0
"""Seconds between two rounds over all choices."""
UNUSED_FIRST, UNUSED_LONGEST = 3600.0, 86400.0
"""Seconds before a pool is recreated that came up and did not take its pod: it cost money for nothing."""
UNUSED = "unused"
"""Kind of the record of such a pool."""
_EVENTS = {
    UNUSED: "NodePoolUnused",
    "stock-out": "NodePoolStockOut",
    "quota": "NodePoolQuota",
    "refused": "NodePoolRefused",
}
_MOST_WORDS = 400


def last_create(operations: Sequence[Operation], pool: str) -> Operation | None:
    """Return the newest create of a pool."""
    creates = [one for one in operations if one.target == pool and one.kind == "CREATE_NODE_POOL"]
    return max(creates, key=lambda one: (one.started, one.name), default=None)


def after(
    tries: Tries,
    message: str,
    choices: int,
    pool: str,
    now: float,
    *,
    operation: Operation | None = None,
    created: float = 0.0,
    refused: bool = False,
) -> Tries:
    """Return the tries after a failure. Stock-outs move on to the next choice, without limit; other errors are counted.

    `operation` and `created` identify the failure, so that it is counted once.
    """
    kind = kind_of(message, refused=refused)
    following = (tries.choice + 1) % max(1, choices)
    rounds = tries.rounds + (following == 0)
    pause = retry.growing(rounds, FIRST, LONGEST) * jitter(pool, rounds) if following == 0 else 0.0
    return Tries(
        choice=following,
        errors=tries.errors + (kind == "error"),
        rounds=rounds,
        at=now,
        not_before=now + pause,
        kind=kind,
        why=message[:_MOST_WORDS],
        operation=operation.name if operation else tries.operation,
        created=created or tries.created,
    )


def unused(tries: Tries, message: str, choices: int, now: float, created: float) -> Tries:
    """Return the tries after a pool came up and did not take its pod."""
    rounds = tries.rounds + 1
    return Tries(
        choice=(tries.choice + 1) % max(1, choices),
        errors=tries.errors,
        rounds=rounds,
        at=now,
        not_before=now + retry.growing(rounds, UNUSED_FIRST, UNUSED_LONGEST),
        kind=UNUSED,
        why=message[:_MOST_WORDS],
        operation=tries.operation,
        created=created,
    )


def event(tries: Tries) -> str:
    return _EVENTS.get(tries.kind, "NodePoolFailed")


def kind_of(message: str, *, refused: bool = False) -> str:
    if refusals.is_stockout(message):
        return "stock-out"
    if refusals.is_quota(message):
        return "quota"
    return "refused" if refused else "error"


def jitter(pool: str, number: int) -> float:
    """Return a factor from a half to one, so that pools that failed together do not retry together."""
    return 0.5 + hashlib.sha256(f"{pool} {number}".encode()).digest()[0] / 510
