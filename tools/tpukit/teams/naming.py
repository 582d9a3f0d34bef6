"""Readable amounts of a flavor: `2 × v4-16:spot` rather than 16 chips of v4-2x2x2-spot."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal

from tpukit.catalogue import Slice
from tpukit.jobs.render import pool_kinds
from tpukit.teams import shares
from tpukit.teams.workloads import CHIPS, Doc, asks

_UNITS = {CHIPS: "chips", "cpu": "CPUs", "memory": "GB of memory"}


def shape(flavor: str) -> Slice | None:
    """Return the slice of one of our TPU flavors, or None."""
    kind = pool_kinds.of_flavor(flavor)
    return kind.shape if kind else None


def same_shape(one: Slice, other: Slice) -> bool:
    """Return whether two slices look alike on nodes: two machine types of a topology do."""
    return (one.generation, one.topology) == (other.generation, other.topology)


def flavor_name(flavor: str) -> str:
    """Return `v4-16` or `v4-16:spot` for our flavors; a foreign flavor keeps its name."""
    return str(pool_kinds.of_flavor(flavor) or flavor)


def amount(number: Decimal, key: shares.Key) -> str:
    """Return `2 × v4-16`, `12 chips of mine`, or `3 CPUs of cpu`."""
    return f"{number_of(number, key)} {'×' if _slices(number, key) else 'of'} {flavor_name(key[0])}"


def number_of(number: Decimal, key: shares.Key) -> str:
    """Return an amount without its flavor: a number of slices if they are whole."""
    if whole := _slices(number, key):
        return f"{number // whole.chips}"
    return f"{number / 10**9 if key[1] == 'memory' else number:.10g} {_UNITS.get(key[1], key[1])}"


def nodes(selector: Mapping[str, str]) -> str:
    """Return, in words, the quota that pods with this selector need."""
    if kind := pool_kinds.of_selector(selector):
        return str(kind)
    labels = ", ".join(f"{key}={value}" for key, value in selector.items())
    return f"quota of nodes with {labels}" if labels else "quota that its pods fit"


def slices_of(workload: Doc) -> str:
    """Return the slices that a job asks for, as its user wrote them: `2 × v4-16`."""
    found = []
    for ask in asks(workload):
        if not (chips := ask.requests.get(CHIPS)):
            continue
        kind = pool_kinds.of_selector(ask.selector)
        if not kind or chips % kind.shape.chips:
            found.append(f"{chips:.10g} chips")
        else:
            found.append(str(kind) if chips == kind.shape.chips else f"{chips // kind.shape.chips} × {kind}")
    return ", ".join(found) or "-"


def _slices(number: Decimal, key: shares.Key) -> Slice | None:
    found = shape(key[0]) if key[1] == CHIPS else None
    return found if found and number % found.chips == 0 else None
