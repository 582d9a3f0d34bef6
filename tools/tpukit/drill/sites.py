"""Sites where a drill makes its runs: how to observe hosts there, and losses that only the place can inject.

Hosts are processes of this machine, on a simulated slice or in a sandbox, so most losses are signals (`striking`). How
to stop a host and how to take a slice away depend on the place.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from tpukit.core.clock import Clock
from tpukit.drill.losses import Loss, What
from tpukit.jobs.plan import Plan
from tpukit.jobs.records import Attempt
from tpukit.places.base import Handle, Observation, Place
from tpukit.places.local.place import LocalPlace


@dataclass(frozen=True, slots=True)
class Host:
    """One host of one attempt."""

    attempt: int
    number: int  # counted over all slices
    slice: int
    index: int  # in its slice
    logs: tuple[Path, ...]  # log files, oldest first
    pids: tuple[int, ...] = ()  # first process first; empty: not running
    node: str = ""
    pod: str = ""


@dataclass(frozen=True, slots=True)
class Folders:
    """Folders of one run, as paths for its program and paths on this machine."""

    workdir: str
    workdir_path: Path
    traces: str
    traces_path: Path


class Site(Protocol):
    @property
    def place(self) -> Place: ...

    @property
    def round_seconds(self) -> float:
        """Seconds between two rounds of the driver."""

    @property
    def limits_logs(self) -> bool:
        """Return whether hosts write their logs themselves, so that a limit on file size truncates logs too."""

    def prepare(self, plan: Plan) -> Plan:
        """Return the plan as the site runs it. Refuse a plan that the site cannot run."""

    def job_id(self, run: str) -> str:
        """Return the name of the job for a run."""

    def folders(self, run: str) -> Folders:
        """Create folders for a run."""

    def hosts(self, plan: Plan, attempt: Attempt, seen: Observation | None) -> Sequence[Host]:
        """Return the hosts of the newest attempt, and of older ones whose logs may not be fully read."""

    def line(self, text: str) -> str:
        """Return the program's output in a line of a log."""

    def impossible(self, loss: Loss) -> str:
        """Return why the site cannot inject a loss; empty if it can."""

    def leave(self, victims: Sequence[Host]) -> None:
        """Ask hosts to stop. The drill kills those that still run after the job's grace."""

    def preempt(self, victims: Sequence[Host], grace: float) -> None:
        """Take away the slice of these hosts."""

    def close(self) -> None: ...


class LocalSite:
    """Site of simulated slices on this machine."""

    round_seconds = 0.05
    limits_logs = True

    def __init__(self, folder: Path, clock: Clock) -> None:
        self._folder = folder
        self.place = LocalPlace(folder, clock)

    def prepare(self, plan: Plan) -> Plan:
        return self.place.prepare(plan)

    def job_id(self, run: str) -> str:
        return run

    def folders(self, run: str) -> Folders:
        workdir, traces = self._folder / "work" / run, self._folder / "traces" / run
        for path in (workdir, traces):
            path.mkdir(parents=True, exist_ok=True)
        return Folders(str(workdir), workdir, str(traces), traces)

    def hosts(self, plan: Plan, attempt: Attempt, seen: Observation | None) -> Sequence[Host]:
        handle, per_slice = Handle(plan, attempt), plan.slice.hosts
        pids = {host.name: host.pid for host in (seen.hosts if seen else ()) if host.state == "running" and host.pid}
        return [
            Host(
                attempt.number,
                number,
                number // per_slice,
                number % per_slice,
                (self.place.host_folder(handle, name) / "log",),
                (pids[name],) if name in pids else (),
            )
            for number, name in enumerate(plan.host_names)
        ]

    def line(self, text: str) -> str:
        return text

    def impossible(self, loss: Loss) -> str:
        if loss.what is What.PREEMPT and len(loss.hosts) == 1:
            return "a slice of one host: `term` is the same"
        return ""

    def leave(self, victims: Sequence[Host]) -> None:
        for host in victims:
            with suppress(ProcessLookupError):
                os.kill(host.pids[0], signal.SIGTERM)

    def preempt(self, victims: Sequence[Host], grace: float) -> None:
        self.leave(victims)

    def close(self) -> None:
        return
