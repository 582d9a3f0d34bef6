"""Catalogue of every TPU slice that Google rents, by name or by shape.

Loads one JSON file on first use and nothing else. Both spellings of a name mean one slice (v5litepod-16 and v5e-16,
tpu7x-128 and v7x-128), in any case. A name or shape that is not in the catalogue is refused with the nearest valid
ones, never rounded. Some tables elsewhere count chips where Google's names count TensorCores: their v4-4 is v4-8 here.

Eight chips of v5e or v6e (2x4) come as one host with 8 chips or as two hosts with 4, under one name. The default is the
single host, as in GKE's own autoscaler. Pass the machine type (ct5lp-hightpu-4t, ct6e-standard-4t) to get two.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from math import prod
from pathlib import Path

from tpukit.core.errors import Invalid

__all__ = ["Slice", "find", "find_shape", "generation", "matching", "nearest", "slices"]


@dataclass(frozen=True, slots=True)
class Slice:
    """A slice shape: interconnected chips and their hosts."""

    generation: str  # v2 v3 v4 v5e v5p v6e tpu7x
    name: str  # accelerator name: v4-32, v5litepod-16, tpu7x-128
    aliases: tuple[str, ...]  # other spellings: v5e-16, v7x-128
    topology: str  # chips along each axis: 2x2x4
    chips: int
    chips_per_host: int
    hosts: int
    machine_type: str | None  # None: not offered on GKE
    accelerator: str | None  # value of the GKE node label cloud.google.com/gke-tpu-accelerator
    placement: str | None  # how GKE keeps the hosts together: none, compact, policy
    cores_per_chip: int
    devices_per_chip: int  # as JAX counts them
    tflops_bf16: float  # per chip, peak
    hbm_gib: float  # per chip
    hbm_gbps: float  # per chip
    host_vcpus: int | None
    host_memory_gb: int | None
    zones: tuple[str, ...]  # zones known to have this slice: a hint, not a guarantee

    @property
    def devices_per_host(self) -> int:
        return self.chips_per_host * self.devices_per_chip

    @property
    def spellings(self) -> tuple[str, ...]:
        return (self.name, *self.aliases)


@cache
def slices() -> tuple[Slice, ...]:
    """Return all slices, by generation and size. Where one name has two, the default comes first."""
    document = json.loads(Path(__file__).with_name("tpus.json").read_bytes())
    figures = document["generations"]
    return tuple(
        Slice(**{**row, "aliases": tuple(row["aliases"]), "zones": tuple(row["zones"])}, **figures[row["generation"]])
        for row in document["slices"]
    )


def find(name: str, *, machine_type: str | None = None) -> Slice:
    """Return the slice with this name, in either spelling and any case."""
    found = _by_name().get(name.strip().lower())
    if not found:
        raise Invalid(f"there is no TPU named {_shown(name)}", hint=_name_hint(name))
    return _on(found, machine_type)


def generation(name: str) -> str | None:
    """Return the generation with this name, in any spelling (v5e, v5litepod); None if there is none."""
    return _generations().get(name.strip().lower())


def find_shape(generation: str, topology: str, *, machine_type: str | None = None) -> Slice:
    """Return the slice of this generation and topology."""
    proper = _generations().get(generation.strip().lower())
    if proper is None:
        known = list(dict.fromkeys(s.generation for s in slices()))
        raise Invalid(f"there is no TPU generation {_shown(generation)}", hint=f"write one of {', '.join(known)}")
    offered = [s for s in slices() if s.generation == proper]
    wanted = topology.strip().lower()
    found = [s for s in offered if s.topology == wanted]
    if not found:
        raise Invalid(f"there is no {proper} slice of {_shown(topology)}", hint=_shape_hint(wanted, offered))
    return _on(found, machine_type)


def matching(filter: str) -> list[Slice]:  # noqa: A002
    """Return the slices that have this text as a name, generation, topology, machine type or zone.

    If there are none, return the slices that contain it in one of these.
    """
    text = filter.strip().lower()
    facets = {s: _facets(s) for s in slices()}
    whole = [s for s, values in facets.items() if text in values]
    return whole or [s for s, values in facets.items() if any(text in value for value in values)]


def nearest(name: str) -> list[str]:
    """Return valid names near an invalid one: the sizes on either side of it, else names that look like it."""
    import difflib  # 3 ms that only a wrong name costs

    prefix, number = _split(name)
    alike = [prefix] if prefix in _prefixes() else difflib.get_close_matches(prefix, _prefixes())
    if alike and number is not None:
        return [f"{prefix}-{size}" for prefix in alike for size in _neighbours(number, _prefixes()[prefix])]
    if prefix in _prefixes():
        return [f"{prefix}-{size}" for size in sorted(_prefixes()[prefix])[:3]]
    return difflib.get_close_matches(_clean(name), _by_name())


@cache
def _by_name() -> Mapping[str, list[Slice]]:
    names: dict[str, list[Slice]] = {}
    for s in slices():
        for spelling in s.spellings:
            names.setdefault(spelling, []).append(s)
    return names


@cache
def _prefixes() -> Mapping[str, Mapping[int, Slice]]:
    """Map each prefix, in every spelling, to its slices by size."""
    prefixes: dict[str, dict[int, Slice]] = {}
    for name, (first, *_) in _by_name().items():
        prefix, _, size = name.rpartition("-")
        prefixes.setdefault(prefix, {})[int(size)] = first
    return prefixes


@cache
def _generations() -> Mapping[str, str]:
    """Map each spelling of a generation to the generation."""
    return {prefix: next(iter(sizes.values())).generation for prefix, sizes in _prefixes().items()}


def _facets(s: Slice) -> set[str]:
    prefixes = (spelling.rpartition("-")[0] for spelling in s.spellings)
    machine = (s.machine_type,) if s.machine_type else ()
    return {*s.spellings, s.generation, *prefixes, s.topology, *machine, *s.zones}


def _on(found: list[Slice], machine_type: str | None) -> Slice:
    if machine_type is None:
        return found[0]
    for s in found:
        if s.machine_type == machine_type.strip().lower():
            return s
    s = found[0]
    if s.machine_type is None:
        raise Invalid(f"{s.name} has no machine type: GKE does not offer it", hint="leave out machine_type")
    right = _either(s.machine_type for s in found if s.machine_type)
    raise Invalid(f"{s.name} has no hosts of type {_shown(machine_type)}", hint=f"write {right}, or leave it out")


def _neighbours(number: int, sizes: Iterable[int]) -> list[int]:
    below = max((size for size in sizes if size <= number), default=None)
    above = min((size for size in sizes if size >= number), default=None)
    return sorted({size for size in (below, above) if size is not None})


def _split(name: str) -> tuple[str, int | None]:
    """Return the part before the dash, and the number after it."""
    match = re.fullmatch(r"([a-z0-9]+)[-_ ]([0-9]{1,9})", _clean(name))
    return (match[1], int(match[2])) if match else (_clean(name), None)


def _clean(text: str) -> str:
    return text.strip().lower()[:64]


def _name_hint(name: str) -> str:
    near = nearest(name)
    prefix, number = _split(name)
    sizes = _prefixes().get(prefix, {})
    for size, s in sizes.items():
        if number == s.chips and number not in sizes:
            meant = f"write {prefix}-{size} for {number} chips, as these names count TensorCores"
            others = [other for other in near if other != f"{prefix}-{size}"]
            return f"{meant}; else {_either(others)}" if others else meant
    return f"write {_either(near)}; `tpu catalogue` lists them all" if near else "`tpu catalogue` lists them all"


def _shape_hint(wanted: str, offered: list[Slice]) -> str:
    generation = offered[0].generation
    example = next(s.topology for s in offered if s.hosts == 4)
    if not re.fullmatch(r"[0-9]{1,5}(x[0-9]{1,5}){0,2}", wanted):
        return f"a topology says how many chips lie along each axis: write {example}, for one"
    edges = _edges(wanted)
    axes = len(_edges(example))
    turned = [s.topology for s in offered if sorted(_edges(s.topology)) == sorted(edges)]
    if turned:
        return f"write {turned[0]}: the shortest axis comes first"
    by_size = sorted(dict.fromkeys((abs(s.chips - prod(edges)), s.topology, s.chips) for s in offered))
    near = _either(f"{topology} ({chips} chips)" for _, topology, chips in by_size[:2])
    what = f"{generation} has {axes} axes; " if len(edges) != axes else ""
    return f"{what}write {near}; `tpu catalogue {generation}` lists them all"


def _edges(topology: str) -> list[int]:
    return [int(edge) for edge in topology.split("x")]


def _either(words: Iterable[str]) -> str:
    *most, last = words
    return f"{', '.join(most)} or {last}" if most else last


def _shown(text: str) -> str:
    return repr(text if len(text) <= 40 else text[:40] + "…")
