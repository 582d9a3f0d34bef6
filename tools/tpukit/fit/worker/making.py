"""Replacements for JAX functions that build global arrays from pieces in host memory."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from jax._src import core
from jax.experimental import multihost_utils

from tpukit.fit.worker.arrays import Carried


def install() -> None:
    on_cpu = jax.make_array_from_callback

    def from_callback(shape: Any, sharding: Any, data_callback: Any, dtype: Any = None, **kwargs: Any) -> Any:
        if not _is_ours(sharding):
            return on_cpu(shape, sharding, data_callback, dtype, **kwargs)
        first = next(iter(_addressable(sharding, tuple(shape))))
        piece = np.asarray(data_callback(first))
        expected = tuple(len(range(*part.indices(size))) for part, size in zip(first, shape, strict=True))
        if piece.shape != expected:
            raise ValueError(f"data_callback returned shape {piece.shape} where the shard has {expected}")
        return _array(tuple(shape), dtype or piece.dtype, sharding)

    def from_local(sharding: Any, local_data: Any, global_shape: Any = None, **_: Any) -> Any:
        local = local_data if hasattr(local_data, "shape") else np.asarray(local_data)
        if not _is_ours(sharding):
            return jax.device_put(local, sharding)
        shape = tuple(global_shape) if global_shape else _global_shape(local.shape, sharding)
        sharding.shard_shape(shape)
        return _array(shape, local.dtype, sharding)

    def from_pieces(shape: Any, sharding: Any, arrays: Any, *, dtype: Any = None, **_: Any) -> Any:
        first = next(iter(arrays), None)
        return _array(tuple(shape), dtype or getattr(first, "dtype", np.float32), sharding)

    def tree_from_local(sharding: Any, local_data: Any, global_shape: Any = None, **_: Any) -> Any:
        if isinstance(sharding, jax.sharding.Sharding):
            return jax.tree.map(lambda one: from_local(sharding, one, global_shape), local_data)
        return jax.tree.map(lambda one, where: from_local(where, one, global_shape), local_data, sharding)

    def host_to_global(tree: Any, mesh: Any, specs: Any) -> Any:
        if isinstance(specs, jax.sharding.PartitionSpec):
            specs = jax.tree.map(lambda _: specs, tree)
        return jax.tree.map(lambda one, spec: from_local(jax.sharding.NamedSharding(mesh, spec), one), tree, specs)

    jax.make_array_from_callback = from_callback
    jax.make_array_from_process_local_data = tree_from_local
    jax.make_array_from_single_device_arrays = from_pieces
    multihost_utils.host_local_array_to_global_array = host_to_global
    jax.device_get = lambda tree: jax.tree.map(lambda one: np.asarray(one) if isinstance(one, jax.Array) else one, tree)
    jax.block_until_ready = lambda tree: tree
    jax.live_arrays = lambda *_, **__: []


def _is_ours(sharding: Any) -> bool:
    return any(one.platform == "tpu" for one in sharding.device_set)


def _array(shape: tuple[int, ...], dtype: Any, sharding: Any) -> Carried:
    dtype = jax.dtypes.canonicalize_dtype(dtype)
    return Carried(core.ShapedArray(shape, dtype), sharding)


def _addressable(sharding: Any, shape: tuple[int, ...]) -> list[Any]:
    local = set(jax.local_devices())
    return [index for device, index in sharding.devices_indices_map(shape).items() if device in local]


def _global_shape(local: tuple[int, ...], sharding: Any) -> tuple[int, ...]:
    """Return the global shape whose parts on this host have the shape `local`."""
    probe = tuple(size * jax.process_count() for size in local)
    shape = []
    for axis, size in enumerate(local):
        pieces = {(one[axis].start or 0, one[axis].stop or probe[axis]) for one in _addressable(sharding, probe)}
        held = sum(stop - start for start, stop in pieces)
        shape.append(size * probe[axis] // held)
    return tuple(shape)
