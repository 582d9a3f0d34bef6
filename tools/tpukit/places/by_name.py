"""The places that jobs can be sent to, by name.

Each is created on first use, so that a local job loads no cluster code.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from tpukit.core.clock import Clock
from tpukit.places import NAMES, capabilities

if TYPE_CHECKING:
    from tpukit.places.base import Place
    from tpukit.places.capabilities import Capabilities


def places(
    root: Path, clock: Clock, sender: Callable[[], str], serving: Callable[[str], None] | None = None
) -> Mapping[str, Place]:
    """Return the places by name. `sender` marks what this store sends to shared places.

    `serving`: the process drives jobs for all, and takes remarks about places here.
    """

    def local() -> Place:
        from tpukit.places.local.place import LocalPlace

        return LocalPlace(root, clock, sender())

    def gke() -> Place:
        from tpukit.places.gke import GkePlace

        return GkePlace(root, clock, cache(sender), serving=serving)  # called for every job in every round

    def tpu_vm() -> Place:
        from tpukit.places.tpu_vm import TpuVmPlace

        return TpuVmPlace(root, clock, cache(sender))

    return _Lazy(dict(zip(NAMES, (local, gke, tpu_vm), strict=True)))


def capabilities_of(places: Mapping[str, Place], name: str) -> Capabilities:
    """Return the capabilities of one of these places, without creating it where they are known."""
    return capabilities.BY_NAME[name] if isinstance(places, _Lazy) else places[name].capabilities


def has_unmanaged(name: str) -> bool:
    """Return whether the place can list jobs of other programs, without creating the place."""
    return capabilities.BY_NAME[name].unmanaged


def is_set_up(name: str) -> bool:
    """Return whether this machine is configured for the place explicitly, so that it is worth querying by default."""
    files = filter(None, os.environ.get("KUBECONFIG", "").split(os.pathsep))
    return name == "gke" and any(map(os.path.exists, files))


class _Lazy(Mapping[str, "Place"]):
    """A mapping that creates each place once per process, because places hold connections. Thread-safe."""

    def __init__(self, makers: Mapping[str, Callable[[], Place]]) -> None:
        self._makers = makers
        self._made: dict[str, Place] = {}
        self._locks = {name: threading.Lock() for name in makers}  # creating one takes time and must not block others

    def __getitem__(self, name: str) -> Place:
        with self._locks[name]:
            if name not in self._made:
                self._made[name] = self._makers[name]()
            return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._makers)

    def __len__(self) -> int:
        return len(self._makers)

    def __contains__(self, name: object) -> bool:
        return name in self._makers
