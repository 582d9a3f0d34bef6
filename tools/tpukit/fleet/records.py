"""Records of a fleet: what it is to do, and of each worker where it is and how often it was launched.

Which TPU VM belongs to which worker, and to whom the fleet belongs, is in the labels of the TPU VMs; what is to be done
is in the bucket (plan.json), and what was done are the shards. A driver elsewhere makes new records from those.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import msgspec

from tpukit.kernel.store import Kind

FLEET, SLOT, OWNER, STORE = "tpukit-fleet", "tpukit-fleet-worker", "tpukit-fleet-owner", "tpukit-fleet-store"
"""Labels of TPU VMs."""
LONGEST_NAME = 63
UNLABELLED = "/"
"""The mark of TPU VMs that an earlier version made, without the labels of owner and store."""


class Work(msgspec.Struct, frozen=True):
    """What all workers do."""

    data: str  # gs:// folder of the streams
    output: str
    program: str
    options: dict[str, str] = {}
    shard_samples: int = 1000
    patience: float = 1800.0  # seconds that a worker may not move
    claim_seconds: float = 60.0
    code: str = ""  # digest of the archive that hosts get
    archive: str = ""  # where that is: gs:// or a file
    requirements: str = ""  # file in that folder


class Worker(msgspec.Struct, frozen=True):
    """One place in a fleet, which has one TPU VM at a time."""

    fleet: str
    zones: list[str]  # where it may be, its own first
    number: int  # in its own zone
    tpu_type: str
    order: float
    zone: str = ""  # where it is, or will be requested
    spot: bool = True
    wanted: str = "ready"  # ready: the TPU VM; work: that and its program; gone: nothing
    work: Work | None = None
    state: str = "active"  # active, done, failed, gone
    message: str = ""
    moving: bool = False  # what is left of it in its zone is deleted first
    move_after: float = 300.0  # seconds without hardware, where it may move
    since: float = 0.0  # waits for hardware, since when
    silent: float = 0.0  # its host does not answer, since when
    attempt: int = 0  # the launch whose end is awaited; 0: none
    ran: int = 0  # the attempt that its host reported as running
    failures: int = 0  # launches in a row that made no shard
    base: int = 0  # shards that it had made when it was launched
    tpu_state: str = ""  # as Google says
    samples: int = 0
    shards: int = 0
    owner: str = ""  # whose fleet it is, as the label has it; empty in records of earlier versions
    store: str = ""  # label of the store that has this record
    adopted: list[str] = []  # marks of other owners and stores whose TPU VMs of this fleet were taken over
    distinct: bool = False  # the name of its TPU VM carries the fleet's: the short one belongs to another
    used: list[str] = []  # zones in which it was ever requested: a late request may still appear there
    asked: float = 0.0  # when it was last requested
    launched: int = 0  # the highest number that any of its launches had
    unattended: float = 0.0  # seconds without a driver after which its TPU VM ends by itself; 0: never

    @property
    def slot(self) -> str:
        """The same wherever it is, and however many workers there are: us-central1-a-0"""
        return f"{self.zones[0]}-{self.number}"

    @property
    def alias(self) -> str:
        """Return the name under which it makes shards: tpu-us-central1-a-0, and in another zone than its own
        tpu-us-central1-b-for-us-central1-a-0."""
        return f"tpu-{self.slot}" if self.zone == self.zones[0] else f"tpu-{self.zone}-for-{self.slot}"

    @property
    def tpu(self) -> str:
        """Return the name of its TPU VM: the alias, with the name of the fleet where another one has that."""
        if not self.distinct:
            return self.alias
        name = f"tpu-{self.fleet}-{self.alias.removeprefix('tpu-')}"
        if len(name) <= LONGEST_NAME:
            return name
        return f"tpu-{hashlib.sha256(name.encode()).hexdigest()[:24]}"

    @property
    def key(self) -> str:
        return f"{self.fleet}-{self.slot}"

    @property
    def labels(self) -> Mapping[str, str]:
        own = {OWNER: self.owner, STORE: self.store} if self.owner else {}
        return {FLEET: self.fleet, SLOT: self.slot, **own}

    @property
    def mark(self) -> str:
        return f"{self.owner}/{self.store}"

    def owns(self, labels: Mapping[str, str]) -> bool:
        """Return whether something with these labels is this worker's, and not that of another owner or store."""
        if labels.get(FLEET) != self.fleet or labels.get(SLOT) != self.slot:
            return False
        return mark_of(labels) in (self.mark, *self.adopted)

    @property
    def everywhere(self) -> list[str]:
        """Return all zones in which something of it may be."""
        return list(dict.fromkeys((*self.zones, self.zone, *self.used)))


def mark_of(labels: Mapping[str, str]) -> str:
    """Return OWNER/STORE."""
    return f"{labels.get(OWNER, '')}/{labels.get(STORE, '')}"


ACTIVE = ("active",)
STATES = (*ACTIVE, "done", "failed", "gone")
WORKERS: Kind[Worker] = Kind("fleet_workers", Worker, state="state", order="order", known=STATES)
msgspec.json.Decoder(Worker)


def home_of(slot: str) -> tuple[str, int] | None:
    """Return zone and number of a worker, as its label has them; None where the text is not a slot."""
    zone, _, number = slot.rpartition("-")
    return (zone, int(number)) if zone and number.isdigit() else None


def plan(
    fleet: str,
    zones: list[str],
    per_zone: int,
    tpu_type: str,
    now: float,
    *,
    spot: bool = True,
    elsewhere: bool = True,
    move_after: float = 300.0,
    work: Work | None = None,
    owner: str = "",
    store: str = "",
    unattended: float = 0.0,
) -> list[Worker]:
    """Return the workers of a fleet, zone by zone."""
    wanted = "work" if work else "ready"
    made: list[Worker] = []
    for index, zone in enumerate(zones):
        allowed = [zone, *zones[index + 1 :], *zones[:index]] if elsewhere else [zone]
        made += [
            Worker(
                *(fleet, allowed, number, tpu_type, now, zone, spot, wanted, work),
                move_after=move_after,
                owner=owner,
                store=store,
                unattended=unattended,
            )
            for number in range(per_zone)
        ]
    return made
