"""Limits and usage of each flavor's resources in a ClusterQueue, as Kueue reports them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from tpukit.core.quantities import amount

Doc = Mapping[str, Any]
Key = tuple[str, str]
"""A flavor and one of its resources."""


@dataclass(frozen=True, slots=True)
class Share:
    own: Decimal  # its quota
    limit: Decimal | None  # how much more it may borrow from others; None: all that they leave
    used: Decimal  # by jobs that run or are about to
    borrowed: Decimal  # the part of `used` above its own

    @property
    def most(self) -> Decimal | None:
        return None if self.limit is None else self.own + self.limit


def shares(cluster_queue: Doc) -> dict[Key, Share]:
    used: dict[Key, Doc] = {
        (flavor["name"], resource["name"]): resource
        for flavor in cluster_queue.get("status", {}).get("flavorsReservation", [])
        for resource in flavor.get("resources", [])
    }
    alone = not cohort(cluster_queue)
    found = {}
    for group in cluster_queue["spec"].get("resourceGroups", []):
        for flavor in group["flavors"]:
            for resource in flavor["resources"]:
                key = flavor["name"], resource["name"]
                limit = 0 if alone else resource.get("borrowingLimit")
                found[key] = Share(
                    amount(resource["nominalQuota"]),
                    None if limit is None else amount(limit),
                    amount(used.get(key, {}).get("total", 0)),
                    amount(used.get(key, {}).get("borrowed", 0)),
                )
    return found


def cohort(cluster_queue: Doc) -> str:
    return str(cluster_queue["spec"].get("cohortName", ""))


def cohort_of(cluster_queue: Doc, cluster_queues: Iterable[Doc]) -> list[Doc]:
    """Return the queues that lend to each other, including this one."""
    name = cohort(cluster_queue)
    return [one for one in cluster_queues if cohort(one) == name] if name else [cluster_queue]


def free(key: Key, cluster_queue: Doc, cluster_queues: Iterable[Doc]) -> Decimal:
    """Return the amount that the queue could hand out now: its own and what it may borrow, less what others use."""
    mine = shares(cluster_queue)[key]
    all_left = _sum(key, cluster_queue, cluster_queues, used=True)
    return max(Decimal(), all_left if mine.most is None else min(all_left, mine.most - mine.used))


def most(key: Key, cluster_queue: Doc, cluster_queues: Iterable[Doc]) -> Decimal:
    """Return the amount that the queue could hand out if no other queue used any."""
    mine = shares(cluster_queue)[key]
    total = _sum(key, cluster_queue, cluster_queues, used=False)
    return total if mine.most is None else min(total, mine.most)


def _sum(key: Key, cluster_queue: Doc, cluster_queues: Iterable[Doc], *, used: bool) -> Decimal:
    total = Decimal()
    for one in cohort_of(cluster_queue, cluster_queues):
        if share := shares(one).get(key):
            total += share.own - (share.used if used else 0)
    return total
