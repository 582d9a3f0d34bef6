"""Operations outside of jit: small ones run on the CPU, others are carried as shapes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
from jax._src import core, dispatch, pjit, sharding_impls

from tpukit.fit.worker import arrays, stopping
from tpukit.fit.worker.arrays import Carried, Origin

LARGE = 16 << 20
"""Bytes of a result from which an operation does not run on the CPU."""

Compile = Callable[[tuple[Any, ...], dict[str, Any]], list[Any]]


def install(compile_only: frozenset[Any], compile_jit: Compile) -> None:
    """Replace JAX's execution of top-level operations. `compile_jit` takes the arguments and parameters of a jit."""
    run_primitive = core.EvalTrace.process_primitive
    run_jit = pjit._pjit_call_impl_python
    jax_files = str(jax.__path__[0])

    def process_primitive(self: Any, primitive: Any, args: Any, params: Any, /) -> Any:
        stopping.check()
        args = [core.full_lower(one) for one in args]
        if primitive is core.stage_p and isinstance(args[0], Carried):
            return args[0]
        if primitive is pjit.jit_p and _is_step(params, args):
            return compile_jit(tuple(args), params)
        if not any(isinstance(one, Carried) for one in args) and not _touches(params, compile_only):
            avals = _outputs(primitive, args, params)
            if avals is not None and sum(map(arrays.size, avals)) < LARGE:
                with _without_mesh():
                    return run_primitive(self, primitive, args, params)
        return _carry(primitive, args, params, run_primitive)

    def call_jit(*args: Any, **params: Any) -> tuple[list[Any], Any, None, list[Any]]:
        stopping.check()
        if _is_step(params, args):
            return compile_jit(args, params), None, None, []
        jaxpr = params["jaxpr"]
        large = sum(map(arrays.size, jaxpr.out_avals)) >= LARGE
        if large or any(isinstance(one, Carried) for one in args):
            return _carry(pjit.jit_p, list(args), params, run_primitive), None, None, []
        with _without_mesh():
            if params["ctx_mesh"] is not None and not params["ctx_mesh"].empty:
                outs = core.jaxpr_as_fun(jaxpr)(*args)
                return list(outs), None, None, []
            return run_jit(*args, **params)  # type: ignore[no-any-return]

    def _is_step(params: Any, args: Sequence[Any]) -> bool:
        """Return whether a jit function belongs to the program and its libraries, and not to JAX itself."""
        file = params["jaxpr"].debug_info.func_filename or ""
        if not file.startswith(jax_files):
            return True
        places = (*params["in_shardings"], *params["out_shardings"])
        return any(not isinstance(one, sharding_impls.UnspecifiedValue) for one in places) or _touches(
            params, compile_only
        )

    put_plain = dispatch._batched_device_put_impl

    def put(*args: Any, devices: Any, srcs: Any, copy_semantics: Any, dst_avals: Any) -> Any:
        stopping.check()
        params = {"devices": tuple(devices), "srcs": tuple(srcs), "copy_semantics": tuple(copy_semantics)}
        if any(isinstance(one, Carried) for one in args) or _touches(params, compile_only):
            return _carry(dispatch.device_put_p, list(args), params, run_primitive)
        with _without_mesh():
            return put_plain(*args, devices=devices, srcs=srcs, copy_semantics=copy_semantics, dst_avals=dst_avals)

    dispatch._batched_device_put_impl = put
    core.EvalTrace.process_primitive = process_primitive
    core.check_eval_args = lambda _args: None
    pjit._pjit_call_impl_python = call_jit
    plain = pjit.convert_to_metaty

    def describe(one: Any) -> Any:
        if isinstance(one, Carried):
            return pjit.create_meta_ty(one.aval, one._sharding, None, one._sharding is not None, False)
        return plain(one)

    pjit.convert_to_metaty = describe


def _carry(primitive: Any, args: list[Any], params: Any, run: Any) -> Any:
    avals = _outputs(primitive, args, params)
    if avals is None:
        raise NotImplementedError(f"operation `{primitive.name}` outside of jit cannot be carried")
    place = _place(primitive, args, params)
    out_bytes = sum(map(arrays.size, avals))

    def compute(index: int, inputs: list[Any]) -> Any:
        if primitive.name in ("device_put", "sharding_constraint"):
            return inputs[index]
        with _without_mesh():
            outs = run(core.eval_trace, primitive, inputs, params)
        return outs[index] if primitive.multiple_results else outs

    origin = Origin(compute, lambda _index: list(range(len(args))), args, lambda _index: out_bytes)
    made = [Carried(aval, place[number], origin, number) for number, aval in enumerate(avals)]
    return made if primitive.multiple_results else made[0]


def _place(primitive: Any, args: list[Any], params: Any) -> list[Any]:
    """Return the sharding of each result: that of an argument of the same shape, or None if unknown."""
    if primitive.name == "device_put":
        return [
            _sharding(to) or getattr(one, "_sharding", None) for to, one in zip(params["devices"], args, strict=True)
        ]
    if primitive.name == "sharding_constraint":  # outside of jit it moves the array
        return [_sharding(params["sharding"])]
    avals = _outputs(primitive, args, params) or []
    held = [one for one in args if isinstance(one, Carried) and one._sharding is not None]
    places: list[Any] = []
    for aval in avals:
        same = next((one._sharding for one in held if one.shape == getattr(aval, "shape", None)), None)
        places.append(same or (_replicated(held[0]._sharding) if held else None))
    return places


def _replicated(sharding: Any) -> Any:
    mesh = getattr(sharding, "mesh", None)
    return jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec()) if mesh is not None else sharding


def _sharding(target: Any) -> Any:
    if target is None:
        return None
    if isinstance(target, jax.sharding.Sharding):
        return target
    if hasattr(target, "sharding"):  # a format has layout and sharding
        return target.sharding
    return jax.sharding.SingleDeviceSharding(target) if hasattr(target, "device_kind") else None


def _outputs(primitive: Any, args: Sequence[Any], params: Any) -> list[Any] | None:
    if primitive is pjit.jit_p:
        return list(params["jaxpr"].out_avals)
    if primitive.name in ("device_put", "stage"):
        return [core.typeof(one) for one in args]
    try:
        found, _ = primitive.abstract_eval(*map(core.typeof, args), **params)
    except (NotImplementedError, TypeError, KeyError):
        return None
    return list(found) if primitive.multiple_results else [found]


def _touches(params: Any, devices: frozenset[Any]) -> bool:
    """Return whether the parameters of an operation name compile-only devices."""
    for value in params.values():
        for one in value if isinstance(value, (tuple, list)) else (value,):
            if one in devices if hasattr(one, "device_kind") else _any_of(one, devices):
                return True
    return False


def _any_of(one: Any, devices: frozenset[Any]) -> bool:
    if isinstance(one, jax.sharding.Sharding) and not isinstance(getattr(one, "mesh", None), jax.sharding.AbstractMesh):
        return not devices.isdisjoint(one.device_set)
    return isinstance(one, jax.sharding.Mesh) and not devices.isdisjoint(one.devices.flat)


class _without_mesh:  # noqa: N801
    """Leave the mesh of `jax.set_mesh` temporarily: its devices cannot run anything."""

    def __enter__(self) -> None:
        self._set = sharding_impls.set_mesh(None)

    def __exit__(self, *_: object) -> None:
        self._set.__exit__(None, None, None)
