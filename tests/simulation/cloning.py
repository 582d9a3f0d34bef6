"""Machines cloned from one image: machine id and host name are equal, processes and boots are not."""

from __future__ import annotations

import itertools
import os
import socket
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from tpukit.kernel.store import Holder, process

if TYPE_CHECKING:
    from simulation.machines import Machine
    from simulation.world import World

PATCHED = ("_machine", "_boot", "_started", "_text", "os", "socket")
"""Names in `tpukit.kernel.store.process` that the simulator restores."""
_REAL = {name: getattr(process, name) for name in PATCHED}
_machine: Any = process._machine.__wrapped__  # without its cache, because one process simulates many machines


class Clones:
    """The machines' operating systems."""

    def __init__(self, world: World) -> None:
        self._world, self._numbers = world, itertools.count(100)
        self._running: dict[tuple[str, int], tuple[Machine, int]] = {}  # by machine and process id
        system: Any = process
        system._machine, system._boot = _machine, lambda: f"boot of {world.acting}"
        system._text = lambda path: "the machine id of the image"
        system._started = lambda pid: f"{world.acting} {pid}" if self._is_alive(pid) else ""
        system.os = SimpleNamespace(**{**vars(os), "kill": self._kill})
        system.socket = SimpleNamespace(**{**vars(socket), "gethostname": lambda: "trainer"})

    @staticmethod
    def release() -> None:
        """Undo the patches of an earlier world."""
        for name, real in _REAL.items():
            setattr(process, name, real)

    def holder(self, machine: Machine, number: int) -> Holder:
        pid = next(self._numbers)
        self._running[machine.name, pid] = machine, number
        self._world.acting = machine.name
        return Holder(f"{machine.name}/{number}", process._machine(), pid, process._started(pid), "ada")

    def _is_alive(self, pid: int) -> bool:
        machine, number = self._running.get((self._world.acting, pid), (None, 0))
        return machine is not None and machine.process == number and not machine.down

    def _kill(self, pid: int, signal: int) -> None:
        if not self._is_alive(pid):
            raise ProcessLookupError
