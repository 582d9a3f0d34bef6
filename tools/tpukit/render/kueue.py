"""The values that the Kueue templates take: how much of what there is to hand out, and to whom."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tpukit.catalogue import Slice
from tpukit.errors import Invalid
from tpukit.render import hosts
from tpukit.render.pools import CPU_POOL, shape_labels

FILES = ("flavors", "cluster-queue", "teams", "priorities")
"""Templates, in the order in which a cluster takes what they make."""


@dataclass(frozen=True, slots=True)
class Flavor:
    """One kind of pool, and how much of it there is."""

    name: str
    labels: tuple[tuple[str, str], ...]
    chips: int
    cpus: int
    memory: str


@dataclass(frozen=True, slots=True)
class Priority:
    name: str
    value: int
    description: str


@dataclass(frozen=True, slots=True)
class Queues:
    name: str
    flavors: tuple[Flavor, ...]
    teams: tuple[str, ...]
    priorities: tuple[Priority, ...]


PRIORITIES = (
    Priority("low", -1000, "Runs when nobody else wants the slices, and gives them back."),
    Priority("medium", 0, "What a job has that names no priority."),
    Priority("high", 1000, "Goes first, and takes the slices of lower jobs. They resume later."),
)


def queues(quotas: Mapping[Slice, int], teams: Sequence[str], *, cpus: int, memory_gb: int) -> Queues:
    """One ClusterQueue over so many slices of each shape and so much of the CPU pool; a LocalQueue for each team."""
    absent = next((shape for shape in quotas if shape.machine_type is None), None)
    if absent:
        raise Invalid(f"GKE has no {absent.name}", hint="name a newer one, such as v4-8")
    pools: dict[tuple[str, str], list[tuple[Slice, int]]] = {}
    for shape, count in quotas.items():
        # Two machine types may have the same labels (2x4): then they are one flavor.
        pools.setdefault((shape.generation, shape.topology), []).append((shape, count))
    flavors = (_tpu_flavor(f"{generation}-{topology}", held) for (generation, topology), held in pools.items())
    cpu = Flavor("cpu", (CPU_POOL,), chips=0, cpus=cpus, memory=f"{memory_gb}G")
    return Queues("tpu", (*flavors, cpu), tuple(teams), PRIORITIES)


def _tpu_flavor(name: str, held: Sequence[tuple[Slice, int]]) -> Flavor:
    shape = held[0][0]
    machines = [(*hosts.machine(shape), count * shape.hosts) for shape, count in held]
    return Flavor(
        name,
        tuple(shape_labels(shape).items()),
        chips=sum(count * shape.chips for shape, count in held),
        cpus=sum(vcpus * number for vcpus, _, number in machines),
        memory=f"{sum(memory_gb * number for _, memory_gb, number in machines)}G",
    )
