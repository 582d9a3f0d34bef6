"""Quotas: the total, what teams have of their own, and what is left for all others.

The sum of all quotas never exceeds the total: a team's quota is taken from the common queue, and returns to it with the
team. Quotas of TPU flavors are whole slices, and CPUs and memory go with the chips in proportion; so do those of the
CPU pool.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any

from tpukit.core.errors import Invalid, NotFound, Problem
from tpukit.core.quantities import amount
from tpukit.jobs.render.kueue import (
    COMMON,
    CPU_FLAVOR,
    TEAM,
    TOTAL,
    ClusterQueue,
    Quota,
    common_queue,
    remaining,
    team_queue,
)
from tpukit.teams import naming, shares
from tpukit.teams.team import Team
from tpukit.teams.workloads import CHIPS

Doc = Mapping[str, Any]
_GB = 10**9


def total(cluster_queues: Iterable[Doc]) -> tuple[Quota, ...]:
    """Return the total: as annotated on the common queue, or else the sum of all queues."""
    every = list(cluster_queues)
    common = next((one for one in every if one["metadata"]["name"] == COMMON), None)
    if common is None:
        hint = "run `tpu cluster addons` to create it with quotas for the existing pools"
        raise NotFound(f"there is no ClusterQueue {COMMON} in this cluster", hint=hint)
    if said := common["metadata"].get("annotations", {}).get(TOTAL):
        return tuple(
            Quota(
                flavor,
                int(amount(has[CHIPS])),
                int(amount(has["cpu"])),
                int(amount(has["memory"])) // _GB,
                check=has.get("check", ""),
            )
            for flavor, has in json.loads(said).items()
        )
    return _sums(one for one in every if _ours(one))


def divide(available: Sequence[Quota], teams: Iterable[Team]) -> list[ClusterQueue]:
    """Return the common queue, then one for each team with a quota: all of it, or its part of the total."""
    all_chips = sum(quota.chips for quota in available)
    owners = {team.name: team for team in teams if team.quota}
    parts = {quota.flavor: _parts(quota, owners.values()) for quota in available}
    own = {
        name: [_share(quota, team, {f: part[name] for f, part in parts.items()}, all_chips) for quota in available]
        for name, team in owners.items()
    }
    left = remaining(available, [quota for has in own.values() for quota in has])
    queues = [team_queue(name, has, owners[name].quota, owners[name].borrow) for name, has in own.items()]
    return [common_queue(left, available), *queues]


def _parts(quota: Quota, teams: Iterable[Team]) -> dict[str, int]:
    """Return the slices of this flavor for each team.

    If there are too few, each team gets its part in whole slices, and the teams furthest below it get the rest.
    """
    given = {team.name: team.quota.get(quota.flavor, 0) for team in teams}
    shape, asked = naming.shape(quota.flavor), sum(given.values())
    there = quota.chips // shape.chips if shape else 0
    if asked <= there:
        return given
    parts = {name: there * count // asked for name, count in given.items()}
    short = sorted(given, key=lambda name: (parts[name] * asked - there * given[name], name))
    for name in short[: there - sum(parts.values())]:
        parts[name] += 1
    return parts


def check(available: Sequence[Quota], wanted: Team, rest: Iterable[Team], before: Team | None = None) -> None:
    """Raise Invalid for what cannot be given. What the team already has is not checked again."""
    chips = {quota.flavor: quota.chips for quota in available}
    every = list(rest)
    problems = []
    if wanted.borrow is not None and not wanted.quota:
        what = f"{wanted.name} has no quota of its own, and the common queue does not borrow"
        problems.append(Problem("--borrow", what, "add --quota, or write --borrow unlimited"))
    for option, slices in (("--quota", wanted.quota), ("--borrow", wanted.borrow or {})):
        old = {} if before is None else before.quota if option == "--quota" else before.borrow or {}
        for flavor, count in slices.items():
            if count <= old.get(flavor, 0):
                continue
            shape, name = naming.shape(flavor), naming.flavor_name(flavor)
            there_are = chips.get(flavor, 0) // shape.chips if shape else 0
            given = {team.name: team.quota.get(flavor, 0) for team in every if team.quota.get(flavor)}
            if not there_are:
                offered = ", ".join(naming.flavor_name(other) for other, number in chips.items() if number)
                problems.append(Problem(option, f"the cluster has no {name}", f"it has {offered or 'no slices'}"))
            elif option == "--quota" and count > there_are - sum(given.values()):
                has = "".join(f", {team} has {number}" for team, number in given.items())
                left = there_are - sum(given.values())
                hint = f"write {name}={left} or less" if left > 0 else "take some from another team first"
                problems.append(
                    Problem(option, f"{count} × {name} is too much: the cluster has {there_are}{has}", hint)
                )
    if problems:
        raise Invalid(problems)


def overdrawn(cluster_queues: Sequence[Doc]) -> list[str]:
    """Return, in words, the flavors handed out beyond the total, as after another tool replaced the common queue."""
    if all(one["metadata"]["name"] != COMMON for one in cluster_queues):
        return []  # queues that another tool created, which keeps the sum
    ours = [shares.shares(one) for one in cluster_queues if _ours(one)]
    found = []
    for quota in total(cluster_queues):
        key = quota.flavor, CHIPS
        handed = sum((one[key].own for one in ours if key in one), Decimal())
        if handed > quota.chips:
            there_are = naming.number_of(Decimal(quota.chips), key)
            found.append(f"{naming.amount(handed, key)} are assigned to teams, and the cluster has {there_are}")
    return found


def _sums(cluster_queues: Iterable[Doc]) -> tuple[Quota, ...]:
    every = [shares.shares(one) for one in cluster_queues]

    def together(flavor: str, resource: str) -> Decimal:
        return sum((one[flavor, resource].own for one in every if (flavor, resource) in one), Decimal())

    return tuple(
        Quota(
            flavor,
            int(together(flavor, CHIPS)),
            math.ceil(together(flavor, "cpu")),
            math.ceil(together(flavor, "memory") / _GB),
        )
        for flavor in dict.fromkeys(flavor for one in every for flavor, _ in one)
    )


def _ours(cluster_queue: Doc) -> bool:
    return cluster_queue["metadata"]["name"] == COMMON or TEAM in cluster_queue["metadata"].get("labels", {})


def _share(quota: Quota, team: Team, slices: Mapping[str, int], all_chips: int) -> Quota:
    shape, borrow = naming.shape(quota.flavor), None
    if quota.flavor == CPU_FLAVOR:
        part = sum(found.chips * count for flavor, count in slices.items() if (found := naming.shape(flavor)))
        whole = all_chips
    else:
        chips = shape.chips if shape else 0
        part, whole = slices[quota.flavor] * chips, quota.chips
        borrow = None if team.borrow is None else team.borrow.get(quota.flavor, 0) * chips
    part = min(part, whole)
    return Quota(
        quota.flavor,
        0 if quota.flavor == CPU_FLAVOR else part,
        quota.cpus * part // (whole or 1),
        quota.memory_gb * part // (whole or 1),
        borrow,
        quota.check,
    )
