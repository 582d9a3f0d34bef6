"""What is known of a cluster at one moment, in plain data: all that `decide` goes by."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec

from tpukit.google.gke import NodePool, Operation
from tpukit.provisioner.needs import Need, Refusal

GONE = ("STOPPING",)
"""A pool that is being deleted counts as absent, and its name is not free yet."""


class Tries(msgspec.Struct, frozen=True, omit_defaults=True):
    """What came of trying to make one pool. It is an annotation of the JobSet, written when something went wrong."""

    choice: int = 0  # that is tried next
    errors: int = 0  # in a row, that were neither a stock-out nor a quota
    rounds: int = 0  # how often all choices were tried
    at: float = 0.0  # when it went wrong last
    not_before: float = 0.0
    kind: str = ""  # stock-out, quota, refused, error
    why: str = ""
    operation: str = ""  # the create that this counts
    created: float = 0.0  # of the pool that this counts, where there was one


msgspec.json.Decoder(Tries)
NEVER = Tries()
"""Nothing was tried, or all is well."""


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
    jobsets_known: bool = True  # whether one that is missing there is gone
    hosts_ready: Mapping[str, int] = field(default_factory=dict)  # by pool
    hosts: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # by pool
    host_uids: Mapping[str, str] = field(default_factory=dict)  # by host
    cordoned: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # by pool: those that we have cordoned
    seats: Mapping[str, str] = field(default_factory=dict)  # by pool: the pool that was made for whose leader is there
    foreign: Mapping[str, tuple[str, ...]] | None = None  # by pool: pods of others there; None: nobody asked
    missing: Mapping[str, float] = field(default_factory=dict)  # pools whose hosts are not all ready, and since when
    suspects: Mapping[str, float] = field(default_factory=dict)  # pools that nobody needed, and since when
    idle: Mapping[str, float] = field(default_factory=dict)  # pools that were ready without their pod, and since when
    awaited: frozenset[str] = frozenset()  # pools that were not ready when they were last told of
    tries: Mapping[str, Tries] = field(default_factory=dict)  # by pool
