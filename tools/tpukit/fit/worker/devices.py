"""Devices and processes as the program sees them: the chips of the job, with this process as their first host."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
from jax._src import distributed, xla_bridge
from jax.experimental import multihost_utils, topologies

OPTIONS = {"v4": {"chip_config_name": "megacore"}}
"""Chip configuration by generation: a v4 chip is one device, as on TPU hosts of Google Cloud."""


def make(name: str, slices: int, bounds: Sequence[int]) -> list[Any]:
    """Return compile-only devices of `slices` slices with this topology, such as v5e:4x4."""
    options: dict[str, Any] = dict(OPTIONS.get(name.partition(":")[0], {}))
    if slices > 1:
        options["num_slices"] = slices
    if bounds:
        options["chips_per_host_bounds"] = list(bounds)
    found = topologies.get_topology_desc(platform="tpu", topology_name=name, **options)
    return sorted(found.devices, key=lambda one: (getattr(one, "slice_index", 0), one.process_index, one.id))


def install(found: Sequence[Any]) -> None:
    """Make JAX report the devices and processes of the job."""
    count = 1 + max(one.process_index for one in found)

    def of(real: Callable[..., Any], ours: Callable[..., Any]) -> Callable[..., Any]:
        def answer(*args: Any, backend: Any = None, **kwargs: Any) -> Any:
            if str(backend or (args[0] if args and isinstance(args[0], str) else "")) == "cpu":
                return real(backend="cpu")
            return ours(*args, **kwargs)

        return answer

    def local(process_index: int | None = None, *_: Any, **__: Any) -> list[Any]:
        return [one for one in found if one.process_index == (process_index or 0)]

    answers: dict[str, Callable[..., Any]] = {
        "devices": lambda *_, **__: list(found),
        "local_devices": local,
        "device_count": lambda *_, **__: len(found),
        "local_device_count": lambda *_, **__: len(local()),
        "process_index": lambda *_, **__: 0,
        "process_count": lambda *_, **__: count,
        "process_indices": lambda *_, **__: list(range(count)),
        "default_backend": lambda: "tpu",
    }
    for name, ours in answers.items():
        answer = of(getattr(xla_bridge, name), ours)
        setattr(xla_bridge, name, answer)
        setattr(jax, name, answer)
    jax.distributed.initialize = lambda *_, **__: None
    jax.distributed.shutdown = lambda *_, **__: None
    jax.distributed.is_initialized = lambda: True
    if count > 1:
        distributed.global_state.client = _Client()
        distributed.global_state.num_processes = count
        distributed.global_state.process_id = 0
    _alone()


class _Client:
    """Coordination service of the first host, when all other hosts are at the same point."""

    def __init__(self) -> None:
        self._values: dict[str, Any] = {}

    def key_value_set(self, key: str, value: Any, *_: Any, **__: Any) -> None:
        self._values[key] = value

    key_value_set_bytes = key_value_set

    def blocking_key_value_get(self, key: str, *_: Any, **__: Any) -> Any:
        return self._values.get(key, "")

    key_value_try_get = blocking_key_value_get_bytes = blocking_key_value_get

    def key_value_dir_get(self, prefix: str, *_: Any, **__: Any) -> list[tuple[str, Any]]:
        return [(key, value) for key, value in self._values.items() if key.startswith(prefix)]

    def key_value_delete(self, key: str, *_: Any, **__: Any) -> None:
        self._values.pop(key, None)

    def wait_at_barrier(self, *_: Any, **__: Any) -> None:
        """Return at once: all hosts are at the barrier."""

    def get_live_nodes(self, nodes: Any = (), *_: Any, **__: Any) -> dict[int, int]:
        return dict.fromkeys(nodes, 0)


def _alone() -> None:
    """Replace agreement between hosts: every host is at the same point."""
    import numpy as np

    multihost_utils.sync_global_devices = lambda *_, **__: None
    multihost_utils.broadcast_one_to_all = lambda tree, *_, **__: tree
    multihost_utils.assert_equal = lambda *_, **__: None
    multihost_utils.reached_preemption_sync_point = lambda *_, **__: False

    def allgather(tree: Any, tiled: bool = False) -> Any:
        count = jax.process_count()
        return jax.tree.map(lambda one: np.repeat(np.asarray(one)[None], count, axis=0), tree)

    multihost_utils.process_allgather = allgather
