"""Observations of a worker and possible acts, as plain data."""

from __future__ import annotations

from dataclasses import dataclass

from tpukit.goodput.zone_odds import Offer

COMING = ("CREATING", "STARTING", "RESTARTING", "REIMAGING", "REPAIRING", "UNHIDING")
WAITING = ("CREATING", "ACCEPTED", "WAITING_FOR_RESOURCES", "PROVISIONING", "")
READY = ("READY", "")


@dataclass(frozen=True, slots=True)
class Host:
    """The report of a host about the worker's program."""

    running: int = 0  # attempt
    code: int | None = None  # exit code of the requested attempt; None: it has not ended, or was not started
    lost: bool = False  # it has ended without an exit code
    frozen: bool = False
    moved: float = 0.0  # when it last made progress
    samples: int = 0
    shards: int = 0
    latest: int = 0  # the highest attempt ever started or stopped there
    error: str = ""  # why the program cannot run
    warning: str = ""  # what the program skipped


@dataclass(frozen=True, slots=True)
class Found:
    """A TPU VM of a worker, or a request for one, that is not where its record says. It carries our labels."""

    zone: str
    name: str
    node: str | None = None
    node_id: str = ""
    queued: str | None = None
    queued_id: str = ""
    blocked: bool = False  # a request that must fail, because another's TPU VM has the name

    @property
    def leaving(self) -> bool:
        return "DELETING" in (self.node, self.queued)


@dataclass(frozen=True, slots=True)
class Seen:
    """One worker, in the zone of its record and beyond."""

    node: str | None = None  # state of the TPU VM of its name; None: it does not exist
    node_id: str = ""
    queued: str | None = None  # state of the request for it; None: it does not exist
    error: str = ""  # error of a failed request
    foreign: bool = False  # node or request is not ours
    host: Host | None = None  # None: it was not asked, or is not seen
    shards: int = 0  # of this worker, in the bucket
    quiet: float = 0.0  # seconds in which its host responded and reported no progress
    elsewhere: tuple[Found, ...] = ()  # all other objects with the labels of this worker
    queued_id: str = ""
    mixed: bool = False  # only one of node and request is ours
    owner: str = ""  # owner of what is not ours, if its labels name one
    hidden: tuple[str, ...] = ()  # zones of this worker that cannot be listed now
    unseen: str = ""  # why the host of a READY TPU VM is not seen
    silent: bool = False  # it does not respond at all; a host that refuses our key is not silent
    witness: bool = False  # another host of this zone responded in the same round
    beat: str = ""  # of the worker's claim in the bucket: changes with every renewal
    proven: float = 0.0  # seconds of silence while others of its zone responded and the bucket showed no life
    offers: tuple[Offer, ...] = ()  # its zones with prices and what all workers learnt of them; empty: it has only one


@dataclass(frozen=True, slots=True)
class Target:
    """An object to delete, if it is still the observed one."""

    zone: str
    name: str
    node_id: str = ""  # empty: there was no TPU VM
    queued_id: str = ""  # empty: there was no request, or it was not looked up


@dataclass(frozen=True, slots=True)
class Create:
    pass


@dataclass(frozen=True, slots=True)
class Delete:
    targets: tuple[Target, ...]


@dataclass(frozen=True, slots=True)
class Launch:
    node_id: str = ""


@dataclass(frozen=True, slots=True)
class Stop:
    attempt: int
    node_id: str = ""


def tpu_state(seen: Seen) -> str:
    """Return the state of its TPU VM for display."""
    state = seen.node if seen.node is not None else f"queued: {seen.queued}" if seen.queued is not None else "NOT_FOUND"
    return state or "UNKNOWN"
