"""Boot disks of the nodes, by the rules of the Terraform modules."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass

from tpukit.cluster.spec import ClusterSpec

HYPERDISK_GENERATIONS = ("v6e", "tpu7x")
HYPERDISK_FAMILIES = ("c4", "c4a", "c4d", "n4", "n4a", "n4d")
"""These boot from nothing else. The modules tpu_pools and cpu_pool have the same lists; a test compares them."""


@dataclass(frozen=True, slots=True)
class Disk:
    type: str
    gb: int


def of_cpu_nodes(spec: ClusterSpec) -> Disk:
    only = spec.cpu_pool_machine_type.partition("-")[0] in HYPERDISK_FAMILIES
    return Disk(spec.cpu_pool_disk_type or ("hyperdisk-balanced" if only else "pd-standard"), spec.cpu_pool_disk_size)


def of_hosts(spec: ClusterSpec, pools: Collection[str] | None = None) -> Counter[Disk]:
    """Return the number of each disk of the hosts of the given pools, or of all."""
    found: Counter[Disk] = Counter()
    for name, shape in spec.shapes.items():
        if pools is None or name in pools:
            only = shape.generation in HYPERDISK_GENERATIONS
            found[Disk("hyperdisk-balanced" if only else "pd-balanced", spec.tpu_disk_size)] += shape.hosts
    return found
