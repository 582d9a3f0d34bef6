"""One run of a drill: a real job, driven to its end by the real driver, followed closely, with one loss injected."""

from __future__ import annotations

import math
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from tpukit.core.clock import Clock
from tpukit.drill import last_words
from tpukit.drill.following import Following
from tpukit.drill.limits import Limits
from tpukit.drill.losses import Loss, Struck, What
from tpukit.drill.outside import Outside
from tpukit.drill.parts import Parts
from tpukit.drill.saves import Moment, Save
from tpukit.drill.sites import Folders, Host, Site
from tpukit.drill.striking import Strike
from tpukit.drill.trace import Trace
from tpukit.jobs.controller.driver import Driver
from tpukit.jobs.plan import Plan
from tpukit.jobs.reasons import State
from tpukit.jobs.records import JOBS, Attempt, Job
from tpukit.kernel.store import Store, change
from tpukit.kernel.store.process import this_process
from tpukit.places.base import Handle, Observation

POLL_LEAST, POLL_MOST = 0.003, 0.05
STALL_AFTER = 60
"""Seconds after the drill gives up a silent run at which the job would end the attempt without a stack."""
RESTARTS = 2
"""Restarts for a program that fails by itself after a loss: it may recover."""


@dataclass(frozen=True, slots=True)
class Run:
    """Outcome of one run."""

    name: str
    state: State
    message: str
    attempts: tuple[Attempt, ...]
    trace: Trace
    saves: tuple[Save, ...]
    struck: tuple[Struck, ...] = ()
    began: float = 0.0
    seconds: float = 0.0
    given_up: str = ""  # why the drill stopped it
    damaged: str = ""  # the damaged file
    largest_log: int = 0
    ignore: frozenset[str] = frozenset()
    consists: Parts = field(default_factory=Parts)
    moments: tuple[Moment, ...] = ()  # of the unbroken run: contents of its workdir
    tails: Mapping[str, str] = field(default_factory=dict)  # ends of the logs of hosts that hung
    wrote: bool = False  # a file of the workdir had content
    outside: tuple[str, ...] = ()  # of the unbroken run: folders elsewhere that it wrote to
    pause: float = 0.0  # seconds between two looks at it


class Runs:
    """Make runs at one site, with one store and a workdir for each run."""

    def __init__(self, store: Store, site: Site, clock: Clock, *, retain: bool = False) -> None:
        self._store, self._site, self._clock, self._retain = store, site, clock, retain

    def run(self, plan: Plan, name: str, loss: Loss | None, limits: Limits) -> Run:
        folders = self._site.folders(name)
        plan = self._send(plan, name, folders, limits, loss)
        following = Following(folders, limits.ignore, plan.spec.progress or "", self._site.line, limits.consists)
        workdir = folders.workdir_path
        strike = Strike(loss, self._site, self._clock, workdir, limits) if loss else None
        try:
            return self._drive(plan, name, following, strike, limits)
        finally:
            if not self._retain:  # the checkpoints of twenty runs may fill a disk
                shutil.rmtree(folders.workdir_path, ignore_errors=True)
                shutil.rmtree(folders.traces_path, ignore_errors=True)

    def _send(self, plan: Plan, name: str, folders: Folders, limits: Limits, loss: Loss | None) -> Plan:
        spec = plan.spec
        stall = math.ceil(limits.silence) + STALL_AFTER
        if loss and loss.what is What.HANG:
            stall = limits.stall
        bounds = spec.max.replace(restarts=RESTARTS if loss else 0, stall=stall, runtime=None)
        bounds = bounds.written(bounds.given - {"stall"})  # compiling before the first step may take longer
        # A program that hangs writes its stack on SIGABRT.
        env = {"PYTHONFAULTHANDLER": "1", **spec.env, "TPUKIT_TRACE": folders.traces}
        spec = spec.replace(workdir=folders.workdir, env=env, rule="pre", tensorboard=False, max=bounds)
        plan = replace(plan, id=self._site.job_id(name), spec=spec)
        now = self._clock.now()
        job = Job(plan.id, plan.place, plan.team, "drill", now, plan=plan.to_json())
        self._store.create(JOBS, plan.id, job)
        return plan

    def _drive(
        self,
        plan: Plan,
        name: str,
        following: Following,
        strike: Strike | None,
        limits: Limits,
    ) -> Run:
        observed: list[Observation] = []
        driver = Driver(
            self._store,
            {self._site.place.name: self._site.place},
            self._clock,
            this_process(),
            observed=lambda _, seen: observed.append(seen),
        )
        began, heard = self._clock.now(), self._clock.monotonic()
        next_round, active, ended = 0.0, 1, -1
        attempt: Attempt | None = None
        given_up, tails = "", dict[str, str]()
        hosts: Sequence[Host] = ()
        quickest, last_reports = strike.quickest if strike else math.inf, dict[int, float]()
        outside = Outside([following.workdir, following.traces, Path(plan.workdir)])
        try:
            while True:
                if self._clock.monotonic() >= next_round:
                    active = driver.round([plan.id])
                    newest = self._store.get(JOBS, plan.id).value.attempt
                    if newest is not None and attempt is not None and newest.number != attempt.number:
                        heard = self._clock.monotonic()  # it may take as long as the first attempt
                    attempt = newest
                    next_round = self._clock.monotonic() + self._site.round_seconds
                if attempt is not None:
                    del observed[:-1]
                    hosts = self._site.hosts(plan, attempt, observed[0] if observed else None)
                    now = self._clock.now()
                    if strike is None:
                        outside.look(hosts)
                    for host in {report.host for report in following.poll(hosts, now)}:
                        heard = self._clock.monotonic()
                        # Per host: two hosts that make the same step report it almost at once.
                        quickest = min(quickest, now - last_reports.get(host, -math.inf))
                        last_reports[host] = now
                    if strike and active:
                        strike.consider(following.attempt, _running(hosts, following.attempt), following, now)
                    if attempt.state.ended and ended < attempt.number == following.attempt:
                        ended = attempt.number
                        following.saves.end()
                if not active:
                    break
                if not given_up and self._clock.monotonic() - heard > limits.silence:
                    given_up = f"no step was reported for {limits.silence:.0f} s"
                    tails = last_words.of_hosts(hosts, self._clock)
                    change(self._store, JOBS, plan.id, _stop)
                    if attempt is not None:
                        self._site.place.stop(Handle(plan, attempt), 0.0)  # its save would not be used
                self._clock.sleep(min(POLL_MOST, max(POLL_LEAST, quickest / 5)))
        finally:
            driver.close()
        job = self._store.get(JOBS, plan.id).value
        return Run(
            name,
            job.state,
            job.message,
            job.attempts,
            following.trace,
            following.saves.history,
            tuple(strike.struck) if strike else (),
            began,
            self._clock.now() - began,
            given_up,
            strike.damaged if strike else "",
            following.largest_log,
            limits.ignore,
            limits.consists,
            tuple(following.moments) if strike is None else (),
            tails,
            any(file.size for moment in following.moments for file in moment.files.values()),
            outside.folders,
            following.pause,
        )


def _running(hosts: Sequence[Host], attempt: int) -> dict[tuple[int, int], Host]:
    return {(host.slice, host.index): host for host in hosts if host.attempt == attempt and host.pids}


def _stop(job: Job) -> Job:
    from msgspec.structs import replace as with_fields

    return job if job.state.ended else with_fields(job, wanted="stop")
