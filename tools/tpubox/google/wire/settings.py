"""What an emulator is told when it starts."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tpukit.catalogue import Slice

NEW_PROJECT = (
    *("analyticshub", "apptopology", "bigquery", "bigqueryconnection", "bigquerydatapolicy", "bigquerydatatransfer"),
    *("bigquerymigration", "bigqueryreservation", "bigquerystorage", "cloudapis", "cloudtrace", "dataform", "dataplex"),
    *("datastore", "logging", "monitoring", "servicemanagement", "serviceusage", "sql-component", "storage"),
    *("storage-api", "storage-component"),
)
"""APIs that are on in a project that somebody has just made, whether they are known here or not; the others are off.
https://cloud.google.com/service-usage/docs/enabled-service#default"""
EVERY_API = ("*",)
OPERATION_SECONDS = 1.0
"""That operations take where nobody says: whoever reads at once reads what was before, as at Google, where they take
minutes."""


@dataclass(frozen=True, slots=True)
class Settings:
    projects: tuple[str, ...] = ("tpu-project",)
    seconds: Mapping[str, float] = field(default_factory=dict)  # that operations take, by type; "" is for all others
    seed: int = 0  # of the faults
    cluster_operations: int = 5  # that GKE lets run at once in one cluster
    kubernetes: str = ""  # address of the API server that clusters have; without one their endpoints lead nowhere
    kubernetes_ca: str = "Li4u"  # its certificate authority, base64
    enabled: tuple[str, ...] = NEW_PROJECT  # APIs that are on from the beginning, without .googleapis.com
    arrival_seconds: float = 5.0  # until what was enabled, made or granted is known everywhere at Google
    vm_views: bool = True  # hosts of TPU VMs have files of their own, where the machine lets them
    default_network: bool = True
    """Projects begin with the network `default`, unless their organization's policy skips it
    (constraints/compute.skipDefaultNetworkCreation)."""
    own_cluster: str = "sandbox"  # what logs say of pods on nodes that no cluster of these APIs made

    def duration(self, kind: str) -> float:
        return self.seconds.get(kind, self.seconds.get("", OPERATION_SECONDS))


def number_of(project: str) -> str:
    """The number of a project. Google makes them up; ours follow from the name."""
    return str(100_000_000_000 + zlib.crc32(project.encode()))


@dataclass(frozen=True, slots=True)
class Pool:
    """A node pool as the Kubernetes side needs it. Nodes of a slice of several hosts come and go together."""

    project: str
    location: str
    cluster: str
    name: str
    machine_type: str
    slice: Slice | None  # None: nodes without TPUs; a slice of one host: each node is one
    nodes: Mapping[str, str]  # zone by name of the node
    labels: Mapping[str, str]
    taints: tuple[Mapping[str, str], ...]
    capacity: str  # on-demand, spot, reservation, flex-start
    reservation: str
    max_pods: int
    keeps_budgets: bool = False  # PodDisruptionBudgets, when it is deleted

    @property
    def cluster_name(self) -> str:
        return f"projects/{self.project}/locations/{self.location}/clusters/{self.cluster}"

    @property
    def full_name(self) -> str:
        return f"{self.cluster_name}/nodePools/{self.name}"


@dataclass(frozen=True, slots=True)
class Log:
    """A file of what one run of a container printed, at the first path that is there: lines as a container runtime
    writes them. No two files of a run have lines of one moment.

    A line is `2026-01-31T12:00:00.123456789Z stdout F text`; P in place of F says that it goes on in the next one.
    """

    namespace: str
    pod: str
    container: str
    id: str  # of this file, unlike that of any other
    labels: Mapping[str, str]  # of the pod
    node: str
    zone: str  # of the node
    paths: tuple[Path, ...]


@dataclass(frozen=True, slots=True)
class Hooks:
    """Called when the nodes of a pool come and when they go, each before the operation that does it is done.

    Both may be called again for the same pool: after a kill, and `on_pool_created` also for every pool that is there
    when the emulator starts. One that raises makes the operation end with that error. `logs` gives what containers
    have printed so far, of pods that are gone too. `on_vm_changed` is called with the name of a TPU VM, or "" for all,
    when its hosts are to follow its document, and returns when they do; `vm_has_hosts` says whether any still runs.
    `not_running` gives the nodes of a pool, by its full name, whose machines do not run now, each with its status in
    the words of Compute Engine.
    """

    on_pool_created: Callable[[Pool], None] = lambda pool: None
    on_pool_deleted: Callable[[Pool], None] = lambda pool: None
    logs: Callable[[], Iterable[Log]] = tuple
    not_running: Callable[[str], Mapping[str, str]] = lambda name: {}
    on_vm_changed: Callable[[str], None] = lambda name: None
    vm_has_hosts: Callable[[str], bool] = lambda name: False
