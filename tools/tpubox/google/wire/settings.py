"""Settings of an emulator, and its hooks."""

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
"""APIs enabled in a new project, including ones that are not emulated; the others are disabled.

https://cloud.google.com/service-usage/docs/enabled-service#default
"""
EVERY_API = ("*",)
OPERATION_SECONDS = 1.0
"""Default duration of operations: an immediate read returns the old state, as at Google, where they take minutes."""


@dataclass(frozen=True, slots=True)
class Settings:
    projects: tuple[str, ...] = ("tpu-project",)
    seconds: Mapping[str, float] = field(default_factory=dict)  # durations of operations by type; "" for all others
    seed: int = 0  # of the faults
    cluster_operations: int = 5  # GKE's limit of concurrent operations in a cluster
    kubernetes: str = ""  # address of the clusters' API server; without one their endpoints lead nowhere
    kubernetes_ca: str = "Li4u"  # its certificate authority, base64
    enabled: tuple[str, ...] = NEW_PROJECT  # initially enabled APIs, without .googleapis.com
    arrival_seconds: float = 5.0  # propagation delay of enabled APIs, new accounts and grants
    vm_views: bool = True  # hosts of TPU VMs have their own files, if the machine permits it
    default_network: bool = True
    """True to create the network `default` in projects.

    An organization's policy may skip it (constraints/compute.skipDefaultNetworkCreation).
    """
    own_cluster: str = "sandbox"  # cluster in logs of Pods on nodes that were not created by these APIs

    def duration(self, kind: str) -> float:
        return self.seconds.get(kind, self.seconds.get("", OPERATION_SECONDS))


def number_of(project: str) -> str:
    """Return the number of a project, derived from its name. Google's numbers are arbitrary."""
    return str(100_000_000_000 + zlib.crc32(project.encode()))


@dataclass(frozen=True, slots=True)
class Pool:
    """A node pool as the Kubernetes side needs it. Nodes of a multi-host slice come and go together."""

    project: str
    location: str
    cluster: str
    name: str
    machine_type: str
    slice: Slice | None  # None: nodes without TPUs; a single-host slice: one per node
    nodes: Mapping[str, str]  # zone by node name
    labels: Mapping[str, str]
    taints: tuple[Mapping[str, str], ...]
    capacity: str  # on-demand, spot, reservation, flex-start
    reservation: str
    max_pods: int
    keeps_budgets: bool = False  # respect PodDisruptionBudgets on deletion

    @property
    def cluster_name(self) -> str:
        return f"projects/{self.project}/locations/{self.location}/clusters/{self.cluster}"

    @property
    def full_name(self) -> str:
        return f"{self.cluster_name}/nodePools/{self.name}"


@dataclass(frozen=True, slots=True)
class Log:
    """A log file of one container run, at the first existing path, in the format of a container runtime.

    No two files of a run have lines with the same timestamp. A line is `2026-01-31T12:00:00.123456789Z stdout F text`;
    P in place of F means that it continues in the next one.
    """

    namespace: str
    pod: str
    container: str
    id: str  # unique id of this file
    labels: Mapping[str, str]  # of the pod
    node: str
    zone: str  # of the node
    paths: tuple[Path, ...]


@dataclass(frozen=True, slots=True)
class Hooks:
    """Callbacks to the side that runs nodes and hosts.

    `on_pool_created` and `on_pool_deleted` are called when nodes of a pool come and go, before the operation is done.
    Both may be repeated for the same pool: after a kill, and `on_pool_created` also for every existing pool when the
    emulator starts. If one raises, the operation ends with that error. `logs` returns the output of containers so far,
    including deleted Pods. `on_vm_changed` is called with the name of a TPU VM, or "" for all, when its hosts must
    follow its document, and returns when they do; `vm_has_hosts` returns True if any still runs. `not_running` returns
    the nodes of a pool, by its full name, whose machines do not run now, each with its Compute Engine status.
    """

    on_pool_created: Callable[[Pool], None] = lambda pool: None
    on_pool_deleted: Callable[[Pool], None] = lambda pool: None
    logs: Callable[[], Iterable[Log]] = tuple
    not_running: Callable[[str], Mapping[str, str]] = lambda name: {}
    on_vm_changed: Callable[[str], None] = lambda name: None
    vm_has_hosts: Callable[[str], bool] = lambda name: False
