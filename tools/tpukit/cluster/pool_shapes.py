"""Resolve what a cluster file says about its slices to one shape, or to the field that is wrong.

The rules are those of the Terraform modules, checked before any request to a cloud.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tpukit import catalogue
from tpukit.catalogue import Slice
from tpukit.core.errors import Invalid

FIELDS = ("tpu_type", "tpu_machine_type", "tpu_topology", "tpu_num_nodes")
_MACHINE = "ct4p-hightpu-4t"


class Wrong(Exception):
    """A field that does not fit the others."""

    def __init__(self, field: str, what: str, hint: str) -> None:
        super().__init__(field, what, hint)
        self.field, self.what, self.hint = field, what, hint


def says_nothing(values: Mapping[str, Any]) -> bool:
    return all(values.get(field) is None for field in FIELDS)


def resolve(values: Mapping[str, Any]) -> Slice:
    """Return the slice that these fields mean; the default is the guide's v4-16."""
    if says_nothing(values):
        return catalogue.find("v4-16")
    return _by_type(values) if values.get("tpu_type") is not None else _by_shape(values)


def _by_type(values: Mapping[str, Any]) -> Slice:
    try:
        shape = catalogue.find(values["tpu_type"])
    except Invalid as error:
        raise Wrong("tpu_type", error.problems[0].what, error.problems[0].hint) from None
    if shape.machine_type is None:
        raise Wrong("tpu_type", f"GKE has no {shape.name}: it exists as TPU VMs only", "write v4-8, or a newer one")
    right = (shape.machine_type, shape.topology, shape.hosts)
    for field, value in zip(FIELDS[1:], right, strict=True):
        if values.get(field) not in (None, value):
            raise Wrong(field, f"{shape.name} has {value}", "leave it out: it follows from tpu_type")
    return shape


def _by_shape(values: Mapping[str, Any]) -> Slice:
    machine = values.get("tpu_machine_type") or _MACHINE
    topology, nodes = values.get("tpu_topology"), values.get("tpu_num_nodes")
    offered = [shape for shape in catalogue.slices() if shape.machine_type == machine]
    if not offered:
        known = dict.fromkeys(shape.machine_type for shape in catalogue.slices() if shape.machine_type)
        raise Wrong("tpu_machine_type", f"there is no TPU machine type {machine!r}", f"write one of {', '.join(known)}")
    if topology is None:
        alone = next((shape for shape in offered if shape.hosts == 1), None)
        if alone and nodes == 1:
            return alone
        raise Wrong("tpu_machine_type", f"{machine} alone is no slice", "write tpu_type instead, such as v4-32")
    shape = next((shape for shape in offered if shape.topology == topology), None)
    if shape is None:
        near = [shape.topology for shape in offered if shape.hosts > 1][:6]
        hint = f"write one of {', '.join(near)}" if near else "leave it out, and write tpu_num_nodes: 1"
        raise Wrong("tpu_topology", f"{machine} has no topology {topology!r}", hint)
    if shape.hosts == 1:
        hint = f"leave it out and write tpu_num_nodes: 1, or only tpu_type: {shape.name}"
        raise Wrong("tpu_topology", "a slice of one host takes no topology on GKE", hint)
    if nodes not in (None, shape.hosts):
        raise Wrong("tpu_num_nodes", f"{topology} of {machine} has {shape.hosts} hosts", f"write {shape.hosts}")
    return shape
