"""Arrays without values: a shape, a type, and a place on compile-only devices.

An array records its origin. A value that is cheap to compute (a step counter, a random key) is computed on the CPU
when the program reads it; reading any other value ends the run.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import numpy as np
from jax._src import core

from tpukit.fit.worker.stopping import stop

CHEAP = 64 << 20
"""Total size in bytes of intermediate results below which a value is computed on the CPU."""

alive: weakref.WeakSet[Carried] = weakref.WeakSet()


class Origin:
    """Origin of arrays: `compute(wanted, inputs)` returns the values of the outputs in `wanted`."""

    __slots__ = ("compute", "cost", "inputs", "values")

    def __init__(
        self,
        compute: Callable[[int, list[Any]], Any],
        inputs: Callable[[int], list[int]],
        arguments: Sequence[Any],
        cost: Callable[[int], float],
    ) -> None:
        self.compute, self.cost, self.values = compute, cost, dict[int, Any]()
        held = [_source(one) for one in arguments]
        self.inputs: Callable[[int], list[Any]] = lambda index: [held[number] for number in inputs(index)]


class Carried(core.Tracer):  # type: ignore[misc]
    """Array with a known shape and no value. JAX accepts it as an array at top level."""

    __slots__ = ("__dict__",)

    def __init__(self, aval: Any, sharding: Any = None, origin: Origin | None = None, index: int = 0) -> None:
        super().__init__(core.eval_trace, aval)
        self._line_info = None
        self._sharding, self._origin, self._index = sharding, origin, index
        alive.add(self)

    def __hash__(self) -> int:
        return id(self)

    @property
    def sharding(self) -> Any:
        return self._sharding or jax.sharding.SingleDeviceSharding(jax.devices()[0])

    @property
    def committed(self) -> bool:
        return self._sharding is not None

    _committed = committed

    @property
    def nbytes(self) -> int:
        return int(self.size) * int(self.dtype.itemsize)

    @property
    def format(self) -> Any:
        return None

    @property
    def device(self) -> Any:
        return self.sharding

    @property
    def is_fully_addressable(self) -> bool:
        return bool(self.sharding.is_fully_addressable)

    @property
    def is_fully_replicated(self) -> bool:
        return bool(self.sharding.is_fully_replicated)

    def devices(self) -> Any:
        return self.sharding.device_set

    @property
    def addressable_shards(self) -> list[Any]:
        return list(_shards(self, jax.local_devices()))

    @property
    def global_shards(self) -> list[Any]:
        return list(_shards(self, jax.devices()))

    def addressable_data(self, index: int) -> Any:
        return self.addressable_shards[index].data

    def block_until_ready(self) -> Carried:
        return self

    def copy_to_host_async(self) -> None:
        """Do nothing: no data to copy."""

    def is_ready(self) -> bool:
        return True

    def is_deleted(self) -> bool:
        return False

    def delete(self) -> None:
        """Do nothing: no data to delete."""

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        return np.asarray(value(self), dtype=dtype)

    def __bool__(self) -> bool:
        return bool(value(self))

    def __int__(self) -> int:
        return int(value(self))

    def __index__(self) -> int:
        return int(value(self))

    def __float__(self) -> float:
        return float(value(self))

    def __complex__(self) -> complex:
        return complex(value(self))

    def __format__(self, spec: str) -> str:
        return format(value(self)[()] if self.ndim == 0 else value(self), spec)

    def __str__(self) -> str:
        return str(value(self))

    def __repr__(self) -> str:
        return f"Carried({self.aval.str_short()})"

    def item(self, *args: int) -> Any:
        return value(self).item(*args)

    def tolist(self) -> Any:
        return value(self).tolist()

    def tobytes(self, order: str = "C") -> bytes:
        return bytes(value(self).tobytes())

    def __reduce__(self) -> Any:
        return np.asarray, (value(self),)

    def __deepcopy__(self, _memo: Any) -> Carried:
        return self

    def __copy__(self) -> Carried:
        return self


class Shard:
    """Piece of an array on one device."""

    def __init__(self, device: Any, index: Any, data: Any, replica_id: int) -> None:
        self.device, self.index, self.data, self.replica_id = device, index, data, replica_id


def _shards(array: Carried, devices: Sequence[Any]) -> Iterator[Shard]:
    shape = array.sharding.shard_shape(array.shape)
    aval = core.ShapedArray(shape, array.dtype)
    for device, index in array.sharding.devices_indices_map(array.shape).items():
        if device in devices:
            single = jax.sharding.SingleDeviceSharding(device)
            yield Shard(device, index, Carried(aval, single, array._origin, array._index), 0)


def value(array: Carried) -> Any:
    """Return the value on the CPU, or raise Stop to end the run."""
    if array._origin is None:
        raise stop("a value")
    try:
        _check_cost(array)
        with core.set_current_trace(core.eval_trace):
            return np.asarray(_compute(array._origin, array._index))
    except Exception as error:
        raise stop("a value") from error


def _check_cost(array: Carried) -> None:
    total, seen, pending = 0.0, set[tuple[int, int]](), [(array._origin, array._index)]
    while pending:
        origin, index = pending.pop()
        assert origin is not None
        if (id(origin), index) in seen or index in origin.values:
            continue
        seen.add((id(origin), index))
        total += origin.cost(index)
        if total > CHEAP:
            raise stop("a value")
        pending += [one for one in origin.inputs(index) if isinstance(one, tuple)]


def _compute(origin: Origin | None, index: int) -> Any:
    if origin is None:
        raise stop("a value")
    if index not in origin.values:
        inputs = [_compute(*one) if isinstance(one, tuple) else one for one in origin.inputs(index)]
        origin.values[index] = origin.compute(index, inputs)
    return origin.values[index]


def _source(one: Any) -> Any:
    """Return the origin of an argument's value, without keeping the array alive."""
    return (one._origin, one._index) if isinstance(one, Carried) else one


def size(aval: Any) -> float:
    """Return the bytes of an abstract value."""
    shape, dtype = getattr(aval, "shape", ()), getattr(aval, "dtype", None)
    return math.prod(shape) * float(getattr(dtype, "itemsize", 4))
