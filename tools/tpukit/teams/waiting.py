"""Explain in one sentence why a job waits and which jobs are ahead of it, from the cluster's queues.

Without access to the jobs of other teams, the sentence names no others, but still tells how much is missing, because
the queues themselves report their usage.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from tpukit.jobs.render import pool_kinds
from tpukit.jobs.render.pool_kinds import FLEX_START
from tpukit.teams import naming, shares, workloads
from tpukit.teams.workloads import CHIPS

Doc = Mapping[str, Any]

_SHAPE = ("cloud.google.com/gke-tpu-accelerator", "cloud.google.com/gke-tpu-topology")
_STOPPED = ("Hold", "HoldAndDrain")
_NAMED = 2
"""Number of jobs to name in a sentence; others are counted."""


@dataclass(frozen=True, slots=True)
class Queues:
    """Objects of each kind in the cluster; workloads may be limited to some namespaces."""

    workloads: Sequence[Doc]
    local_queues: Sequence[Doc]
    cluster_queues: Sequence[Doc]
    flavors: Sequence[Doc]
    _lines: dict[str, list[Doc]] = field(default_factory=dict, repr=False, compare=False)

    def cluster_queue(self, workload: Doc) -> Doc | None:
        """Return the ClusterQueue of the job's LocalQueue."""
        local = self.local_queue(workload)
        name = local["spec"].get("clusterQueue", "") if local else ""
        return next((one for one in self.cluster_queues if one["metadata"]["name"] == name), None)

    def local_queue(self, workload: Doc) -> Doc | None:
        wanted = (workloads.team(workload), workloads.queue(workload))
        return next((one for one in self.local_queues if _name(one) == wanted), None)

    def line(self, cluster_queue: Doc) -> list[Doc]:
        """Return the jobs that wait for a ClusterQueue, in the order in which Kueue tries them."""
        if not self._lines:
            waiting = [one for one in self.workloads if workloads.waits(one) and not workloads.leaves(one)]
            for one in sorted(waiting, key=workloads.order):
                of = self.cluster_queue(one)
                self._lines.setdefault(of["metadata"]["name"] if of else "", []).append(one)
        return self._lines.get(cluster_queue["metadata"]["name"], [])


def ahead(workload: Doc, queues: Queues) -> list[Doc]:
    """Return the jobs in the same ClusterQueue that are tried before this one."""
    cluster_queue = queues.cluster_queue(workload)
    line = queues.line(cluster_queue) if cluster_queue else []
    return [one for one in line if workloads.order(one) < workloads.order(workload)]


def why(workload: Doc, queues: Queues) -> str:
    """Return why a job waits, or "" if it does not."""
    if not workloads.waits(workload):
        return ""
    how = workloads.evicted(workload)
    if workloads.leaves(workload) and how:
        return f"{_evicted(workload, how, queues)}; its hosts are stopping"
    reason = _held_back(workload, queues) or _short(workload, queues) or _otherwise(workload, queues)
    return f"{_evicted(workload, how, queues)}; {reason}" if how else reason


def _evicted(workload: Doc, how: Doc, queues: Queues) -> str:
    at = f"evicted at {str(how['lastTransitionTime'])[11:19]} UTC"
    if by := workloads.evicted_by(workload, queues.workloads):
        return f"{at} by {_called(by)}"
    reasons = {
        "Preempted": "for another job",
        "ClusterQueueStopped": "because the queue was stopped",
        "LocalQueueStopped": "because the team's queue was stopped",
        "PodsReadyTimeout": "because its hosts did not come up",
        "AdmissionCheck": "by an admission check",
        "NodeFailures": "because a host was lost",
    }
    return f"{at} {reasons.get(how.get('reason', ''), '')}".rstrip()


def _held_back(workload: Doc, queues: Queues) -> str:
    """Return why Kueue does not consider the job, regardless of free quota."""
    if workload["spec"].get("active") is False:
        return "its Workload is inactive: set `active: true` in the Workload to admit it"
    team, name = workloads.team(workload), workloads.queue(workload)
    local = queues.local_queue(workload)
    if local is None:
        return f"there is no queue {name} in namespace {team}; `tpu team add {team}` creates the team's"
    if local["spec"].get("stopPolicy") in _STOPPED:
        return f"the queue of team {team} is stopped (stopPolicy of LocalQueue {name})"
    cluster_queue = queues.cluster_queue(workload)
    wanted = local["spec"].get("clusterQueue", "")
    if cluster_queue is None:
        return f"the team's queue refers to ClusterQueue {wanted}, which does not exist"
    if cluster_queue["spec"].get("stopPolicy") in _STOPPED:
        return f"ClusterQueue {wanted} is stopped (stopPolicy)"
    inactive = [
        one.get("message", "")
        for one in cluster_queue.get("status", {}).get("conditions", [])
        if one["type"] == "Active" and one["status"] != "True"
    ]
    return f"ClusterQueue {wanted} admits no jobs: {inactive[0]}" if inactive else ""


def _short(workload: Doc, queues: Queues) -> str:
    """Return which quota is insufficient, and which jobs hold it. Chips are named before other resources."""
    cluster_queue = queues.cluster_queue(workload)
    if cluster_queue is None or workloads.condition(workload, "QuotaReserved"):
        return ""
    name = cluster_queue["metadata"]["name"]
    need: dict[shares.Key, Decimal] = {}
    for ask in workloads.asks(workload):
        flavor = flavor_of(ask, cluster_queue, queues.flavors)
        if not flavor:
            return _untolerated(ask, cluster_queue, queues.flavors) or (
                f"ClusterQueue {name} has no {naming.nodes(ask.selector)}"
            )
        for resource, number in ask.requests.items():
            key = flavor, resource
            need[key] = need.get(key, Decimal()) + number
    known = shares.shares(cluster_queue)
    for key in sorted(need, key=lambda key: (key[1] != CHIPS, key)):
        if not need[key]:
            continue
        if key not in known:
            return f"ClusterQueue {name} has no quota of {key[1]}"
        limit = shares.most(key, cluster_queue, queues.cluster_queues)
        if need[key] > limit:
            has = naming.number_of(limit, key)
            return f"can never run: asks for {naming.amount(need[key], key)}, and its queue can have {has}"
    for key in sorted(need, key=lambda key: (key[1] != CHIPS, key)):
        left = shares.free(key, cluster_queue, queues.cluster_queues)
        if need[key] > left:
            return _missing(workload, key, need[key], left, cluster_queue, queues)
    return ""


def _missing(workload: Doc, key: shares.Key, need: Decimal, left: Decimal, cluster_queue: Doc, queues: Queues) -> str:
    parts = [f"needs {naming.amount(need, key)}, {naming.number_of(left, key) if left else 'none'} free"]
    leaving = [
        one
        for one in queues.workloads
        if workloads.evicted_by(one, [workload]) and workloads.since(one) >= workloads.since(workload)
    ]
    mine = shares.shares(cluster_queue)[key]
    lent = [one for one in shares.cohort_of(cluster_queue, queues.cluster_queues) if one is not cluster_queue]
    borrowers = [one["metadata"]["name"] for one in lent if _borrows(one, key)]
    if leaving:
        parts.append(f"{_list(map(_called, leaving))} {_verb(leaving, 'leaves', 'leave')} for it")
    elif lent and mine.most is not None and mine.most - mine.used == left:
        limit = f" and may borrow {naming.number_of(mine.limit, key)}" if mine.limit else " and may borrow none"
        parts.append(f"its queue has {naming.number_of(mine.own, key)}{limit}")
    elif borrowers and mine.used + need <= mine.own:
        parts.append(f"its own quota is borrowed by {_list(borrowers)}")
    holders = _holders(key, cluster_queue, queues)
    if holders and not leaving:
        parts.append(f"{_list(map(_called, holders))} {_verb(holders, 'runs', 'run')} there")
    if before := ahead(workload, queues):
        parts.append(f"{len(before)} ahead, first {_called(before[0])}")
    return "; ".join(parts)


def _otherwise(workload: Doc, queues: Queues) -> str:
    """Return why a job waits although there is enough: Kueue has not started it yet, or gives the reason."""
    if workloads.condition(workload, "QuotaReserved"):
        checks = workload.get("status", {}).get("admissionChecks", [])
        pending = [one["name"] for one in checks if one.get("state") != "Ready"]
        return f"has its quota, and waits for {_list(pending) or 'Kueue to start it'}"
    if at := workload.get("status", {}).get("requeueState", {}).get("requeueAt"):
        return f"is tried again at {str(at)[11:19]} UTC"
    if before := ahead(workload, queues):
        return f"quota is free; {len(before)} ahead, first {_called(before[0])}"
    return f"Kueue says: {said}" if (said := workloads.message(workload)) else "Kueue is about to start it"


def never(workload: Doc, queues: Queues) -> str:
    """Return why a workload can never get its chips from the current queues, or "" if it may.

    Slices are compared by shape only: another capacity may be added to a queue while it runs.
    """
    cluster_queue = queues.cluster_queue(workload)
    if cluster_queue is None:
        return ""
    labels = {one["metadata"]["name"]: one.get("spec", {}).get("nodeLabels", {}) for one in queues.flavors}
    has = [key for key in shares.shares(cluster_queue) if key[1] == CHIPS]
    for ask in workloads.asks(workload):
        need = ask.requests.get(CHIPS)
        if not need:
            continue
        shape = {key: value for key, value in ask.selector.items() if key in _SHAPE}
        fits = [key for key in has if shape.items() <= labels.get(key[0], {}).items()]
        if not fits:
            return f"ClusterQueue {cluster_queue['metadata']['name']} has no {naming.nodes(ask.selector)}"
        most = max((shares.most(key, cluster_queue, queues.cluster_queues), key) for key in fits)
        if need > most[0]:
            wanted, limit = naming.amount(need, most[1]), naming.number_of(most[0], most[1])
            return f"it asks for {wanted}, and its queue can have {limit}"
        if flavor := _beyond_one_pool(ask, need, cluster_queue, queues):
            return (
                f"it asks for {naming.amount(need, (flavor, CHIPS))}, and queued provisioning serves a request from one"
                " pool, which is one slice; write `slices: 1`, or leave flex_start_queued out of the cluster file"
            )
    return ""


def _beyond_one_pool(ask: workloads.Ask, need: Decimal, cluster_queue: Doc, queues: Queues) -> str:
    """Return the flavor of queued provisioning for these pods if they need more than one slice of it, else ""."""
    flavor = flavor_of(ask, cluster_queue, queues.flavors)
    checks = cluster_queue["spec"].get("admissionChecksStrategy", {}).get("admissionChecks", [])
    kind = pool_kinds.of_flavor(flavor)
    queued = any(one["name"] == FLEX_START and flavor in one.get("onFlavors", [flavor]) for one in checks)
    return flavor if queued and kind and need > kind.shape.chips else ""


def flavors_of(workload: Doc, cluster_queue: Doc, flavors: Sequence[Doc]) -> set[str]:
    """Return the flavors that Kueue takes for the chips of a workload."""
    asks = [ask for ask in workloads.asks(workload) if ask.requests.get(CHIPS)]
    return {flavor_of(ask, cluster_queue, flavors) for ask in asks}


def flavor_of(ask: workloads.Ask, cluster_queue: Doc, flavors: Iterable[Doc]) -> str:
    """Return the flavor that Kueue takes for these pods.

    It is the first whose labels they do not contradict and whose taints they tolerate.
    """
    return next((name for name, taints in _matching(ask, cluster_queue, flavors) if not taints), "")


def _untolerated(ask: workloads.Ask, cluster_queue: Doc, flavors: Iterable[Doc]) -> str:
    """Return which taint keeps these pods from the first flavor that their labels match, or "" if none matches."""
    for name, (taint, *_) in _matching(ask, cluster_queue, flavors):
        words = f"{taint['key']}={taint.get('value', '')}"
        flavor = naming.flavor_name(name)
        return f"its pods do not tolerate the taint {words} of {flavor}: add this toleration to them"
    return ""


def _matching(ask: workloads.Ask, cluster_queue: Doc, flavors: Iterable[Doc]) -> Iterator[tuple[str, list[Doc]]]:
    """Yield the flavors whose labels these pods do not contradict, each with its taints that they do not tolerate."""
    specs = {one["metadata"]["name"]: one.get("spec", {}) for one in flavors}
    labels = {name: spec.get("nodeLabels", {}) for name, spec in specs.items()}
    for group in cluster_queue["spec"].get("resourceGroups", []):
        names = [str(flavor["name"]) for flavor in group["flavors"]]
        keys = {key for name in names for key in labels.get(name, {})}
        wanted = {key: value for key, value in ask.selector.items() if key in keys}
        for name in names:
            has = labels.get(name, {})
            if wanted.items() <= has.items() and not ask.absent & has.keys():
                taints = specs.get(name, {}).get("nodeTaints", [])
                yield name, [taint for taint in taints if not _tolerates(ask, taint)]


def _tolerates(ask: workloads.Ask, taint: Doc) -> bool:
    return any(
        one.get("effect", taint["effect"]) == taint["effect"]
        and one.get("key", taint["key"]) == taint["key"]
        and (one.get("operator") == "Exists" or one.get("value", "") == taint.get("value", ""))
        for one in ask.tolerated
    )


def _holders(key: shares.Key, cluster_queue: Doc, queues: Queues) -> list[Doc]:
    """Return the jobs that hold some of a resource, those with the most first."""
    together = {one["metadata"]["name"] for one in shares.cohort_of(cluster_queue, queues.cluster_queues)}
    found = [
        (workloads.held(one)[key], one)
        for one in queues.workloads
        if workloads.condition(one, "QuotaReserved")
        and not workloads.ended(one)
        and one["status"]["admission"]["clusterQueue"] in together
        and workloads.held(one).get(key)
    ]
    return [one for _, one in sorted(found, key=lambda pair: (-pair[0], _called(pair[1])))]


def _borrows(cluster_queue: Doc, key: shares.Key) -> bool:
    share = shares.shares(cluster_queue).get(key)
    return bool(share and share.borrowed)


def _called(workload: Doc) -> str:
    return f"{workloads.team(workload)}/{workloads.job(workload)} ({workloads.priority_name(workload)})"


def _list(names: Iterable[str]) -> str:
    every = list(names)
    shown = every if len(every) <= _NAMED + 1 else [*every[:_NAMED], f"{len(every) - _NAMED} more"]
    return " and ".join(filter(None, [", ".join(shown[:-1]), *shown[-1:]]))


def _verb(of: Sequence[object], one: str, many: str) -> str:
    return one if len(of) == 1 else many


def _name(thing: Doc) -> tuple[str, str]:
    return thing["metadata"]["namespace"], thing["metadata"]["name"]
