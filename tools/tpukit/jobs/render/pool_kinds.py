"""Kinds of pools: slices of one shape and provisioning, as queue flavors and as users write them.

`v4-16` names the shape; `v4-16:spot`, `v4-16:flex-start`, `v4-16:on-demand` and `v4-16:reservation:NAME` add the
provisioning.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from tpukit import catalogue
from tpukit.catalogue import Slice
from tpukit.core.errors import Invalid, Problem
from tpukit.jobs.render.node_labels import RESERVED, Capacity, capacity_of, capacity_word, node_labels, node_taints
from tpukit.jobs.spec.fields import RESERVATION
from tpukit.jobs.spec.forms import Violation

ON_DEMAND = "on-demand"
FLEX_START = "flex-start"
"""Name also of the AdmissionCheck for queued provisioning."""
WAYS = (ON_DEMAND, "spot", FLEX_START, "reservation")


@dataclass(frozen=True, slots=True)
class PoolKind:
    shape: Slice
    capacity: str = ON_DEMAND  # or spot, flex-start, reservation:NAME

    @property
    def flavor(self) -> str:
        """Name of the flavor. Two machine types with the same labels (2x4) are one flavor."""
        shape = f"{self.shape.generation}-{self.shape.topology}"
        if self.capacity == ON_DEMAND:
            return shape
        *project, name = self.capacity.removeprefix(f"{RESERVED}projects/").split("/reservations/")
        if not project:
            return f"{shape}-{self.capacity.replace(':', '-')}"
        # Names of reservations have no dots, and in a project example.com:mine the part after the last dot is `mine`.
        return f"{shape}-reservation-{name}.{project[0].replace(':', '.')}"

    @property
    def labels(self) -> dict[str, str]:
        """Labels that its nodes share."""
        return node_labels(self.shape, self.capacity)

    @property
    def taints(self) -> tuple[tuple[str, str], ...]:
        return node_taints(self.capacity)

    @property
    def written(self) -> str:
        """Full spelling, as options take it."""
        return f"{min(self.shape.spellings, key=len)}:{self.capacity}"

    def __str__(self) -> str:
        return self.written.removesuffix(f":{ON_DEMAND}")


def of_job(shape: Slice, capacity: Capacity) -> PoolKind:
    return PoolKind(shape, capacity_word(capacity))


@cache
def of_flavor(flavor: str) -> PoolKind | None:
    """Return the kind of one of our flavors; None for the CPU pool's and for foreign flavors."""
    generation, _, rest = flavor.partition("-")
    topology, _, way = rest.partition("-")
    shape = next((one for one in catalogue.slices() if (one.generation, one.topology) == (generation, topology)), None)
    if shape is None or way == ON_DEMAND:
        return None
    if name := way.removeprefix("reservation-") if way.startswith("reservation-") else "":
        name, _, project = name.partition(".")
        owner, dot, own = project.rpartition(".")
        project = f"{owner}:{own}" if dot else project
        way = f"{RESERVED}projects/{project}/reservations/{name}" if project else f"{RESERVED}{name}"
    kind = PoolKind(shape, way or ON_DEMAND)
    return kind if (way in ("", "spot", "flex-start") or name) and kind.flavor == flavor else None


def of_selector(selector: Mapping[str, str]) -> PoolKind | None:
    """Return the kind that a pod selector requests."""
    wanted = selector.get("cloud.google.com/gke-tpu-accelerator"), selector.get("cloud.google.com/gke-tpu-topology")
    shape = next((one for one in catalogue.slices() if (one.accelerator, one.topology) == wanted), None)
    return PoolKind(shape, capacity_of(selector)) if shape else None


def parse(text: str, option: str) -> tuple[Slice, str]:
    """Split `v4-16:spot` into shape and provisioning.

    The provisioning is "" if none is named, and `reservation` if no name follows.
    """
    tpu, colon, way = text.partition(":")
    try:
        shape = catalogue.find(tpu)
    except Invalid as error:
        raise Invalid([Problem(option, one.what, one.hint) for one in error.problems]) from error
    if way.startswith(RESERVED):
        wrong: list[Violation] = []
        RESERVATION.check(way.removeprefix(RESERVED), (option,), wrong)
        if wrong:
            raise Invalid([Problem(option, what, hint) for _, what, hint in wrong])
    elif colon and way not in WAYS:
        hint = f"write {tpu}:spot, {tpu}:flex-start, {tpu}:reservation:NAME, or {tpu} alone"
        raise Invalid(Problem(option, f"there is no capacity {way!r}", hint))
    return shape, way
