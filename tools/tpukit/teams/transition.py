"""Move from a cluster's current queues to the target ones, one write at a time.

After every write, the quotas of a flavor over all queues sum to at most the larger of their sums before and after. That
holds even if the process dies between two writes: some slices may then belong to no team until the next change, and
none belong to two.
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
    """Return the documents to apply, in order: first every queue loses what it is to lose, then each gains.

    A queue that loses one flavor and gains another is written twice. Ordering whole queues by their sums is not enough,
    since a quota that moves from one flavor to another does not change the sum.
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
    """Return the queue with every quota limited to these."""
    made = copy.deepcopy(queue)
    for group in made["spec"]["resourceGroups"]:
        for flavor in group["flavors"]:
            for resource in flavor["resources"]:
                limit = limits.get((flavor["name"], resource["name"]), Decimal())
                if amount(resource["nominalQuota"]) > limit:
                    resource["nominalQuota"] = quantity(limit)
    return made
