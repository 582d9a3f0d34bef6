"""One simulated world: machines with real drivers over a real store, a simulated cloud, and the ground truth.

`World(plan).run()` returns the violation of an invariant, if any, and a hash of the whole history.
"""

from __future__ import annotations

import math
import random
import shutil
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from simulation import events, records, scenes
from simulation.engine import Scheduler, Trace
from simulation.hosts import Hosts
from simulation.machines import Crashed, Machine
from simulation.plans import Event, MachinePlan, Plan
from simulation.stores import Home
from simulation.tpu_cloud import Cloud
from support.simulated_trainings import Training
from tpukit.core.errors import TpukitError

START = 1_700_000_000.0
MINUTE = 60.0
LONGEST = 90 * MINUTE
"""Simulated seconds after the last fault in which everything that can end must have ended."""

AFTER = 60.0
"""Simulated seconds for which everything must be over before a world ends while faults may still happen."""
QUIET = 25.0
"""Maximum seconds between two rounds of an idle machine, well below a lease: most of simulated time is waiting."""


@dataclass(frozen=True, slots=True)
class Violation:
    invariant: str
    text: str
    at: float


@dataclass(frozen=True, slots=True)
class Result:
    plan: Plan
    violation: Violation | None
    digest: str
    lines: list[str]
    seconds: float  # simulated
    calls: int
    first_calls: int = 0  # of the first machine


class Stop(Exception):
    """The first violation, which ends the world."""


class World:
    def __init__(self, plan: Plan, home: Home, folder: Path, *, kept: bool = False) -> None:
        self.plan, self.home, self.folder = plan, home, folder
        self.scheduler = Scheduler(plan.seed, START)
        self.trace = Trace(self.scheduler, str(folder), kept=kept)
        self.dice = random.Random(plan.seed)
        self.clock = events.WorldClock(self.scheduler)
        self.hosts = Hosts(self.clock, self.dice, world=self)  # type: ignore[arg-type]
        self.cloud = Cloud(folder, clock=self.clock, dice=self.dice, trainings=self.hosts, world=self)  # type: ignore[arg-type]
        home.begin(self.clock.now, plan.home, lambda: self.scheduler.sleep(0.02 * self.spread(self.scheduler.steps)))
        self.store = records.Truth(self, home.store)
        self.blocked = 0.0  # until when hosts are unreachable by SSH
        self.troubled = True
        self.acting = ""
        self.changes = 0  # count of changing requests, written records, faults and events
        self.asked: set[str] = set()  # jobs that a person asked to stop or forget
        self.quota_failed = False
        self.jobs: dict[str, Any] = {}  # plans of jobs by id, in order of sending
        self.violation: Violation | None = None
        self.ended = False
        self.over_since = math.inf
        self.under_way = len(plan.events)  # events that have not begun, and requests that have not arrived
        self.machines = [Machine(self, index, one, folder / f"m{index}") for index, one in enumerate(plan.machines)]
        self.person = Machine(self, -1, MachinePlan(latency=0.01), folder / "person")
        self.scene = scenes.make(self)

    # Running

    def run(self) -> Result:
        for machine in self.machines:
            self.restart(machine, machine.plan.starts)
        for event in self.plan.events:
            self.scheduler.spawn(lambda event=event: events.happen(self, event), event.at)  # type: ignore[misc]
        for machine in self.machines:
            if machine.plan.dies:
                self.scheduler.spawn(lambda machine=machine: self._die(machine), machine.plan.dies)  # type: ignore[misc]
        try:
            self.scheduler.run(START + self.plan.calm, self._over)
            if self.violation is None:
                self._calm_down()
                self.scheduler.run(START + self.plan.calm + LONGEST, self._over)
                if self.violation is None and not self.ended:
                    self._judge_end()
        except Stop:  # from a person
            pass
        finally:
            self.scheduler.close()
            shutil.rmtree(self.folder, ignore_errors=True)
        calls = sum(one.calls for one in self.machines)
        passed = self.scheduler.now - START
        first = self.machines[0].calls
        return Result(self.plan, self.violation, self.trace.digest, self.trace.lines, passed, calls, first)

    def restart(self, machine: Machine, after: float) -> None:
        """Start a process on a machine. A later call supersedes it, so that one process runs there at a time."""
        machine.restarts += 1
        ticket = machine.restarts
        self.scheduler.spawn(lambda: self._process(machine, ticket), after)

    def later(self, seconds: float, what: str, do: Callable[[], Any]) -> None:
        """Deliver a request that is still in transit after `seconds`."""

        def arrive() -> None:
            self.trace.add("late", what)
            self.changes += 1
            self.under_way -= 1
            try:
                do()
            except TpukitError:
                pass
            except Stop:
                return

        self.under_way += 1
        self.scheduler.spawn(arrive, seconds)

    def happen(self, kind: str, after: float) -> None:
        event = Event(round(self.scheduler.now - START + after, 1), kind, 0, 60.0)
        self.scheduler.spawn(lambda: events.happen(self, event), after)

    def spread(self, number: int) -> float:
        return 0.2 + zlib.crc32(b"%d/%d" % (self.plan.seed, number)) / 0xFFFFFFFF

    def stepped(self) -> None:
        if self.violation is not None:
            raise Stop

    def violate(self, invariant: str, text: str) -> None:
        if self.violation is None:
            self.trace.add("TRUTH", f"VIOLATION {invariant}: {self.acting} {text}")
            text = text.replace(str(self.folder), "~")
            self.violation = Violation(invariant, f"{self.acting} {text}", self.scheduler.now - START)

    # Ground truth

    def check_end(self, training: Training, what: str) -> None:
        """Check, before a training is ended, that a person asked for it or that it is broken already."""
        if training.job not in self.jobs:
            if self.plan.scene != "jobs":
                return
            self.violate("foreign", f"{what}, on which {training.job} of another user runs")
        elif training.job not in self.asked and self.hosts.healthy(training):
            self.violate("healthy", f"{what} while attempt {training.number} of {training.job} is healthy")

    # Processes

    def _process(self, machine: Machine, ticket: int) -> None:
        number = machine.process
        if machine.down or machine.restarts != ticket:
            return
        self.trace.add(machine.name, "starts")
        machine.driving = number
        try:
            self._drive(machine, number)
        except Crashed:
            self.trace.add(machine.name, "process gone")
        except Stop:
            pass

    def _drive(self, machine: Machine, number: int) -> None:
        step, leases = self.scene.process(machine, number)
        if machine.plan.renews and leases is not None:
            self.scheduler.spawn(lambda: self._renew(machine, number, leases), 7.5)
        wait, known = machine.plan.tick, self.changes
        while machine.process == number and not machine.down:
            try:
                step()
            except TpukitError as error:
                self.trace.add(machine.name, f"round: {error.message[:80]}")
            self.stepped()
            wait = min(2 * wait, max(wait, QUIET)) if self.changes == known else machine.plan.tick
            known = self.changes
            self.scheduler.sleep(wait)

    def _renew(self, machine: Machine, number: int, leases: Any) -> None:
        try:
            while machine.process == number and not machine.down:
                if machine.suspended > self.scheduler.now:
                    self.scheduler.sleep(machine.suspended - self.scheduler.now + 0.5)
                    continue
                leases.renew()
                self.scheduler.sleep(7.5)
        except (Crashed, Stop):
            pass

    def _die(self, machine: Machine) -> None:
        if self.scene.may_lose(machine) and len(self.machines) > 1:
            self.trace.add(machine.name, "is gone for good")
            machine.down = True

    # End

    def _calm_down(self) -> None:
        """Stop all faults, and start a spare machine if none is left."""
        self.trace.add("world", "calm")
        self.troubled, self.blocked, self.cloud.no_quota = False, 0.0, 0.0
        self.cloud.short.clear()
        self.scene.calm()
        for machine in self.machines:
            machine.cut.clear()
            machine.deaf.clear()
            if machine.plan.rights:
                machine.denied.clear()
        if all(machine.down or not machine.plan.rights for machine in self.machines):
            spare = Machine(self, len(self.machines), MachinePlan(), self.folder / "spare")
            self.machines.append(spare)
            self.restart(spare, 0.0)

    def _over(self) -> bool:
        if self.violation is not None:
            return True
        if self.scheduler.steps % 4:
            return False
        now, over = self.scheduler.now, self.scene.over()
        waits = self.troubled and (self.under_way or any(one.suspended > now for one in self.machines))
        if not over or waits:
            self.over_since = math.inf
            return False
        self.over_since = min(self.over_since, now)
        self.ended = not self.troubled or now - self.over_since >= AFTER
        return self.ended

    def _judge_end(self) -> None:
        self.acting = "world"
        self.scene.judge()
