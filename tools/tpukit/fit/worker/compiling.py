"""Compile each jit function that the program calls, once for each signature, and record the results."""

from __future__ import annotations

import threading
import time
import traceback
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax._src import core, pjit, stages
from jax._src.interpreters import mlir, partial_eval

from tpukit.fit.worker import arrays, changes, hlo, largest, stopping, work
from tpukit.fit.worker.arrays import Carried, Origin

INITIAL = 16 << 10
"""Bytes of results from which a function may be an initialiser."""


class Compiler:
    """Compiler for the job's devices. `found` has one record for each compiled function, in order."""

    def __init__(self, devices: Sequence[Any], roots: tuple[str, ...], note: Any, change: str = "") -> None:
        self.devices, self.roots, self.note, self.change = list(devices), roots, note, change
        self.found: list[dict[str, Any]] = []
        self._known: dict[Any, tuple[dict[str, Any], list[Any]]] = {}
        self._lock = threading.RLock()

    def __call__(self, args: tuple[Any, ...], params: dict[str, Any]) -> list[Any]:
        record, places = self.ahead(tuple(pjit.convert_to_metaty(one) for one in args), params, args)
        record["calls"] += 1
        if record["calls"] > stopping.CALLS:
            raise stopping.stop("calls")
        return _carried(args, params["jaxpr"], places)

    def ahead(self, metas: tuple[Any, ...], params: dict[str, Any], args: Any = ()) -> tuple[dict[str, Any], list[Any]]:
        """Compile for arguments of these types and places. Return the record, and the places of the results."""
        metas = tuple(self._off_cpu(one) for one in metas)
        types = tuple((one.aval, one.sharding) for one in metas)
        key = (params["jaxpr"], types, params["in_shardings"], params["out_shardings"])
        with self._lock:
            if key not in self._known:
                self._known[key] = self._compile(args, metas, params)
            return self._known[key]

    def _off_cpu(self, meta: Any) -> Any:
        """Remove the place of a CPU array: an array that the program made on the CPU would be on the first chip."""
        if meta.sharding is not None and all(one.platform == "cpu" for one in meta.sharding.device_set):
            return meta.replace(sharding=None, committed=False, format=None)
        return meta

    def _compile(self, args: Any, metas: Any, params: Any) -> tuple[dict[str, Any], list[Any]]:
        if self.change == "sharding":
            metas, params = changes.spread(metas, params)
        jaxpr = params["jaxpr"]
        stack = traceback.extract_stack()
        record: dict[str, Any] = {
            "name": params["name"],
            "line": stopping.place(self.roots, stack),
            "defined": _defined(jaxpr),
            "calls": 0,
            "jit_index": len(self.found),
        }
        self.found.append(record)
        self.note(f"compiling {params['name']}")
        began = time.perf_counter()
        places: list[Any] = [None] * len(jaxpr.out_avals)
        held: list[Any] = []
        names = _argument_names(jaxpr, len(metas))
        try:
            record["work"] = work.of(jaxpr)
            record["largest"] = largest.of(jaxpr, self.roots, len(self.devices))
            record["loops"] = work.loops(jaxpr)
            record["problems"] = work.problems(jaxpr, self.roots)
            if (settled := _settled(params, metas)) is not None:
                places, held = settled, [one.sharding for one in metas]
                return self._finish(record, args, metas, names, held, places, params, began)
            with jax.default_device(self.devices[0]):
                computation = pjit._resolve_and_lower(
                    metas,
                    **params,
                    lowering_platforms=None,
                    lowering_parameters=mlir.LoweringParameters(),
                    pgle_profiler=None,
                )
                compiled = computation.compile()
            kept = set(compiled._kept_var_idx)
            placed = (
                len(self._order(compiled)) > 1
                or not all(map(_unspecified, params["out_shardings"]))
                or any(one.committed and one.sharding is not None for index, one in enumerate(metas) if index in kept)
            )
            places = list(compiled._out_shardings) if placed else places
            record["chips"] = len(self._order(compiled))
            record["memory"] = _memory(compiled.xla_executable)
            record["cost"] = _cost(compiled.xla_executable)
            text = compiled.xla_executable.hlo_modules()[0].to_string()
            record["hlo"] = hlo.read(text, [int(getattr(one, "slice_index", 0) or 0) for one in self._order(compiled)])
            shardings = iter(compiled._in_shardings)
            offset = len(compiled.in_avals) - sum(1 for index in range(len(metas)) if index in kept)
            for _ in range(max(0, offset)):
                next(shardings, None)
            held = [next(shardings, None) if index in kept else None for index in range(len(metas))]
        except stages.DeviceAssignmentMismatchError:
            self.found.remove(record)  # JAX reports this better to the program
            raise
        except Exception as error:  # the compiler raises many kinds of errors  # noqa: BLE001
            record["error"] = _error(error, self.roots, stack)
            held = [one.sharding for one in metas]
            places = [None if _unspecified(one) else one for one in params["out_shardings"]]
        return self._finish(record, args, metas, names, held, places, params, began)

    def _finish(
        self, record: Any, args: Any, metas: Any, names: Any, held: Any, places: Any, params: Any, began: float
    ) -> tuple[dict[str, Any], list[Any]]:
        record["arguments"] = [
            _argument(name, meta.aval, where, donated)
            for name, meta, where, donated in zip(names, metas, held, params["donated_invars"], strict=True)
        ]
        record["results"] = _results(params["jaxpr"], places)
        record["others"] = self._others(args) if args else []
        record["seconds"] = time.perf_counter() - began
        return record, places

    def _order(self, compiled: Any) -> list[Any]:
        """Return the devices in the order of the program's device assignment."""
        places = [one for one in (*compiled._in_shardings, *compiled._out_shardings) if not _unspecified(one)]
        return list(max((one._device_assignment for one in places), key=len, default=self.devices[:1]))

    def _others(self, args: Any) -> list[dict[str, Any]]:
        """Return the arrays on the chips that this call does not take, but that share the memory."""
        mine = {id(one) for one in args}
        rest = [one for one in list(arrays.alive) if id(one) not in mine]
        return [_argument("", one.aval, one.sharding, donated=False) for one in rest]


def _carried(args: tuple[Any, ...], jaxpr: Any, places: list[Any]) -> list[Any]:
    used: dict[int, tuple[Any, list[bool]]] = {}

    def reduced(index: int) -> tuple[Any, list[bool]]:
        if index not in used:
            wanted = [number == index for number in range(len(jaxpr.out_avals))]
            used[index] = partial_eval.dce_jaxpr(getattr(jaxpr, "jaxpr", jaxpr), wanted)
        return used[index]

    def inputs(index: int) -> list[int]:
        return [number for number, needed in enumerate(reduced(index)[1]) if needed]

    def cost(index: int) -> float:
        return work.bytes_made(reduced(index)[0])

    def compute(index: int, values: list[Any]) -> Any:
        return core.eval_jaxpr(reduced(index)[0], getattr(jaxpr, "consts", ()), *values)[0]

    origin = Origin(compute, inputs, args, cost)
    return [
        Carried(aval, place, origin, number)
        for number, (aval, place) in enumerate(zip(jaxpr.out_avals, places, strict=True))
    ]


def _settled(params: Any, metas: Any) -> list[Any] | None:
    """Return the places of the results of a function that only makes initial values, if known without compiling.

    Random numbers of a model's size take minutes to compile and say nothing about its step.
    """
    jaxpr, outs = params["jaxpr"], params["out_shardings"]
    made, taken = sum(map(arrays.size, jaxpr.out_avals)), sum(arrays.size(one.aval) for one in metas)
    if made < INITIAL or made < 16 * taken or not work.is_plain(jaxpr):
        return None
    if not any(map(_unspecified, outs)):
        return list(outs)
    bound = any(one.committed and one.sharding is not None for one in metas) or not params["ctx_mesh"].empty
    return None if bound or not all(map(_unspecified, outs)) or work.places_arrays(jaxpr) else [None] * len(outs)


def _unspecified(one: Any) -> bool:
    return not isinstance(one, jax.sharding.Sharding)


def _defined(jaxpr: Any) -> str:
    info = jaxpr.debug_info
    return f"{info.func_filename}:{info.func_lineno}" if info.func_filename else ""


def _argument_names(jaxpr: Any, count: int) -> list[str]:
    names = list(jaxpr.debug_info.arg_names or ())
    return (
        [*(f"constant {index}" for index in range(count - len(names))), *map(str, names)][:count]
        if names
        else [f"argument {index}" for index in range(count)]
    )


def _argument(name: str, aval: Any, sharding: Any, donated: bool) -> dict[str, Any]:
    shape = tuple(getattr(aval, "shape", ()))
    local = shape
    if sharding is not None and not _unspecified(sharding):
        try:
            local = sharding.shard_shape(shape)
        except ValueError:
            local = shape
    itemsize = getattr(getattr(aval, "dtype", None), "itemsize", 4)
    return {
        "name": name,
        "shape": list(shape),
        "dtype": str(getattr(aval, "dtype", "")),
        "bytes": int(np.prod(local, dtype=np.int64)) * itemsize,
        "whole": int(np.prod(shape, dtype=np.int64)) * itemsize,
        "spec": str(getattr(sharding, "spec", "")),
        "donated": bool(donated),
    }


def _results(jaxpr: Any, places: list[Any]) -> list[dict[str, Any]]:
    return [_argument("", aval, place, donated=False) for aval, place in zip(jaxpr.out_avals, places, strict=True)]


def _memory(executable: Any) -> dict[str, int]:
    stats = executable.get_compiled_memory_stats()
    names = ("argument", "output", "alias", "temp", "generated_code")
    sizes = {name: int(getattr(stats, f"{name}_size_in_bytes")) for name in names}
    return {**sizes, "peak": int(getattr(stats, "peak_memory_in_bytes", 0))}


def _cost(executable: Any) -> dict[str, float]:
    found = executable.cost_analysis()
    found = found[0] if isinstance(found, (list, tuple)) else found
    names = ("flops", "bytes accessed", "optimal_seconds", "transcendentals")
    return {name: float(found[name]) for name in names if name in found}


def _error(error: Exception, roots: tuple[str, ...], stack: Any) -> dict[str, str]:
    frames = traceback.extract_tb(error.__traceback__)
    where = stopping.place(roots, frames) or stopping.place(roots, stack)
    return {"kind": type(error).__name__, "text": str(error)[:20000], "line": where}
