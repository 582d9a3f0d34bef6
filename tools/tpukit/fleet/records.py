"""What is remembered of a fleet: what it is to do, and of each worker where it is and how often it was tried.

The records spare questions, no more: which TPU VM belongs to which worker is in its labels, what is to be done in the
bucket (plan.json), and what was done are the shards. A driver elsewhere makes new records from those.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from tpukit.store import Kind

FLEET, SLOT = "tpukit-fleet", "tpukit-fleet-worker"
"""Labels of TPU VMs."""


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
    zone: str = ""  # where it is, or is to be
    spot: bool = True
    wanted: str = "ready"  # ready: the TPU VM; work: that and its program; gone: nothing
    work: Work | None = None
    state: str = "active"  # active, done, failed, gone
    message: str = ""
    moving: bool = False  # what is left of it in its zone goes first
    move_after: float = 300.0  # seconds without hardware, where it may move
    since: float = 0.0  # waits for hardware, since when
    silent: float = 0.0  # its host does not answer, since when
    attempt: int = 0  # the second of its launch, so that a later one has a higher number whoever launches it
    ran: int = 0  # the attempt that its host said it runs
    failures: int = 0  # launches in a row that made no shard
    base: int = 0  # shards that it had made when it was launched
    tpu_state: str = ""  # as Google says
    samples: int = 0
    shards: int = 0

    @property
    def slot(self) -> str:
        """The same wherever it is, and however many workers there are: us-central1-a-0"""
        return f"{self.zones[0]}-{self.number}"

    @property
    def tpu(self) -> str:
        """tpu-us-central1-a-0; in another zone than its own tpu-us-central1-b-for-us-central1-a-0, which nobody else
        has."""
        return f"tpu-{self.slot}" if self.zone == self.zones[0] else f"tpu-{self.zone}-for-{self.slot}"

    @property
    def key(self) -> str:
        return f"{self.fleet}-{self.slot}"

    @property
    def labels(self) -> Mapping[str, str]:
        return {FLEET: self.fleet, SLOT: self.slot}


WORKERS: Kind[Worker] = Kind("fleet_workers", Worker, state="state", order="order")
ACTIVE = ("active",)
msgspec.json.Decoder(Worker)


def home_of(slot: str) -> tuple[str, int] | None:
    """Zone and number of a worker, as its label has them; None where that is no slot."""
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
) -> list[Worker]:
    """Workers of a fleet, zone by zone."""
    wanted = "work" if work else "ready"
    made: list[Worker] = []
    for index, zone in enumerate(zones):
        allowed = [zone, *zones[index + 1 :], *zones[:index]] if elsewhere else [zone]
        made += [
            Worker(fleet, allowed, number, tpu_type, now, zone, spot, wanted, work, move_after=move_after)
            for number in range(per_zone)
        ]
    return made
