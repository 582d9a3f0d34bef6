"""Records of a fleet: its task, and for each worker its location and number of launches.

The labels of the TPU VMs say which worker and which owner each belongs to; the task is in the bucket (plan.json), and
the completed work is in the shards. A driver elsewhere makes new records from those.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import msgspec

from tpukit.goodput.zone_odds import Odds
from tpukit.kernel.store import Kind

FLEET, SLOT, OWNER, STORE = "tpukit-fleet", "tpukit-fleet-worker", "tpukit-fleet-owner", "tpukit-fleet-store"
"""Labels of TPU VMs."""
LONGEST_NAME = 63
UNLABELLED = "/"
"""Mark of TPU VMs that an earlier version made, without the labels of owner and store."""


class Work(msgspec.Struct, frozen=True):
    """The task of all workers."""

    data: str  # gs:// folder of the streams
    output: str
    program: str
    options: dict[str, str] = {}
    shard_samples: int = 1000
    patience: float = 1800.0  # seconds that a worker may be without progress
    claim_seconds: float = 60.0
    code: str = ""  # digest of the archive that hosts get
    archive: str = ""  # address of the archive: gs:// or a file
    requirements: str = ""  # file in that folder


class Worker(msgspec.Struct, frozen=True):
    """One place in a fleet, which has one TPU VM at a time."""

    fleet: str
    zones: list[str]  # allowed zones, its own first
    number: int  # in its own zone
    tpu_type: str
    order: float
    zone: str = ""  # current zone, or zone of the next request
    spot: bool = True
    wanted: str = "ready"  # ready: the TPU VM; work: that and its program; gone: nothing
    work: Work | None = None
    state: str = "active"  # active, done, failed, gone
    message: str = ""
    moving: bool = False  # remaining objects in its zone are deleted first
    move_after: float = 300.0  # seconds without hardware before it may move
    since: float = 0.0  # since when it waits for hardware
    silent: float = 0.0  # since when its host does not respond
    attempt: int = 0  # the launch whose end is awaited; 0: none
    ran: int = 0  # the attempt that its host reported as running
    failures: int = 0  # consecutive launches that made no shard
    base: int = 0  # shards that it had made at launch
    tpu_state: str = ""  # as reported by Google
    samples: int = 0
    shards: int = 0
    owner: str = ""  # owner of the fleet, as on the label; empty in records of earlier versions
    store: str = ""  # label of the store that has this record
    adopted: list[str] = []  # marks of other owners and stores whose TPU VMs of this fleet were adopted
    distinct: bool = False  # its TPU VM's name includes the fleet, because the short name belongs to another
    used: list[str] = []  # zones in which it was ever requested: a late request may still appear there
    asked: float = 0.0  # time of the last request
    launched: int = 0  # the highest number of its launches
    unattended: float = 0.0  # seconds without a driver after which its TPU VM ends itself; 0: never
    held: float = 0.0  # since when its TPU VM is READY; 0: it is not, or this is not known
    odds: dict[str, Odds] = {}  # what this worker learnt of zones, kept also when it is gone

    @property
    def slot(self) -> str:
        """The worker's identity, such as us-central1-a-0, independent of its zone and of the number of workers."""
        return f"{self.zones[0]}-{self.number}"

    @property
    def alias(self) -> str:
        """The name under which the worker makes shards.

        It is tpu-us-central1-a-0, or tpu-us-central1-b-for-us-central1-a-0 in another zone than its own.
        """
        return f"tpu-{self.slot}" if self.zone == self.zones[0] else f"tpu-{self.zone}-for-{self.slot}"

    @property
    def tpu(self) -> str:
        """The name of its TPU VM: the alias, including the name of the fleet if the alias is taken."""
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
        """Return whether an object with these labels is this worker's, and not that of another owner or store."""
        if labels.get(FLEET) != self.fleet or labels.get(SLOT) != self.slot:
            return False
        return mark_of(labels) in (self.mark, *self.adopted)

    @property
    def everywhere(self) -> list[str]:
        """All zones in which objects of the worker may exist."""
        return list(dict.fromkeys((*self.zones, self.zone, *self.used)))


def mark_of(labels: Mapping[str, str]) -> str:
    """Return OWNER/STORE."""
    return f"{labels.get(OWNER, '')}/{labels.get(STORE, '')}"


ACTIVE = ("active",)
STATES = (*ACTIVE, "done", "failed", "gone")
WORKERS: Kind[Worker] = Kind("fleet_workers", Worker, state="state", order="order", known=STATES)
msgspec.json.Decoder(Worker)


def home_of(slot: str) -> tuple[str, int] | None:
    """Return zone and number of a worker from its label; None if the text is not a slot."""
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
