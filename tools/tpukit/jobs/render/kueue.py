"""Compute the values of the Kueue templates: quotas, and the teams that get them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tpukit.catalogue import Slice
from tpukit.core.errors import Invalid
from tpukit.core.quantities import quantity
from tpukit.jobs.render import machine_share
from tpukit.jobs.render.node_labels import CPU_POOL
from tpukit.jobs.render.pool_kinds import FLEX_START, PoolKind

FILES = ("flavors", "cluster-queue", "local_queue", "priorities")
"""Templates, in the order in which a cluster accepts their output."""
COMMON = "tpu"
"""Name of the ClusterQueue shared by teams without a quota, and of the cohort in which all teams lend to each other."""
CPU_FLAVOR = "cpu"
TOTAL = "tpukit.dev/total"
"""Annotation of the common queue: the total of everything, from which the quotas of teams are taken."""
GIVEN = "tpukit.dev/given"
"""Annotation of a team's queue: the slices that it was given and may borrow. It has less if less is available."""
TEAM = "tpukit.dev/team"
"""Label of everything that belongs to a team."""
MADE_WITH = "tpukit.dev/made-with"
"""Annotation of a team's namespace that was created with the cluster: `tpu team remove` leaves it."""
EGRESS = "tpukit.dev/egress"
"""Annotation of a team's namespace: the networks that its pods may reach, if not all."""
ACCESS = "tpukit.dev/access"
"""Label of a team's namespace: the access of its pods to their chips, if not `restricted`."""
ALLOW_ROOT = "tpukit.dev/allow-root"
MEMBER = "tpukit-member"
"""Name of the roles of a team's members, and of their bindings."""


@dataclass(frozen=True, slots=True)
class Flavor:
    """One kind of pool."""

    name: str
    labels: tuple[tuple[str, str], ...]
    taints: tuple[tuple[str, str], ...] = ()  # key and value; pods without a matching toleration get nothing of it


@dataclass(frozen=True, slots=True)
class Quota:
    """The amount of one flavor that a queue hands out."""

    flavor: str
    chips: int
    cpus: int
    memory_gb: int
    borrow: int | None = None  # chips that it may borrow; None: everything unused by others
    check: str = ""  # AdmissionCheck for its jobs; "": none

    @property
    def amounts(self) -> dict[str, str]:
        return {
            "google.com/tpu": quantity(self.chips),
            "cpu": quantity(self.cpus),
            "memory": quantity(self.memory_gb * 10**9),
        }


@dataclass(frozen=True, slots=True)
class ClusterQueue:
    name: str
    cohort: str
    quotas: tuple[Quota, ...]
    labels: tuple[tuple[str, str], ...] = ()
    annotations: tuple[tuple[str, str], ...] = ()

    @property
    def checks(self) -> dict[str, list[str]]:
        """Flavors by AdmissionCheck of their jobs."""
        found: dict[str, list[str]] = {}
        for quota in self.quotas:
            if quota.check:
                found.setdefault(quota.check, []).append(quota.flavor)
        return found


@dataclass(frozen=True, slots=True)
class Subject:
    """A subject to which roles are bound."""

    kind: str  # User, Group, ServiceAccount
    name: str
    namespace: str = ""  # of a ServiceAccount


@dataclass(frozen=True, slots=True)
class Team:
    name: str
    queue: str  # the ClusterQueue of its jobs
    made_with_cluster: bool
    account: str = ""  # Kubernetes service account of its pods; "": created elsewhere
    email: str = ""  # Google account that those act as
    members: tuple[Subject, ...] = ()
    allow_root: bool = False  # its programs may run as root
    egress: tuple[str, ...] = ()  # networks that its pods may reach; empty: all
    access: str = "restricted"  # access of its pods to their chips: restricted, tpu or privileged


@dataclass(frozen=True, slots=True)
class Priority:
    name: str
    value: int
    description: str


@dataclass(frozen=True, slots=True)
class Queues:
    flavors: tuple[Flavor, ...]
    common: ClusterQueue
    teams: tuple[Team, ...]
    priorities: tuple[Priority, ...]


PRIORITIES = (
    Priority("low", -1000, "Runs on slices that no other job requests, and releases them on demand."),
    Priority("medium", 0, "Priority of jobs that name none."),
    Priority("high", 1000, "Runs first, and preempts jobs of lower priority, which resume later."),
)


def queues(
    quotas: Mapping[PoolKind, int],
    teams: Sequence[str],
    *,
    cpus: int,
    memory_gb: int,
    queued: bool = False,
) -> Queues:
    """Return one ClusterQueue over the slices of each kind and the CPU pool, and a LocalQueue for each team.

    `queued`: flex-start slices come by queued provisioning, which Kueue requests before it lets a job start.
    """
    absent = next((kind.shape for kind in quotas if kind.shape.machine_type is None), None)
    if absent:
        raise Invalid(f"GKE has no {absent.name}", hint="use a newer type, such as v4-8")
    pools: dict[str, list[tuple[PoolKind, int]]] = {}
    for kind, count in quotas.items():
        pools.setdefault(kind.flavor, []).append((kind, count))
    flavors = [Flavor(name, tuple(of[0][0].labels.items()), of[0][0].taints) for name, of in pools.items()]
    total = [
        _quota(name, [(kind.shape, count) for kind, count in of], of[0][0].capacity if queued else "")
        for name, of in pools.items()
    ]
    total.append(Quota(CPU_FLAVOR, chips=0, cpus=cpus, memory_gb=memory_gb))
    return Queues(
        (*flavors, Flavor(CPU_FLAVOR, (CPU_POOL,))),
        common_queue(total, total),
        tuple(Team(name, COMMON, made_with_cluster=True) for name in teams),
        PRIORITIES,
    )


def remaining(total: Sequence[Quota], given: Sequence[Quota]) -> list[Quota]:
    """Return the rest of the total, zero for a flavor of which more was given than exists."""
    left = []
    for quota in total:
        gone = [one for one in given if one.flavor == quota.flavor]
        left.append(
            Quota(
                quota.flavor,
                max(0, quota.chips - sum(one.chips for one in gone)),
                max(0, quota.cpus - sum(one.cpus for one in gone)),
                max(0, quota.memory_gb - sum(one.memory_gb for one in gone)),
                check=quota.check,
            )
        )
    return left


def common_queue(quotas: Sequence[Quota], total: Sequence[Quota]) -> ClusterQueue:
    """Return the queue of teams without a quota, which has the rest of the total."""
    there = {quota.flavor: quota.amounts | ({"check": quota.check} if quota.check else {}) for quota in total}
    return ClusterQueue(COMMON, COMMON, tuple(quotas), annotations=((TOTAL, json.dumps(there)),))


def team_queue(
    team: str, quotas: Sequence[Quota], given: Mapping[str, int], borrow: Mapping[str, int] | None
) -> ClusterQueue:
    labels = ("app.kubernetes.io/managed-by", "tpukit"), (TEAM, team)
    noted = json.dumps({"quota": dict(given), "borrow": None if borrow is None else dict(borrow)})
    return ClusterQueue(team, COMMON, tuple(quotas), labels, ((GIVEN, noted),))


def _quota(name: str, held: Sequence[tuple[Slice, int]], capacity: str) -> Quota:
    machines = [(*machine_share.machine(shape), count * shape.hosts) for shape, count in held]
    return Quota(
        name,
        chips=sum(count * shape.chips for shape, count in held),
        cpus=sum(vcpus * number for vcpus, _, number in machines),
        memory_gb=sum(memory_gb * number for _, memory_gb, number in machines),
        check=FLEX_START if capacity == FLEX_START else "",
    )
