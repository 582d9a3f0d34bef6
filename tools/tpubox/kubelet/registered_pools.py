"""Pools and their nodes, as GKE registers them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from tpubox.kubelet.times import stamp
from tpubox.pools.allocatable import allocatable as without_reserved
from tpubox.pools.gke_labels import pool_labels
from tpukit.catalogue import Slice, slices
from tpukit.core.errors import Invalid
from tpukit.jobs.render.node_labels import node_taints

_LARGE = (240, 1000)
"""vCPUs and GB of a TPU host without published figures: as large as any, so that pods fit."""
_SHARED = {"e2-micro": (2, 1), "e2-small": (2, 2), "e2-medium": (2, 4), "g1-small": (1, 2), "f1-micro": (1, 1)}
_GB_PER_CPU = {"standard": 4, "highmem": 8, "highcpu": 1}


@dataclass(frozen=True, slots=True)
class Pool:
    name: str
    machine_type: str
    nodes: Mapping[str, str]  # zone by name of the node
    topology: str = ""  # TPU pools only
    capacity: str = "on-demand"  # spot, flex-start, reservation
    reservation: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Mapping[str, str], ...] = ()  # as in Kubernetes: key, value, effect
    max_pods: int = 110
    project: str = "sandbox"
    cluster: str = ""  # full name of its GKE cluster; "": none

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[a-z]([a-z0-9-]{0,38}[a-z0-9])?", self.name):
            raise Invalid(f"{self.name!r} is not the name of a pool", hint="write up to 40 of a-z, 0-9 and -")
        if not self.nodes:
            raise Invalid(f"pool {self.name} has no nodes", hint="name at least one, with its zone")
        if self.topology and self.slice is None:
            raise Invalid(f"there is no TPU with topology {self.topology} on {self.machine_type}")
        if self.slice and self.slice.hosts > 1 and len(self.nodes) != self.slice.hosts:
            raise Invalid(
                f"{self.slice.name} on {self.machine_type} has {self.slice.hosts} hosts, not {len(self.nodes)}"
            )

    @property
    def key(self) -> str:
        """A unique key: two clusters may each have a pool of one name."""
        return f"{self.cluster}/nodePools/{self.name}" if self.cluster else self.name

    @property
    def slice(self) -> Slice | None:
        found = (s for s in slices() if s.machine_type == self.machine_type and s.topology == self.topology)
        return next(found, None)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_json(doc: Mapping[str, Any]) -> Pool:
        known = set(Pool.__dataclass_fields__)
        if unknown := set(doc) - known:
            raise Invalid(f"a pool has no {', '.join(sorted(unknown))}", hint=f"it has {', '.join(sorted(known))}")
        try:
            return Pool(**{**doc, "taints": tuple(doc.get("taints", ()))})
        except TypeError as error:
            raise Invalid(f"a pool needs name, machine_type and nodes: {error}") from error


def of_slice(
    name: str, shape: Slice, zone: str, *, capacity: str = "on-demand", labels: Mapping[str, str] | None = None
) -> Pool:
    """Return the pool for one slice of this shape, as our Terraform creates it; a spot pool is tainted."""
    if shape.machine_type is None:
        raise Invalid(f"GKE has no {shape.name}")
    nodes = {f"gke-sandbox-{name}-{index:04d}": zone for index in range(shape.hosts)}
    taints = tuple({"key": key, "value": value, "effect": "NoSchedule"} for key, value in node_taints(capacity))
    way, _, reservation = capacity.partition(":")
    return Pool(
        *(name, shape.machine_type, nodes, shape.topology, way, reservation), labels=labels or {}, taints=taints
    )


def labels(pool: Pool, node: str) -> dict[str, str]:
    """Return a node's labels; GKE's own take precedence over the pool's."""
    zone = pool.nodes[node]
    return {
        **pool.labels,
        "kubernetes.io/hostname": node,
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64",
        "topology.kubernetes.io/zone": zone,
        "topology.kubernetes.io/region": zone.rpartition("-")[0],
        "cloud.google.com/gke-os-distribution": "cos",
        "cloud.google.com/gke-max-pods-per-node": str(pool.max_pods),
        **pool_labels(pool.name, pool.machine_type, pool.slice, pool.capacity, pool.reservation),
    }


def capacity(pool: Pool) -> dict[str, str]:
    shape = pool.slice
    cpu, gigabytes = _machine(pool.machine_type, shape)
    chips = {"google.com/tpu": str(shape.chips_per_host)} if shape else {}
    return {
        "cpu": str(cpu),
        "memory": f"{gigabytes}G",
        "ephemeral-storage": "100Gi",
        "pods": str(pool.max_pods),
        **chips,
    }


def allocatable(pool: Pool) -> dict[str, str]:
    """Return the resources of a node that pods may use."""
    return without_reserved(capacity(pool), pool.machine_type)


def node_document(pool: Pool, node: str) -> dict[str, Any]:
    tpu_taint = [{"key": "google.com/tpu", "value": "present", "effect": "NoSchedule"}] if pool.slice else []
    taints = [*tpu_taint, *(dict(taint) for taint in pool.taints if taint not in tpu_taint)]
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": node, "labels": labels(pool, node)},
        "spec": {
            "providerID": f"gce://{pool.project}/{pool.nodes[node]}/{node}",
            **({"taints": taints} if taints else {}),
        },
    }


def node_status(pool: Pool, address: str, port: int, version: str, now: float, *, ready: bool = True) -> dict[str, Any]:
    """Return a node's status as a kubelet reports it, with only the address that the API server can reach."""
    at = stamp(now)
    why = ("KubeletReady", "kubelet is posting ready status") if ready else ("KubeletNotReady", "node is shutting down")
    return {
        "capacity": capacity(pool),
        "allocatable": allocatable(pool),
        "addresses": [{"type": "InternalIP", "address": address}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
        "declaredFeatures": ["ExtendWebSocketsToKubelet"],
        "nodeInfo": _info(version),
        "conditions": [
            {
                "type": "Ready",
                "status": str(ready),
                "reason": why[0],
                "message": why[1],
                "lastHeartbeatTime": at,
                "lastTransitionTime": at,
            }
        ],
    }


def _info(version: str) -> dict[str, str]:
    unknown = dict.fromkeys(("machineID", "systemUUID", "bootID", "kernelVersion", "kubeProxyVersion"), "")
    return {
        **unknown,
        "kubeletVersion": version,
        "osImage": "tpukit sandbox",
        "containerRuntimeVersion": "tpukit://processes",
        "operatingSystem": "linux",
        "architecture": "amd64",
    }


def _machine(machine_type: str, shape: Slice | None) -> tuple[int, int]:
    """Return vCPUs and GB."""
    if shape:
        known = shape.host_vcpus and shape.host_memory_gb
        return (shape.host_vcpus or 0, shape.host_memory_gb or 0) if known else _LARGE
    kind, _, size = machine_type.removesuffix("-lssd").rpartition("-")
    if machine_type in _SHARED:
        return _SHARED[machine_type]
    cpu = int(size) if size.isdigit() else 4
    return cpu, cpu * _GB_PER_CPU.get(kind.rpartition("-")[2], 4)
