"""From the queues that a cluster has to those that it is to have, one write at a time.

After every single write, what all queues hand out of a flavor is at most what they handed out before or are to hand out
in the end, whichever is more. So it stays true when the process dies between two writes: some slices may then belong to
nobody until the next change, and none belong to two.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any

from tpukit.core.quantities import amount, quantity
from tpukit.teams import shares

Doc = Mapping[str, Any]


def writes(current: Iterable[Doc], target: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The documents to apply, in order: first every queue gives up what it is to lose, then each gets what it gains.

    A queue that loses one flavor and gains another is written twice. Ordering whole queues by their sums is not enough:
    a quota that moves from one flavor to another leaves the sum as it was.
    """
    now = {one["metadata"]["name"]: shares.shares(one) for one in current}
    shrinking, growing = [], []
    for queue in target:
        before = {key: share.own for key, share in now.get(queue["metadata"]["name"], {}).items()}
        after = {key: share.own for key, share in shares.shares(queue).items()}
        smaller = _at_most(queue, before)
        shrinks = any(own > after.get(key, 0) for key, own in before.items())
        if shrinks:
            shrinking.append(smaller)
        if smaller != queue or not shrinks:
            growing.append(queue)
    return shrinking + growing


def _at_most(queue: dict[str, Any], limits: Mapping[shares.Key, Decimal]) -> dict[str, Any]:
    """The same queue with no quota above these."""
    made = copy.deepcopy(queue)
    for group in made["spec"]["resourceGroups"]:
        for flavor in group["flavors"]:
            for resource in flavor["resources"]:
                limit = limits.get((flavor["name"], resource["name"]), Decimal())
                if amount(resource["nominalQuota"]) > limit:
                    resource["nominalQuota"] = quantity(limit)
    return made
