"""Amounts of a flavor, as people say them: `2 × v4-16` rather than 16 chips of v4-2x2x2."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from functools import cache

from tpukit import catalogue
from tpukit.catalogue import Slice
from tpukit.teams import shares
from tpukit.teams.workloads import CHIPS, Doc, asks

_UNITS = {CHIPS: "chips", "cpu": "CPUs", "memory": "GB of memory"}


@cache
def shape(flavor: str) -> Slice | None:
    """The slice that a TPU flavor of ours stands for."""
    return next((one for one in catalogue.slices() if f"{one.generation}-{one.topology}" == flavor), None)


def name(of: Slice) -> str:
    return min(of.spellings, key=len)


def flavor_name(flavor: str) -> str:
    """`v4-16` for ours; a flavor of others is called what it is called."""
    return name(found) if (found := shape(flavor)) else flavor


def amount(number: Decimal, key: shares.Key) -> str:
    """`2 × v4-16`, `12 chips of mine`, `3 CPUs of cpu`."""
    return f"{number_of(number, key)} {'×' if _slices(number, key) else 'of'} {flavor_name(key[0])}"


def number_of(number: Decimal, key: shares.Key) -> str:
    """The same without saying of what: slices where it is whole slices."""
    if whole := _slices(number, key):
        return f"{number // whole.chips}"
    return f"{number / 10**9 if key[1] == 'memory' else number:.10g} {_UNITS.get(key[1], key[1])}"


def nodes(selector: Mapping[str, str]) -> str:
    """What pods with this selector want."""
    if found := _selected(selector):
        return name(found)
    labels = ", ".join(f"{key}={value}" for key, value in selector.items())
    return f"quota of nodes with {labels}" if labels else "quota that its pods fit"


def slices_of(workload: Doc) -> str:
    """`2 × v4-16`: the slices that a job asks for, as its user wrote it."""
    found = []
    for ask in asks(workload):
        if not (chips := ask.requests.get(CHIPS)):
            continue
        shape = _selected(ask.selector)
        if not shape or chips % shape.chips:
            found.append(f"{chips:.10g} chips")
        else:
            found.append(name(shape) if chips == shape.chips else f"{chips // shape.chips} × {name(shape)}")
    return ", ".join(found) or "-"


def _slices(number: Decimal, key: shares.Key) -> Slice | None:
    found = shape(key[0]) if key[1] == CHIPS else None
    return found if found and number % found.chips == 0 else None


def _selected(selector: Mapping[str, str]) -> Slice | None:
    wanted = selector.get("cloud.google.com/gke-tpu-accelerator"), selector.get("cloud.google.com/gke-tpu-topology")
    return next((one for one in catalogue.slices() if (one.accelerator, one.topology) == wanted), None)
