"""Compute the ClusterQueues' target state: the total, divided by what teams were given. Pure.

What a team was given is recorded on its queue. It has that, or less if the total is smaller: when pools go, their
slices are taken from the teams in proportion, and when pools come back, so do the quotas.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tpukit.jobs import render
from tpukit.jobs.render import kueue, pool_kinds
from tpukit.jobs.render.kueue import GIVEN, TEAM, Quota
from tpukit.teams import naming, quotas, shares, transition
from tpukit.teams.team import Team
from tpukit.teams.workloads import CHIPS

Doc = Mapping[str, Any]


def settled(total: Sequence[Quota], cluster_queues: Sequence[Doc], teams: Iterable[Team]) -> list[dict[str, Any]]:
    """Return the common queue, those of teams with a quota, and those of teams without one, drained.

    The last are about to be deleted, or left over from a change that ended halfway.
    """
    made = quotas.divide(total, [_moved(team, total) for team in teams])
    names = {queue.name for queue in made}
    unused = [one for one in cluster_queues if one["metadata"]["name"] not in names and is_team_queue(one)]
    return [render.cluster_queue(one) for one in made] + [_drained(one) for one in unused]


def renewed(common: Doc, cluster_queues: Sequence[Doc]) -> list[dict[str, Any]]:
    """Return the writes that adapt queues to the total of a new common queue, with what teams were given."""
    total = quotas.total([common])
    return transition.writes(cluster_queues, settled(total, cluster_queues, with_quota([], cluster_queues)))


def with_quota(teams: Iterable[Team], cluster_queues: Iterable[Doc]) -> list[Team]:
    """Return the teams, and those of which only a queue exists.

    After its namespace was deleted by hand, for example, a team's quota is still handed out.
    """
    every = {team.name: team for team in teams}
    for queue in filter(is_team_queue, cluster_queues):
        name = queue["metadata"]["name"]
        every.setdefault(name, Team(name, *given(queue)))
    return list(every.values())


def given(queue: Doc) -> tuple[dict[str, int], dict[str, int] | None]:
    """Return the slices of each flavor that a team was given, and how many it may borrow; omit flavors without any."""
    if noted := queue["metadata"].get("annotations", {}).get(GIVEN):
        found = json.loads(noted)
        return found["quota"], found["borrow"]
    own, limits = {}, {}
    unlimited = True
    for (flavor, resource), share in shares.shares(queue).items():
        shape = naming.shape(flavor)
        if resource != CHIPS or shape is None:
            continue
        own[flavor] = int(share.own) // shape.chips
        unlimited = unlimited and share.limit is None
        limits[flavor] = int(share.limit or 0) // shape.chips
    nonzero = {flavor: count for flavor, count in own.items() if count}
    return nonzero, None if unlimited else {flavor: count for flavor, count in limits.items() if count}


def is_team_queue(queue: Doc) -> bool:
    return bool(queue["metadata"].get("labels", {}).get(TEAM) == queue["metadata"]["name"])


def shortfalls(cluster_queues: Sequence[Doc]) -> list[str]:
    """Return, in words, the teams that have less than they were given."""
    found = []
    for queue in filter(is_team_queue, cluster_queues):
        has = shares.shares(queue)
        for flavor, count in given(queue)[0].items():
            shape = naming.shape(flavor)
            own = int(has[flavor, CHIPS].own) // shape.chips if shape and (flavor, CHIPS) in has else 0
            if own < count:
                name = queue["metadata"]["name"]
                found.append(
                    f"{name} was given {count} × {naming.flavor_name(flavor)} and has {own}: the cluster has no more"
                )
    return found


def _moved(team: Team, total: Sequence[Quota]) -> Team:
    """Move what a team was given of a shape to its new flavor, if all slices of it now have another capacity."""
    there = {quota.flavor for quota in total if quota.chips}
    kinds = [kind for flavor in there if (kind := pool_kinds.of_flavor(flavor))]

    def follow(slices: Mapping[str, int]) -> dict[str, int]:
        found: dict[str, int] = {}
        for flavor, count in slices.items():
            was = pool_kinds.of_flavor(flavor)
            same = [kind.flavor for kind in kinds if was and naming.same_shape(kind.shape, was.shape)]
            target = same[0] if flavor not in there and len(same) == 1 else flavor
            found[target] = found.get(target, 0) + count
        return found

    borrow = None if team.borrow is None else follow(team.borrow)
    return Team(team.name, follow(team.quota), borrow)


def _drained(queue: Doc) -> dict[str, Any]:
    """Return a queue without a quota of its own: until its last job ends, it borrows."""
    flavors = dict.fromkeys(flavor for flavor, _ in shares.shares(queue))
    nothing = [kueue.Quota(flavor, 0, 0, 0) for flavor in flavors]
    return render.cluster_queue(kueue.team_queue(queue["metadata"]["name"], nothing, {}, None))
