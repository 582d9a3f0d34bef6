"""Processes of a simulated machine.

These are the processes of local jobs, in simulated time, and those of drivers, whose ids decide whether leases are
valid.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simulation.kube_jobsets import Run
from simulation.machines import Machine
from tpukit.places.local.processes import Phase, Pod, PodState

if TYPE_CHECKING:
    from simulation.local_scene import LocalScene

_using: ContextVar[Machine] = ContextVar("using")


@contextmanager
def using(machine: Machine) -> Iterator[None]:
    """Run the block as a process of that machine."""
    token = _using.set(machine)
    try:
        yield
    finally:
        _using.reset(token)


@dataclass
class Host:
    folder: Path
    pid: int
    run: Run
    began: float
    awake: float
    phase: Phase = Phase.RUNNING
    ended: float = 0.0
    order: float = 0.0
    code: int = 0
    told: bool = False


@dataclass
class LocalPods:
    """A replacement for `tpukit.places.local.processes`. A pod is its folder: starting it twice runs it once."""

    scene: LocalScene
    hosts: dict[str, Host] = field(default_factory=dict)
    stops: set[str] = field(default_factory=set)
    boot: int = 0
    _pid: int = 100

    def start(self, pods: Sequence[Pod]) -> None:
        self._call(f"start {pods[0].folder.parent.name}", lambda: self._start(pods), mutates=True)

    def stop(self, folder: Path, grace: float) -> None:
        self._call(f"stop {folder.name}", lambda: self._stop(str(folder), grace), mutates=True)

    def status(self, folder: Path) -> PodState:
        host = self.hosts.get(str(folder))
        if host is None:
            never = str(folder) in self.stops
            return PodState(Phase.ENDED, code=143, signalled=True) if never else PodState(Phase.ABSENT)
        known = PodState(host.phase, host.pid, host.pid, began=host.began, code=host.code)
        if host.phase is Phase.RUNNING:
            return PodState(host.phase, host.pid, host.pid, began=host.began, awake=host.awake)
        if host.phase is Phase.LOST:
            return known
        more = {"ended": host.ended, "order": host.order, "signalled": host.told}
        return PodState(host.phase, host.pid, host.pid, began=host.began, code=host.code, **more)  # type: ignore[arg-type]

    def living(self, folder: Path) -> dict[Path, list[int]]:
        running = [host for host in self.hosts.values() if host.phase is Phase.RUNNING]
        return {host.folder: [host.pid] for host in running if host.folder.is_relative_to(folder)}

    def stop_requested(self, folder: Path) -> bool:
        return str(folder) in self.stops

    def kill_strays(self, folder: Path) -> list[int]:
        return []

    def members(self, folder: Path) -> list[int]:
        return []

    def tail(self, folder: Path, until: int = 0) -> str:
        return ""

    def stopped(self, pid: int) -> bool:
        return False

    # Events

    def new_process(self) -> tuple[int, str]:
        self._pid += 1
        return self._pid, f"{self.boot}/{self._pid}"

    def lose(self, folder: str, phase: Phase = Phase.LOST, code: int = 137, cause: str = "lost") -> None:
        """End a host by itself, or lose it together with its watcher."""
        host = self.hosts[folder]
        if host.phase is not Phase.RUNNING:
            return
        now = self.scene.world.scheduler.now
        host.phase, host.code, host.ended, host.order = phase, code, self.scene.time(), now
        self.scene.broke(host.run, cause)
        if not any(one.run is host.run and one.phase is Phase.RUNNING for one in self.hosts.values()):
            host.run.alive = False

    def reboot(self) -> None:
        self.boot += 1
        for folder in list(self.hosts):
            self.lose(folder)

    def _start(self, pods: Sequence[Pod]) -> None:
        scene = self.scene
        missing = [
            pod.folder for pod in pods if str(pod.folder) not in self.hosts and str(pod.folder) not in self.stops
        ]
        if not missing:
            return
        job, number = missing[0].parents[1].name, int(missing[0].parent.name.removeprefix("attempt-"))
        run = scene.begin(job, number)
        for folder in missing:
            pid, _ = self.new_process()
            awake = scene.world.machines[0].clock.monotonic()
            self.hosts[str(folder)] = Host(folder, pid, run, scene.time(), awake)
        lasts, code = scene.lasts(job)
        for index, folder in enumerate(missing):
            ends = code if index == 0 else (0 if code == 0 else 134)
            after = lasts + (index and code) * 5.0
            work = lambda folder=folder, ends=ends: self._end(str(folder), ends)  # noqa: E731
            scene.world.scheduler.spawn(work, after)

    def _end(self, folder: str, code: int) -> None:
        self.lose(folder, Phase.ENDED, code, "done" if code == 0 else "mistake")

    def _stop(self, folder: str, grace: float) -> None:
        host = self.hosts.get(folder)
        if host is not None and host.phase is not Phase.RUNNING:
            return
        self.stops.add(folder)
        if host is None or host.told:
            return
        self.scene.world.check_end(host.run, f"stops {host.folder.name}")  # type: ignore[arg-type]
        host.told = True
        code = 128 + (signal.SIGTERM if grace else signal.SIGKILL)
        leaves = self.scene.world.dice.uniform(0, min(grace, 20.0))
        self.scene.world.scheduler.spawn(lambda: self.lose(folder, Phase.ENDED, code, "stopped"), leaves)

    def _call(self, what: str, do: Any, *, mutates: bool) -> None:
        machine = _using.get()

        def act() -> None:
            machine.world.acting = machine.name
            do()

        machine.call("local", what, act, mutates=mutates)


@dataclass
class ProcessTable:
    """A replacement for `os` in `tpukit.kernel.store.process`: the process table of the machine that calls now."""

    scene: LocalScene | None = None

    def machine(self) -> str:
        return self.scene.computer(self.scene.world.acting) if self.scene else ""

    def started(self, pid: int) -> str:
        return self.scene.started(pid) if self.scene else ""

    def kill(self, pid: int, number: int) -> None:
        if self.scene is not None and not self.scene.started(pid):
            raise ProcessLookupError


TABLE = ProcessTable()


def prepare(change: Any) -> None:
    """Make lease checks use the simulated processes. `change` sets an attribute until the simulator is closed."""
    from tpukit.kernel.store import process

    change(process, "_machine", TABLE.machine)
    change(process, "_started", TABLE.started)
    change(process, "os", TABLE)
