"""Changes to a program that are tried out where it does not fit. The program's files stay as they are.

- `layers`: the body of each `lax.scan` is recomputed in the backward pass.
- `loss`: of the function that is differentiated, only results of matmuls are kept for the backward pass.
- `sharding`: large arrays that every chip holds whole are split over all chips of their mesh.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from tpukit.fit.worker import arrays

LARGE = 1 << 20
"""Bytes from which an array is split."""


def install(change: str) -> None:
    """Replace JAX functions for this change. Call it before the program is imported."""
    if change == "layers":
        jax.lax.scan = _repeating(jax.lax.scan)
    elif change == "loss":
        for name in ("grad", "value_and_grad"):
            setattr(jax, name, _keeping_matmuls(getattr(jax, name)))


def spread(metas: tuple[Any, ...], params: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the types and parameters of a jit with all large replicated arrays split."""
    places = [split(one.sharding, one.aval) for one in metas]
    metas = tuple(
        one if place is one.sharding else one.replace(sharding=place) for one, place in zip(metas, places, strict=True)
    )
    inside = tuple(split(place, one.aval) for place, one in zip(params["in_shardings"], metas, strict=True))
    outside = tuple(
        split(place, aval) for place, aval in zip(params["out_shardings"], params["jaxpr"].out_avals, strict=True)
    )
    return metas, {**params, "in_shardings": inside, "out_shardings": outside}


def split(sharding: Any, aval: Any) -> Any:
    """Return a sharding over all chips for a large replicated array, and any other sharding as it is."""
    if not isinstance(sharding, NamedSharding) or not sharding.is_fully_replicated or arrays.size(aval) < LARGE:
        return sharding
    mesh = sharding.mesh
    even = [axis for axis, size in enumerate(aval.shape) if size % mesh.size == 0]
    if not even:
        return sharding
    axis = max(even, key=lambda one: aval.shape[one])
    return NamedSharding(mesh, PartitionSpec(*[None] * axis, tuple(mesh.axis_names)))


def _repeating(scan: Callable[..., Any]) -> Callable[..., Any]:
    def repeated(f: Any, *args: Any, **kwargs: Any) -> Any:
        # An unrolled loop is no boundary for XLA, which then removes the recomputation.
        return scan(jax.checkpoint(f, prevent_cse=False), *args, **{**kwargs, "unroll": 1})

    return repeated


def _keeping_matmuls(differentiate: Callable[..., Any]) -> Callable[..., Any]:
    policy = jax.checkpoint_policies.dots_with_no_batch_dims_saveable

    def wrapped(fun: Any, *options: Any, **named: Any) -> Any:
        def repeated(*args: Any, **kwargs: Any) -> Any:
            leaves, tree = jax.tree.flatten((args, kwargs))
            where = [index for index, one in enumerate(leaves) if isinstance(one, (jax.Array, np.ndarray))]

            def of_arrays(*values: Any) -> Any:
                filled = list(leaves)
                for index, value in zip(where, values, strict=True):
                    filled[index] = value
                inner_args, inner_kwargs = jax.tree.unflatten(tree, filled)
                return fun(*inner_args, **inner_kwargs)

            return jax.checkpoint(of_arrays, policy=policy)(*[leaves[index] for index in where])

        return differentiate(repeated, *options, **named)

    return wrapped
