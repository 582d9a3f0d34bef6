"""What follows for one worker of a fleet from what is there of it. Pure.

A TPU VM that is neither ready nor on its way is gone, whatever word Google uses for it: it is deleted, made again, and
its program launched. One without our labels is somebody else's and never touched.
"""

from __future__ import annotations

from dataclasses import dataclass

from msgspec.structs import replace

from tpukit.cloud.refusals import is_stockout
from tpukit.control import Decision
from tpukit.fleet.records import Worker

SILENT_SECONDS = 120.0
"""How long the host of a READY TPU VM may not answer before it is made anew."""
BOOT_SECONDS = 600.0
"""How long a new TPU VM may take until its host lets us in."""
MOST_FAILURES = 5
COMING = ("CREATING", "STARTING", "RESTARTING", "REIMAGING", "REPAIRING", "UNHIDING")
WAITING = ("CREATING", "ACCEPTED", "WAITING_FOR_RESOURCES", "PROVISIONING", "")
READY = ("READY", "")


@dataclass(frozen=True, slots=True)
class Host:
    """What a host says of the worker's program."""

    running: int = 0  # attempt
    code: int | None = None  # exit code of the attempt that was asked for; None: it has not ended, or was not started
    lost: bool = False  # it has ended and nobody knows how
    frozen: bool = False
    moved: float = 0.0  # when it last made progress
    samples: int = 0
    shards: int = 0


@dataclass(frozen=True, slots=True)
class Seen:
    """Of one worker, in the zone where its record says that it is."""

    node: str | None = None  # state of the TPU VM of its name; None: there is none
    node_id: str = ""
    queued: str | None = None  # state of the request for it; None: there is none
    error: str = ""  # of a request that failed
    foreign: bool = False  # one of them is not ours
    host: Host | None = None  # None: it was not asked, or does not answer
    shards: int = 0  # of this worker, in the bucket
    quiet: float = 0.0  # seconds in which its host was asked, and neither it nor the bucket showed that it moved
    elsewhere: str = ""  # another of its zones, where it is though nothing of it is here


@dataclass(frozen=True, slots=True)
class Create:
    pass


@dataclass(frozen=True, slots=True)
class Delete:
    node_id: str = ""  # another one of that name is left alone


@dataclass(frozen=True, slots=True)
class Launch:
    pass


@dataclass(frozen=True, slots=True)
class Stop:
    attempt: int


def decide(worker: Worker, seen: Seen, now: float) -> Decision[Worker]:
    if seen.foreign:
        words = foreign_words(worker)
        if worker.wanted == "gone":
            return Decision(replace(worker, state="gone", message=""))
        return Decision(replace(worker, message=words), note=words if worker.message != words else "")
    worker = replace(worker, tpu_state=tpu_state(seen))
    if seen.elsewhere and seen.node is None and seen.queued is None:
        there = replace(worker, zone=seen.elsewhere, moving=False, since=0.0, silent=0.0, attempt=0)
        return Decision(there, note=f"{worker.slot} is in {there.zone}: another driver moved it")
    if worker.wanted == "gone" or worker.moving:
        return _clear(worker, seen)
    if seen.node is None:
        return _request(worker, seen, now)
    if seen.node in COMING or seen.node == "DELETING":
        return Decision(replace(worker, message="", silent=0.0))
    if seen.node not in READY:
        return Decision(
            replace(worker, silent=0.0, attempt=0),
            Delete(seen.node_id),
            f"{worker.tpu} is {seen.node}: it is made anew",
        )
    worker = replace(worker, since=0.0)
    return _program(worker, seen, now) if worker.wanted == "work" else Decision(replace(worker, message=""))


def tpu_state(seen: Seen) -> str:
    """As people read it."""
    state = seen.node if seen.node is not None else f"queued: {seen.queued}" if seen.queued is not None else "NOT_FOUND"
    return state or "UNKNOWN"


def foreign_words(worker: Worker) -> str:
    return f"{worker.tpu} in {worker.zone} was made by somebody else"


def refused(worker: Worker, act: object, words: str, *, for_good: bool) -> Decision[Worker] | None:
    """Of a request that Google refused because it has none to give, or allows no more; or, for good, because its zone
    never has any."""
    if not isinstance(act, Create):
        return None
    if len(worker.zones) == 1:
        return Decision(replace(worker, state="failed", message=words), note=words) if for_good else None
    return Decision(replace(worker, moving=True, message=words), note=words if worker.message != words else "")


def _clear(worker: Worker, seen: Seen) -> Decision[Worker]:
    if "DELETING" in (seen.node, seen.queued):
        return Decision(worker)
    if seen.node is not None or seen.queued is not None:
        return Decision(worker, Delete(seen.node_id))
    if worker.wanted == "gone":
        return Decision(replace(worker, state="gone", message=""), note=f"{worker.tpu} is deleted")
    following = worker.zones[(worker.zones.index(worker.zone) + 1) % len(worker.zones)]
    moved = replace(worker, zone=following, moving=False, since=0.0, attempt=0)  # it was not asked for there yet
    return Decision(moved, note=f"{worker.tpu} could not be had: {moved.tpu} is asked for instead")


def _request(worker: Worker, seen: Seen, now: float) -> Decision[Worker]:
    # Without `since` it was not asked for yet: it is, however long ago the last round was.
    late = worker.since > 0.0 and now - worker.since >= worker.move_after and len(worker.zones) > 1
    worker = replace(worker, silent=0.0, attempt=0, since=worker.since or now)
    if seen.queued is None and late:  # asked for without a queue, it came to nothing
        return Decision(replace(worker, moving=True))
    if seen.queued is None:
        return Decision(replace(worker, message=""), Create(), "" if worker.message else f"{worker.tpu} is asked for")
    if seen.queued == "DELETING":
        return Decision(worker)
    if seen.queued in WAITING:
        short = seen.queued == "WAITING_FOR_RESOURCES"
        words = f"{worker.zone} has no {worker.tpu_type} free now" if short else f"{worker.tpu} is on its way"
        if short and late:
            return Decision(replace(worker, moving=True, message=words), Delete())
        return Decision(replace(worker, message=words))
    moving = seen.queued == "FAILED" and is_stockout(seen.error) and len(worker.zones) > 1
    words = seen.error or f"the request for {worker.tpu} is {seen.queued}"
    changed = replace(worker, moving=moving, message=words)
    return Decision(changed, Delete(), words if worker.message != words else "")


def _program(worker: Worker, seen: Seen, now: float) -> Decision[Worker]:
    host = seen.host
    if host is None:
        if seen.quiet >= (SILENT_SECONDS if worker.attempt else BOOT_SECONDS):
            words = f"{worker.tpu} has not answered for {seen.quiet:.0f} s: it is made anew"
            return Decision(replace(worker, silent=0.0, attempt=0), Delete(seen.node_id), words)
        return Decision(replace(worker, silent=worker.silent or now))
    worker = replace(worker, silent=0.0, samples=host.samples, shards=host.shards)
    if host.running and host.running != worker.attempt:  # another driver launched it: what it does is asked next time
        return Decision(replace(worker, attempt=host.running, ran=host.running, base=seen.shards, message=""))
    if host.running:
        patience = worker.work.patience if worker.work else 0.0
        worker = replace(worker, ran=host.running)
        if host.frozen or seen.quiet > patience + SILENT_SECONDS:  # it leaves by itself when only the program hangs
            words = f"{worker.tpu}: its program {'is frozen' if host.frozen else 'does not move'}: it is launched again"
            return Decision(replace(worker, attempt=host.running), Stop(host.running), words)
        failures = 0 if seen.shards > worker.base else worker.failures
        return Decision(replace(worker, attempt=host.running, failures=failures, message=""))
    if host.code == 0:
        return Decision(replace(worker, state="done", message="nothing is left to do"), note=f"{worker.tpu} is done")
    if not worker.attempt or (host.code is None and not host.lost):
        return _launch(worker, seen, now, worker.failures, f"{worker.tpu} is launched")
    failures = worker.failures + 1 if seen.shards <= worker.base else 1
    how = "was lost" if host.code is None else f"ended with exit code {host.code}"
    if failures >= MOST_FAILURES:
        words = f"its program {how}, {failures} times without a shard: `tpu fleet logs {worker.tpu}` says why"
        return Decision(
            replace(worker, state="failed", failures=failures, message=words), note=f"{worker.tpu}: {words}"
        )
    return _launch(worker, seen, now, failures, f"{worker.tpu}: its program {how}; it is launched again")


def _launch(worker: Worker, seen: Seen, now: float, failures: int, note: str) -> Decision[Worker]:
    attempt = max(worker.attempt + 1, int(now))
    launched = replace(worker, attempt=attempt, failures=failures, base=seen.shards, message="")
    return Decision(launched, Launch(), note)
