"""Jobs on TPU VMs, with the real driver and the real place. The test chooses the cloud."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from support.waiting import until
from tpukit.core.clock import SystemClock
from tpukit.core.errors import Invalid, TpukitError
from tpukit.jobs import plan
from tpukit.jobs import snapshots as stage
from tpukit.jobs.controller.driver import Driver
from tpukit.jobs.plan import VmTarget
from tpukit.jobs.reasons import Reason
from tpukit.jobs.records import JOBS, Job
from tpukit.jobs.spec import JobSpec, Settings
from tpukit.kernel.store import change
from tpukit.kernel.store.process import this_process
from tpukit.kernel.store.sqlite import SqliteStore
from tpukit.places.base import Handle, Observation
from tpukit.places.tpu_vm import TpuVmPlace

SENDER = "this-store"
SETTINGS = {"project": "tpu-project", "zone": "us-central2-b", "ssh_user": "ada"}


class HurriedClock(SystemClock):
    """A clock on which retries wait a tenth as long."""

    def monotonic(self) -> float:
        return super().monotonic() * 10


class Driving:
    def __init__(
        self, folder: Path, make_place: Callable[[Path, SystemClock], TpuVmPlace], machine: str = "data"
    ) -> None:
        """Take `machine`, the name of its own folder beside the store that machines share."""
        self.folder, self.clock = folder, HurriedClock()
        self.store = SqliteStore(folder / "store.db", now=self.clock.now)
        self.place = make_place(folder / machine, self.clock)
        self.seen: dict[str, Observation] = {}
        self.notes: list[str] = []
        self.driver = Driver(
            self.store,
            {"tpu-vm": self.place},
            self.clock,
            this_process(),
            report=lambda job, text: self.notes.append(text),
            complain=lambda job, text: self.notes.append(text),
            observed=self.seen.__setitem__,
        )

    def close(self) -> None:
        self.driver.close()
        self.place.close()
        self.store.close()

    def send(
        self,
        script: str | list[str],
        on: tuple[str, ...] = (),
        code: Path | None = None,
        target: VmTarget | None = None,
        settings: Mapping[str, str] | None = None,
        **fields: Any,
    ) -> str:
        command = ["sh", "-c", script] if isinstance(script, str) else script
        spec = JobSpec.from_json({"name": "train", "tpu": "v4-16", "command": command, **fields})
        made = plan.make(
            spec, Settings.from_json({**SETTINGS, **(settings or {})}), "tpu-vm", taken=self.store.keys(JOBS, "train")
        )
        if on or target:
            made = replace(made, target=target or VmTarget("", "", "", on))
        if code:
            made = replace(made, snapshot=stage.snapshot(code, self.folder / "data" / "code"))
        made = self.place.prepare(made)
        if problems := self.place.check(made):
            raise Invalid(problems)
        now = self.clock.now()
        self.store.create(JOBS, made.id, Job(made.id, "tpu-vm", made.team, "ada", now, plan=made.to_json()))
        return made.id

    def job(self, job_id: str) -> Job:
        return self.store.get(JOBS, job_id).value

    def until(self, job_id: str, true: Callable[[Job], Any], what: str, every: float = 0.05) -> Job:
        """Drive until the condition holds."""

        def reached() -> Job | None:
            self.driver.round([job_id])
            job = self.job(job_id)
            return job if true(job) else None

        def told() -> str:
            job = self.job(job_id)
            return f"{what}; it is {job.state}: {job.message}; {[one.reason for one in job.attempts]}; {self.notes}"

        return until(reached, told, every=every)

    def ended(self, job_id: str) -> Job:
        return self.until(job_id, lambda job: job.state.ended, f"{job_id} to end")

    def running(self, job_id: str, attempt: int = 0) -> Job:
        def runs(job: Job) -> bool:
            return job.state == "running" and len(job.attempts) == attempt + 1

        return self.until(job_id, runs, f"attempt {attempt} of {job_id} to run")

    def stop(self, job_id: str) -> None:
        change(self.store, JOBS, job_id, lambda job: _wanted(job, "stop"))

    def log(self, job_id: str, attempt: int = 0) -> list[str]:
        return [line.text for line in self.place.logs(Handle.of(self.job(job_id), attempt))]

    def observe(self, job_id: str) -> Observation:
        (seen,) = self.place.observe([Handle.of(self.job(job_id))])
        if isinstance(seen, TpukitError):
            raise seen
        return seen


def reasons(job: Job) -> list[Reason | None]:
    return [attempt.reason for attempt in job.attempts]


def _wanted(job: Job, what: str) -> Job:
    return msgspec.structs.replace(job, wanted=what)
