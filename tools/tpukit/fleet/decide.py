"""Decisions for one worker of a fleet from what was observed of it. Pure.

A TPU VM is deleted for one of four reasons: Google reports that it is neither READY nor being created; its host is
proven dead (see `dead`); the worker has a second one; or the user wants it deleted. An unreachable host of a READY TPU
VM is *not seen*, which is no reason: blocked SSH or a refused key proves nothing about the host. TPU VMs without our
labels, or with those of another owner or store, are never touched.
"""

from __future__ import annotations

import dataclasses

from msgspec.structs import replace

from tpukit.fleet import learning
from tpukit.fleet.records import Worker
from tpukit.fleet.seen import (
    COMING,
    READY,
    WAITING,
    Create,
    Delete,
    Found,
    Host,
    Launch,
    Seen,
    Stop,
    Target,
    tpu_state,
)
from tpukit.google.refusals import is_stockout
from tpukit.kernel import Decision

__all__ = ["COMING", "READY", "WAITING", "Create", "Delete", "Found", "Host", "Launch", "Seen", "Stop", "Target"]

DEAD_SECONDS = 900.0
"""Seconds of silence after which a host counts as dead.

They count while another host of its zone answers and nothing of it arrives in the bucket. At least the program's
patience.
"""
HUNG_SECONDS = 120.0
"""Seconds beyond its patience that a worker may be stuck: it exits by itself if only the program hangs."""
SAID_SECONDS = 120.0
"""Seconds for which a host is unseen before its record says so."""
LATE_SECONDS = 60.0
"""Seconds after a request in which its result may still appear."""
MOST_FAILURES = 5
PERMANENT = 78
"""Exit code of a worker that no launch can help, from host/worker.py."""


def decide(worker: Worker, seen: Seen, now: float) -> Decision[Worker]:
    if seen.foreign:
        return _foreign(worker, seen, now)
    worker = replace(worker, tpu_state=tpu_state(seen))
    if worker.wanted == "gone":
        return _clear(worker, seen, now)
    if gathered := _gather(worker, seen):
        return gathered
    if worker.moving:
        return _move(worker, seen)
    if seen.node is None:
        return _request(worker, seen, now)
    if seen.node in COMING or seen.node == "DELETING":
        return Decision(replace(worker, message="", silent=0.0))
    if seen.node not in READY:
        lost = learning.lost(worker, now)
        why = learning.better(lost, seen)
        words = f"{worker.tpu} is {seen.node}: it is recreated" + (f" elsewhere: {why}" if why else "")
        return Decision(
            replace(lost, silent=0.0, attempt=0, moving=bool(why)),
            Delete((_here(worker, seen),)),
            words,
        )
    worker = learning.came(worker, now)
    return _program(worker, seen, now) if worker.wanted == "work" else Decision(replace(worker, message=""))


def foreign_words(worker: Worker, owner: str = "") -> str:
    return f"{worker.tpu} in {worker.zone} belongs to {owner or 'another'}, not to this fleet"


def dead(worker: Worker, seen: Seen) -> bool:
    """Return whether the host of a READY TPU VM is proven dead.

    Our channel works, because another host of its zone answered, while this host was silent and no shard and no claim
    of it arrived in the bucket.
    """
    return seen.host is None and seen.proven >= max(DEAD_SECONDS, worker.work.patience if worker.work else 0.0)


def refused(
    worker: Worker, act: object, words: str, now: float, *, for_good: bool, denied: bool = False
) -> Decision[Worker] | None:
    """Return the decision after Google refused a request for lack of capacity or quota.

    `for_good`: the zone never has any. `denied`: we may not create TPU VMs in any zone.
    """
    if not isinstance(act, Create):
        return None
    if denied:
        return Decision(replace(worker, state="failed", message=words), note=words)
    if len(worker.zones) == 1:
        return Decision(replace(worker, state="failed", message=words), note=words) if for_good else None
    moving = replace(learning.gave_up(worker, now), moving=True, message=words)
    return Decision(moving, note=words if worker.message != words else "")


def _here(worker: Worker, seen: Seen) -> Target:
    return Target(worker.zone, worker.tpu, seen.node_id, seen.queued_id)


def _targets(some: tuple[Found, ...]) -> tuple[Target, ...]:
    return tuple(Target(one.zone, one.name, one.node_id, one.queued_id) for one in some if not one.leaving)


def _foreign(worker: Worker, seen: Seen, now: float) -> Decision[Worker]:
    """Leave the other owner's TPU VM alone, and use what this worker has elsewhere, or another name."""
    if worker.wanted == "gone":
        return _clear(worker, dataclasses.replace(seen, node=None, queued=None), now)
    for one in seen.elsewhere:
        if (there := _taken(worker, one)) is not None:
            return Decision(there, note=f"{worker.slot} is {there.tpu} in {there.zone}")
    words = foreign_words(worker, seen.owner)
    if not worker.distinct and not seen.mixed:
        other = replace(worker, distinct=True, moving=False, since=0.0, held=0.0, silent=0.0, attempt=0, message="")
        return Decision(other, note=f"{words}: {other.tpu} is used instead")
    blocked = _targets(tuple(one for one in seen.elsewhere if one.blocked))
    said = words if worker.message != words else ""
    return Decision(replace(worker, message=words), Delete(blocked) if blocked else None, said)


def _taken(worker: Worker, one: Found) -> Worker | None:
    """Return the worker with a TPU VM that was found elsewhere; None if it may not be there."""
    if one.leaving or one.blocked or one.zone not in worker.zones:
        return None
    for distinct in (worker.distinct, not worker.distinct):
        there = replace(worker, zone=one.zone, distinct=distinct, used=_with(worker.used, one.zone))
        if there.tpu == one.name:
            return replace(there, moving=False, since=0.0, held=0.0, silent=0.0, attempt=0)
    return None


def _gather(worker: Worker, seen: Seen) -> Decision[Worker] | None:
    """Keep one of several TPU VMs of a worker: a driver that lost its lease may have requested one in another zone."""
    here = seen.node is not None or seen.queued is not None
    settled = not worker.moving and (seen.node in READY or seen.node in COMING)
    ready_first = sorted(seen.elsewhere, key=lambda one: one.node not in READY)
    for one in () if settled else ready_first:
        there = _taken(worker, one)
        if there is not None and (not here or worker.moving or one.node in READY):
            surplus = _targets(tuple(other for other in seen.elsewhere if other is not one))
            if here and "DELETING" not in (seen.node, seen.queued):
                surplus = (*surplus, _here(worker, seen))
            note = f"{worker.slot} is in {there.zone}: another driver moved it"
            return Decision(there, Delete(surplus) if surplus else None, note)
    if surplus := _targets(seen.elsewhere):
        words = f"a second TPU VM of {worker.slot} in {surplus[0].zone} is deleted"
        return Decision(worker, Delete(surplus), words)
    if seen.elsewhere and not here:
        return Decision(worker)  # until it is deleted: then a new one is requested
    return None


def _clear(worker: Worker, seen: Seen, now: float) -> Decision[Worker]:
    """Delete all objects of a worker, in every zone in which it was requested."""
    worker = learning.released(worker, now)
    left = _targets(seen.elsewhere)
    leaving = "DELETING" in (seen.node, seen.queued)
    if (seen.node is not None or seen.queued is not None) and not leaving:
        left = (_here(worker, seen), *left)
    if left:
        return Decision(worker, Delete(left))
    if leaving or seen.elsewhere:
        return Decision(worker)
    if blind := [zone for zone in seen.hidden if zone in worker.used]:
        return Decision(replace(worker, message=f"{blind[0]} cannot be listed: a TPU VM may be left there"))
    if 0.0 <= now - worker.asked < LATE_SECONDS:
        return Decision(worker)  # a recent request may still take effect
    return Decision(replace(worker, state="gone", message=""), note=f"{worker.tpu} is deleted")


def _move(worker: Worker, seen: Seen) -> Decision[Worker]:
    if "DELETING" in (seen.node, seen.queued):
        return Decision(worker)
    if seen.node is not None or seen.queued is not None:
        return Decision(worker, Delete((_here(worker, seen),)))
    following, why = learning.following(worker, seen)
    moved = replace(worker, zone=following, moving=False, since=0.0, attempt=0)  # not requested there yet
    return Decision(moved, note=f"{worker.tpu} is unavailable: {moved.tpu} is requested instead" + (why and f"; {why}"))


def _request(worker: Worker, seen: Seen, now: float) -> Decision[Worker]:
    # Without `since` it was not requested yet, however long ago the last round was.
    late = worker.since > 0.0 and now - worker.since >= worker.move_after and len(worker.zones) > 1
    worker = replace(learning.lost(worker, now), silent=0.0, attempt=0, since=worker.since or now)
    if seen.queued is None and late:  # a request without a queue failed
        return Decision(replace(learning.gave_up(worker, now), moving=True))
    if seen.queued is None:
        if blind := [zone for zone in seen.hidden if zone in worker.used]:
            words = f"{blind[0]} cannot be listed: {worker.slot} may be there, so it is not requested in {worker.zone}"
            return Decision(replace(worker, message=words, since=0.0))
        asked = replace(worker, message="", asked=now, used=_with(worker.used, worker.zone))
        return Decision(asked, Create(), "" if worker.message else f"{worker.tpu} is requested")
    if seen.queued == "DELETING":
        return Decision(worker)
    if seen.queued in WAITING:
        short = seen.queued == "WAITING_FOR_RESOURCES"
        words = f"{worker.zone} has no {worker.tpu_type} available now" if short else f"{worker.tpu} is being created"
        if short and late:
            leaves = replace(learning.gave_up(worker, now), moving=True, message=words)
            return Decision(leaves, Delete((_here(worker, seen),)))
        return Decision(replace(worker, message=words))
    moving = seen.queued == "FAILED" and is_stockout(seen.error) and len(worker.zones) > 1
    words = seen.error or f"the request for {worker.tpu} is {seen.queued}"
    changed = replace(learning.gave_up(worker, now) if moving else worker, moving=moving, message=words)
    return Decision(changed, Delete((_here(worker, seen),)), words if worker.message != words else "")


def _with(zones: list[str], zone: str) -> list[str]:
    return zones if zone in zones else [*zones, zone]


def _program(worker: Worker, seen: Seen, now: float) -> Decision[Worker]:
    host = seen.host
    if host is None:
        return _unseen(worker, seen, now)
    known = max(worker.launched, worker.attempt, host.latest, host.running)
    worker = replace(worker, silent=0.0, samples=host.samples, shards=host.shards, launched=known)
    if host.running and host.running != worker.attempt:  # another driver launched it: observe it in the next round
        return Decision(replace(worker, attempt=host.running, ran=host.running, base=seen.shards, message=""))
    if host.running:
        patience = worker.work.patience if worker.work else 0.0
        worker = replace(worker, ran=host.running)
        if host.frozen or seen.quiet > patience + HUNG_SECONDS:
            words = f"{worker.tpu}: its program {'is frozen' if host.frozen else 'does not move'}: it is relaunched"
            return Decision(replace(worker, attempt=host.running), Stop(host.running, seen.node_id), words)
        failures = 0 if seen.shards > worker.base else worker.failures
        return Decision(replace(worker, attempt=host.running, failures=failures, message=host.warning))
    if host.code == 0:
        return Decision(replace(worker, state="done", message="all work is done"), note=f"{worker.tpu} is done")
    if not worker.attempt or (host.code is None and not host.lost):
        return _launch(worker, seen, worker.failures, f"{worker.tpu} is launched")
    failures = worker.failures + 1 if seen.shards <= worker.base else 1
    how = "was lost" if host.code is None else f"ended with exit code {host.code}"
    how += f" ({host.error})" if host.error else ""
    if host.code == PERMANENT:
        words = host.error or f"its program cannot run: `tpu fleet logs {worker.tpu}` shows why"
    elif failures >= MOST_FAILURES:
        words = f"its program {how}, {failures} times without a shard: `tpu fleet logs {worker.tpu}` shows why"
    else:
        return _launch(worker, seen, failures, f"{worker.tpu}: its program {how}; it is relaunched")
    return Decision(replace(worker, state="failed", failures=failures, message=words), note=f"{worker.tpu}: {words}")


def _unseen(worker: Worker, seen: Seen, now: float) -> Decision[Worker]:
    if dead(worker, seen):
        words = f"{worker.tpu} has not answered for {seen.proven:.0f} s in which other hosts of {worker.zone} did, and"
        words = f"{words} nothing of it came to the bucket: it is recreated"
        gone = replace(learning.released(worker, now), silent=0.0, attempt=0)
        return Decision(gone, Delete((_here(worker, seen),)), words)
    worker = replace(worker, silent=worker.silent or now)
    if not 0.0 <= now - worker.silent < SAID_SECONDS:
        said = seen.unseen or "it has published no host key yet"
        worker = replace(worker, message=f"{worker.tpu} is READY, but its host cannot be seen from here: {said}")
    return Decision(worker)


def _launch(worker: Worker, seen: Seen, failures: int, note: str) -> Decision[Worker]:
    """Launch with a number above every launch that the record or the host knows: no clock decides it."""
    number = max(worker.launched, worker.attempt) + 1
    launched = replace(worker, attempt=number, launched=number, failures=failures, base=seen.shards, message="")
    return Decision(launched, Launch(seen.node_id), note)
