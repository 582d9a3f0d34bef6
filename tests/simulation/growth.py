"""Memory of drivers: nothing may remain of ended jobs, and only a few attempts of each job."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tpukit.jobs.controller.driver import Driver

FEW = 4


def kept(driver: Driver, ended: Sequence[str]) -> list[str]:
    """Return the places where a driver still keeps data of ended jobs, after a round since their end."""
    leases = [name for name in driver.leases._held if name.partition("/")[2] in ended]
    kernel = driver.kernel
    found = [f"the lease {name}" for name in leases]
    for where, names in (
        ("held", kernel._held),
        ("retried", {*kernel._keys._known, *kernel._keys._revisions}),
        ("plans", kernel._use._observer.plans._read),  # type: ignore[attr-defined]
        ("hosts", {key[0] for key in kernel._use._observer._liveness._last}),  # type: ignore[attr-defined]
    ):
        found += [f"{name} among {where}" for name in names if name in ended]
    return found


def many(root: Any, hosts: Mapping[str, int]) -> list[str]:
    """Return the containers below `root` with more than a few entries of one of the jobs in `hosts`."""
    found = []
    for where, keys in _containers(root, "", set(), 8):
        if len(keys) > FEW:
            found += [where for job, count in hosts.items() if sum(job in key for key in keys) > max(FEW, 3 * count)]
    return found


def _containers(value: Any, where: str, seen: set[int], depth: int) -> Iterator[tuple[str, list[str]]]:
    if id(value) in seen or not depth:
        return
    seen.add(id(value))
    if isinstance(value, dict):
        yield where, [str(key) for key in value]
        inside = [(where, one) for one in value.values()]
    elif isinstance(value, (set, frozenset, list, tuple)):
        yield where, [one if isinstance(one, str) else "" for one in value]
        inside = [(where, one) for one in value]
    elif type(value).__module__.startswith("tpukit."):
        names = [*getattr(value, "__dict__", {}), *(n for kind in type(value).__mro__ for n in _slots(kind))]
        inside = [(f"{where}.{name}", getattr(value, name, None)) for name in names]
    else:
        return
    for name, one in inside:
        yield from _containers(one, name, seen, depth - 1)


def _slots(kind: type) -> tuple[str, ...]:
    slots = kind.__dict__.get("__slots__", ())
    return (slots,) if isinstance(slots, str) else tuple(slots)
