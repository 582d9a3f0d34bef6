"""A cluster at one moment, in plain data: all input of `decide`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec

from tpukit.google.gke import NodePool, Operation
from tpukit.provisioner.needs import Need, Refusal

GONE = ("STOPPING",)
"""Statuses of a pool that is being deleted. It counts as absent, but its name is not free yet."""


class Tries(msgspec.Struct, frozen=True, omit_defaults=True):
    """Failed tries to create one pool: an annotation of the JobSet, written after each failure."""

    choice: int = 0  # the next one to try
    errors: int = 0  # in a row, other than stock-outs and quota
    rounds: int = 0  # how often all choices were tried
    at: float = 0.0  # time of the last failure
    not_before: float = 0.0
    kind: str = ""  # stock-out, quota, refused, error
    why: str = ""
    operation: str = ""  # the create that this counts
    created: float = 0.0  # of the pool that this counts, if there was one


msgspec.json.Decoder(Tries)
NEVER = Tries()
"""No tries, or none that failed."""


@dataclass(frozen=True, slots=True)
class JobSetState:
    uid: str
    state: str  # active, suspended, completed, failed
    since: float = 0.0  # of that state


@dataclass(frozen=True, slots=True)
class Observation:
    needs: tuple[Need, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    pools: Mapping[str, NodePool] = field(default_factory=dict)
    operations: tuple[Operation, ...] = ()
    jobsets: Mapping[tuple[str, str], JobSetState] = field(default_factory=dict)  # by namespace and name
    jobsets_known: bool = True  # whether a JobSet missing from `jobsets` is deleted
    hosts_ready: Mapping[str, int] = field(default_factory=dict)  # by pool
    hosts: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # by pool
    host_uids: Mapping[str, str] = field(default_factory=dict)  # by host
    cordoned: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # by pool: the hosts that we have cordoned
    seats: Mapping[str, str] = field(default_factory=dict)  # by pool: the pool made for the leader that is there
    foreign: Mapping[str, tuple[str, ...]] | None = None  # by pool: foreign pods there; None: not read
    missing: Mapping[str, float] = field(default_factory=dict)  # pools whose hosts are not all ready, and since when
    suspects: Mapping[str, float] = field(default_factory=dict)  # pools that are not needed, and since when
    idle: Mapping[str, float] = field(default_factory=dict)  # pools that were ready without their pod, and since when
    awaited: frozenset[str] = frozenset()  # pools that were not ready when last announced
    tries: Mapping[str, Tries] = field(default_factory=dict)  # by pool
