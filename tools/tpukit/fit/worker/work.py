"""Arithmetic of a function, counted in its jaxpr: over all chips, with loops multiplied by their repetitions.

A multiply-add is two operations. Operations that rematerialisation repeats are counted apart: they are work for the
chips, but not work of the model.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from jax._src import core, source_info_util

from tpukit.fit.worker.arrays import size

REPEATED = "rematted_computation"
"""Word in the name stack of operations that `jax.checkpoint` computes a second time."""
DEAR = ("scan", "while", "shard_map", "pallas_call", "dot_general", "conv_general_dilated")
"""Operations of models: a value that depends on one is a result of training, and is not computed on the CPU."""
CALLBACKS = ("io_callback", "pure_callback", "debug_callback")


def of(jaxpr: Any) -> dict[str, float]:
    """Return the matmul operations of the model, the repeated ones, and those that kernels state."""
    total = {"model": 0.0, "repeated": 0.0, "kernels": 0.0}
    for eqn, times, repeated in _walk(opened(jaxpr), 1.0, repeated=False):
        flops = _flops(eqn)
        if not flops:
            continue
        total["repeated" if repeated else "model"] += flops * times
        if eqn.primitive.name == "pallas_call":
            total["kernels"] += flops * times
    return total


def loops(jaxpr: Any) -> int:
    """Return the number of scans that run more than once."""
    found = (eqn for eqn, _, _ in _walk(opened(jaxpr), 1.0, repeated=False) if eqn.primitive.name == "scan")
    return sum(1 for eqn in found if eqn.params["length"] > 1)


def bytes_made(jaxpr: Any) -> float:
    """Return the bytes of all intermediate results; infinite if one of them is dear."""
    total = 0.0
    for eqn in opened(jaxpr).eqns:
        if eqn.primitive.name in DEAR:
            return math.inf
        parts = list(inner(eqn))
        total += sum(bytes_made(one) for one in parts) if parts else 0.0
        total += sum(size(var.aval) for var in eqn.outvars)
    return total


def is_plain(jaxpr: Any) -> bool:
    """Return whether a function has no matmuls, kernels or calls to the host."""
    heavy = (*DEAR[2:], *CALLBACKS)
    return not any(eqn.primitive.name in heavy for eqn, _, _ in _walk(opened(jaxpr), 1.0, repeated=False))


def places_arrays(jaxpr: Any) -> bool:
    """Return whether a function constrains the places of its intermediate results."""
    return any(eqn.primitive.name == "sharding_constraint" for eqn, _, _ in _walk(opened(jaxpr), 1.0, repeated=False))


def problems(jaxpr: Any, roots: tuple[str, ...]) -> list[dict[str, str]]:
    """Return slow or impossible operations on TPUs, wide types and calls to the host, each with its line."""
    found: dict[tuple[str, str], dict[str, str]] = {}
    for eqn, _, _ in _walk(opened(jaxpr), 1.0, repeated=False):
        kind = ""
        if eqn.primitive.name in CALLBACKS:
            kind = "host callback"
        elif any(str(getattr(var.aval, "dtype", "")) in ("float64", "complex128") for var in eqn.outvars):
            kind = "float64"
        if kind:
            at = line(eqn, roots)
            found.setdefault((kind, at), {"kind": kind, "line": at, "operation": eqn.primitive.name})
    return list(found.values())


def _walk(jaxpr: Any, times: float, *, repeated: bool) -> Iterator[tuple[Any, float, bool]]:
    for eqn in jaxpr.eqns:
        again = repeated or REPEATED in str(eqn.source_info.name_stack)
        yield eqn, times, again
        if eqn.primitive.name == "pallas_call":
            continue
        inside = times * _repetitions(eqn)
        for one in inner(eqn):
            yield from _walk(opened(one), inside, repeated=again)


def _repetitions(eqn: Any) -> float:
    if eqn.primitive.name == "scan":
        return float(eqn.params["length"])
    if eqn.primitive.name == "shard_map":
        mesh, axes = eqn.params["mesh"], eqn.params["newly_manual_axes"]
        return float(math.prod(mesh.shape[axis] for axis in axes))
    return 1.0


def inner(eqn: Any) -> Iterator[Any]:
    """Yield the functions inside an operation; of branches, the longest."""
    if eqn.primitive.name == "cond":
        yield max(eqn.params["branches"], key=lambda one: len(opened(one).eqns))
        return
    for value in eqn.params.values():
        for one in value if isinstance(value, (tuple, list)) else (value,):
            if isinstance(one, core.Jaxpr) or hasattr(one, "jaxpr"):
                yield one


def opened(jaxpr: Any) -> Any:
    """Return the jaxpr itself, without the constants of a closed jaxpr."""
    return jaxpr if hasattr(jaxpr, "eqns") else jaxpr.jaxpr


def _flops(eqn: Any) -> float:
    name = eqn.primitive.name
    if name == "dot_general":
        (contracted, _), _ = eqn.params["dimension_numbers"]
        left = eqn.invars[0].aval
        return 2.0 * float(math.prod(eqn.outvars[0].aval.shape) * math.prod(left.shape[axis] for axis in contracted))
    if name == "conv_general_dilated":
        right, numbers = eqn.invars[1].aval, eqn.params["dimension_numbers"]
        wide = math.prod(eqn.outvars[0].aval.shape) * math.prod(right.shape)
        return 2.0 * float(wide) / float(right.shape[numbers.rhs_spec[0]])
    return _of_kernel(eqn) if name == "pallas_call" else 0.0


def _of_kernel(eqn: Any) -> float:
    """Return the kernel's own estimate, or the matmuls of its body, once for each block of its grid."""
    estimate = eqn.params.get("cost_estimate")
    if estimate is not None:
        return float(estimate.flops)
    blocks = math.prod(size for size in eqn.params["grid_mapping"].grid if isinstance(size, int))
    body = sum(_flops(one) * times for one, times, _ in _walk(opened(eqn.params["jaxpr"]), 1.0, repeated=False))
    # Splash attention skips blocks that its mask empties: for a causal mask, about half of them.
    return body * blocks * (0.5 if str(eqn.params.get("name", "")).startswith("splash_") else 1.0)


def line(eqn: Any, roots: tuple[str, ...]) -> str:
    """Return FILE:LINE of the source of an operation in the program below `roots`."""
    for frame in source_info_util.user_frames(eqn.source_info.traceback):
        if any(frame.file_name.startswith(root) for root in roots):
            return f"{frame.file_name}:{frame.start_line}"
    return ""
