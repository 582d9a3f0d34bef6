"""Largest intermediate results of a function, each with its line in the program: the likely use of memory."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from tpukit.fit.worker import work
from tpukit.fit.worker.arrays import size

KEPT = 8


def of(jaxpr: Any, roots: tuple[str, ...], devices: int) -> list[dict[str, Any]]:
    """Return the largest results. `bytes` is the share of one chip if the array is spread evenly over all of them."""
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for aval, eqn, local in _results(work.opened(jaxpr), 1.0, devices):
        line = work.line(eqn, roots)
        shape = f"{aval.dtype}[{','.join(map(str, aval.shape))}]"
        one = {
            "what": shape,
            "line": line,
            "operation": eqn.primitive.name,
            "bytes": size(aval) / local,
            "count": 1,
        }
        if (line, shape) in found:
            found[line, shape]["count"] += 1
        else:
            found[line, shape] = one
    return sorted(found.values(), key=lambda one: -one["bytes"])[:KEPT]


def _results(jaxpr: Any, inside: float, devices: int) -> Iterator[tuple[Any, Any, float]]:
    """Yield the results. `inside` is the number of chips over which an enclosing shard_map has divided the arrays."""
    for eqn in jaxpr.eqns:
        stacked = _stacked(eqn)
        for index, var in enumerate(eqn.outvars):
            if hasattr(var.aval, "dtype") and eqn.primitive.name not in (
                "jit",
                "pjit",
                "custom_vjp_call",
                "custom_jvp_call",
            ):
                yield var.aval, stacked.get(index, eqn), max(1.0, devices / inside)
        if eqn.primitive.name == "pallas_call":
            continue
        divided = inside
        if eqn.primitive.name == "shard_map":
            divided = inside * math.prod(eqn.params["mesh"].shape[axis] for axis in eqn.params["newly_manual_axes"])
        for inner in work.inner(eqn):
            yield from _results(work.opened(inner), divided, devices)


def _stacked(eqn: Any) -> dict[int, Any]:
    """Return, for each array that a scan stacks, the equation in its body that makes one piece of it."""
    if eqn.primitive.name != "scan":
        return {}
    body = work.opened(eqn.params["jaxpr"])
    made = {var: one for one in body.eqns for var in one.outvars}
    return {index: made[var] for index, var in enumerate(body.outvars) if _hashable(var) and var in made}


def _hashable(var: Any) -> bool:
    return type(var).__hash__ is not None and not hasattr(var, "val")
