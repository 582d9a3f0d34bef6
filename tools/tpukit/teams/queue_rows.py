"""The contents of the queues as rows: running jobs, and waiting jobs in order, with the reason."""

from __future__ import annotations

from dataclasses import dataclass

from tpukit.teams import boosts, naming, shares, workloads
from tpukit.teams.waiting import Queues, flavors_of, why
from tpukit.teams.workloads import CHIPS, Doc


@dataclass(frozen=True, slots=True)
class JobRow:
    team: str
    job: str
    state: str  # runs, waits, leaves
    queue: str  # the ClusterQueue of its slices, or that it waits for; "": none
    place: int | None  # in the queue's order, from 1
    priority: str
    tpu: str  # 2 × v4-16
    since: str  # when it got its slices, lost them, or was created
    why: str  # it waits, or may lose its slices
    eviction_usd: float | None = None  # what it would repeat if it were evicted; None: not written on its Workload
    unsaved_s: float | None = None  # the seconds of work in that


@dataclass(frozen=True, slots=True)
class QueueRow:
    queue: str
    tpu: str
    own: str
    used: str
    borrowed: str
    limit: str  # of borrowing
    waiting: int | None  # jobs; None: counted in the first row of the queue


def jobs(queues: Queues, team: str = "") -> list[JobRow]:
    """Return running jobs, leaving jobs, and waiting jobs in the order in which Kueue tries them."""
    there = [one for one in queues.workloads if not workloads.ended(one)]
    running = sorted((one for one in there if not workloads.waits(one)), key=_admitted)
    lines = [queues.line(one) for one in queues.cluster_queues]
    placed = {id(one) for line in lines for one in line}
    lost = [one for one in there if workloads.waits(one) and id(one) not in placed]
    lost.sort(key=workloads.order)
    leaving = [one for one in lost if workloads.leaves(one)]
    rows = [_running(one, queues) for one in running] + [_waiting(one, None, queues) for one in leaving]
    rows += [_waiting(one, place, queues) for line in lines for place, one in enumerate(line, 1)]
    rows += [_waiting(one, None, queues) for one in lost if not workloads.leaves(one)]
    return [row for row in rows if team in ("", row.team)]


def queues_of(queues: Queues, only: str = "", *, all_teams: bool = True) -> list[QueueRow]:
    """Return each ClusterQueue's quota, usage and waiting jobs by kind of slice, or those of one queue only.

    Waiting jobs are counted if the jobs of all teams are visible. Otherwise the first row of a queue has Kueue's own
    count, which does not tell what they wait for.
    """
    return [
        row
        for queue in queues.cluster_queues
        if only in ("", queue["metadata"]["name"])
        for row in _queue(queue, queues, all_teams)
    ]


def _queue(queue: Doc, queues: Queues, all_teams: bool) -> list[QueueRow]:
    wanted = [flavors_of(one, queue, queues.flavors) for one in queues.line(queue)]
    shown = [
        (key, share)
        for key, share in shares.shares(queue).items()
        if key[1] == CHIPS and (share.own or share.used or share.limit != 0) and naming.shape(key[0])
    ]
    pending = int(queue.get("status", {}).get("pendingWorkloads", 0))
    return [
        QueueRow(
            queue["metadata"]["name"],
            naming.flavor_name(key[0]),
            naming.number_of(share.own, key),
            naming.number_of(share.used, key),
            naming.number_of(share.borrowed, key),
            "everything unassigned" if share.limit is None else naming.number_of(share.limit, key),
            sum(key[0] in flavors for flavors in wanted) if all_teams else None if number else pending,
        )
        for number, (key, share) in enumerate(shown)
    ]


def _running(workload: Doc, queues: Queues) -> JobRow:
    name = workload["status"]["admission"]["clusterQueue"]
    queue = next((one for one in queues.cluster_queues if one["metadata"]["name"] == name), None)
    borrowed = [
        naming.amount(share.borrowed, key)
        for key, share in (shares.shares(queue) if queue else {}).items()
        if share.borrowed and key[1] == CHIPS and key in workloads.held(workload)
    ]
    note = f"queue {name} borrows {', '.join(borrowed)}, and returns them on request" if borrowed else ""
    return _row(workload, "runs", name, None, _admitted(workload), note)


def _waiting(workload: Doc, place: int | None, queues: Queues) -> JobRow:
    state = "leaves" if workloads.leaves(workload) else "waits"
    queue = queues.cluster_queue(workload)
    return _row(
        workload,
        state,
        queue["metadata"]["name"] if queue else "",
        place,
        workloads.since(workload),
        why(workload, queues),
    )


def _row(workload: Doc, state: str, queue: str, place: int | None, since: str, note: str) -> JobRow:
    cost = boosts.published(workload) if state == "runs" else None
    return JobRow(
        workloads.team(workload),
        workloads.job(workload),
        state,
        queue,
        place,
        workloads.priority_name(workload),
        naming.slices_of(workload),
        since,
        note,
        cost.usd if cost else None,
        cost.unsaved if cost else None,
    )


def _admitted(workload: Doc) -> str:
    found = workloads.condition(workload, "Admitted")
    return str(found["lastTransitionTime"]) if found else workloads.created(workload)
