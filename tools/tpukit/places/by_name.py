"""The places that jobs can be sent to, by name.

Each is made when it is first asked for: whoever runs a job on this machine loads nothing of a cluster.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path

from tpukit.core.clock import Clock
from tpukit.places import NAMES
from tpukit.places.base import Place


def places(root: Path, clock: Clock, sender: Callable[[], str]) -> Mapping[str, Place]:
    """`sender` marks what this store sends to places that it shares with others."""

    def local() -> Place:
        from tpukit.places.local.place import LocalPlace

        return LocalPlace(root, clock, sender())

    def gke() -> Place:
        from tpukit.places.gke import GkePlace

        return GkePlace(root, clock, cache(sender))  # asked for every job of every round

    def tpu_vm() -> Place:
        from tpukit.places.tpu_vm import TpuVmPlace

        return TpuVmPlace(root, clock, cache(sender))

    return _Lazy(dict(zip(NAMES, (local, gke, tpu_vm), strict=True)))


def has_unmanaged(name: str) -> bool:
    """Whether the place can tell what others run there. It need not be made to answer."""
    return name == "gke"


def is_set_up(name: str) -> bool:
    """Whether this machine was pointed at the place by more than a default, so that it is worth asking unasked."""
    return name == "gke" and "KUBECONFIG" in os.environ


class _Lazy(Mapping[str, Place]):
    """One of each for the process: they hold connections. Safe from any thread."""

    def __init__(self, makers: Mapping[str, Callable[[], Place]]) -> None:
        self._makers = makers
        self._made: dict[str, Place] = {}
        self._locks = {name: threading.Lock() for name in makers}  # making one takes time: nobody else waits for it

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
