"""What can be seen of a worker, and what can be done for it, as plain data."""

from __future__ import annotations

from dataclasses import dataclass

COMING = ("CREATING", "STARTING", "RESTARTING", "REIMAGING", "REPAIRING", "UNHIDING")
WAITING = ("CREATING", "ACCEPTED", "WAITING_FOR_RESOURCES", "PROVISIONING", "")
READY = ("READY", "")


@dataclass(frozen=True, slots=True)
class Host:
    """The report of a host about the worker's program."""

    running: int = 0  # attempt
    code: int | None = None  # exit code of the attempt that was asked for; None: it has not ended, or was not started
    lost: bool = False  # it has ended without an exit code
    frozen: bool = False
    moved: float = 0.0  # when it last made progress
    samples: int = 0
    shards: int = 0
    latest: int = 0  # the highest attempt that was ever started or stopped there
    error: str = ""  # why the program cannot run
    warning: str = ""  # what the program left out


@dataclass(frozen=True, slots=True)
class Found:
    """A TPU VM of a worker, or a request for one, that is not where its record says. It carries our labels."""

    zone: str
    name: str
    node: str | None = None
    node_id: str = ""
    queued: str | None = None
    queued_id: str = ""
    blocked: bool = False  # a request that can only fail: the TPU VM of another has the name

    @property
    def leaving(self) -> bool:
        return "DELETING" in (self.node, self.queued)


@dataclass(frozen=True, slots=True)
class Seen:
    """One worker, in the zone where its record says that it is, and beyond."""

    node: str | None = None  # state of the TPU VM of its name; None: there is none
    node_id: str = ""
    queued: str | None = None  # state of the request for it; None: there is none
    error: str = ""  # of a request that failed
    foreign: bool = False  # one of them is not ours
    host: Host | None = None  # None: it was not asked, or is not seen
    shards: int = 0  # of this worker, in the bucket
    quiet: float = 0.0  # seconds in which its host answered and reported no progress
    elsewhere: tuple[Found, ...] = ()  # all else that carries the labels of this worker
    queued_id: str = ""
    mixed: bool = False  # one of node and request is ours, and the other is not
    owner: str = ""  # of what is not ours, where its labels say so
    hidden: tuple[str, ...] = ()  # zones of this worker that cannot be listed now
    unseen: str = ""  # why the host of a READY TPU VM is not seen
    silent: bool = False  # it does not answer at all; one that refuses our key is not silent
    witness: bool = False  # another host of this zone answered in the same round
    beat: str = ""  # of the worker's claim in the bucket: another one whenever it is renewed
    proven: float = 0.0  # seconds in which it was silent, others of its zone answered, and the bucket showed no life


@dataclass(frozen=True, slots=True)
class Target:
    """What is to be deleted, if it is still what was seen."""

    zone: str
    name: str
    node_id: str = ""  # empty: there was no TPU VM
    queued_id: str = ""  # empty: there was no request, or it was not looked for


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
    """Return the state of its TPU VM as people read it."""
    state = seen.node if seen.node is not None else f"queued: {seen.queued}" if seen.queued is not None else "NOT_FOUND"
    return state or "UNKNOWN"
