"""Jobs on the local place, with drivers on two computers that share a store.

A person stops the drivers of the first one with Ctrl-Z, kills them, and reboots it.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any

from simulation import job_events, local_pods, people, records
from simulation.jobs_scene import JobsScene
from simulation.kube_jobsets import SAVE_SECONDS, Run, Runs
from simulation.machines import Machine
from simulation.plans import Event, JobPlan
from tpukit.core.errors import TpukitError
from tpukit.jobs import plan as plans
from tpukit.jobs.spec import JobSpec, Settings
from tpukit.kernel.store import Holder
from tpukit.places.local import place as local
from tpukit.places.local.place import LocalPlace
from tpukit.places.local.processes import Phase

if TYPE_CHECKING:
    from simulation.world import World

ELSEWHERE = 2
"""Number of the machine that is another computer."""


class Place(LocalPlace):
    """The real place on the simulated processes of a machine's computer."""

    def __init__(self, machine: Machine, pods: local_pods.LocalPods, store: str) -> None:
        super().__init__(machine.root, machine.clock, store)
        self._machine, self._pods = machine, pods

    def submit(self, handle: Any) -> None:
        self._with(super().submit, handle)

    def observe(self, handles: Any) -> Any:
        return self._with(super().observe, handles)

    def stop(self, handle: Any, grace: float) -> None:
        self._with(super().stop, handle, grace)

    def sweep(self, *words: Any, **more: Any) -> Any:
        return self._with(super().sweep, *words, **more)

    def _identity(self) -> str:
        return f"computer-{self._machine.root.name}"

    def _with(self, method: Any, *words: Any, **more: Any) -> Any:
        local.pods = self._pods  # type: ignore[assignment]
        with local_pods.using(self._machine):
            return method(*words, **more)


class LocalScene(JobsScene):
    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.pods = local_pods.LocalPods(self)
        self.runs = Runs()
        self.programs: dict[str, JobPlan] = {}
        self.saved: dict[str, float] = {}
        self.numbers: dict[str, tuple[int, str]] = {}  # ids and start times of driver processes, by holder
        self.reused: set[int] = set()  # ids that later went to other programs
        world.hosts = self.runs  # type: ignore[assignment]
        local_pods.TABLE.scene = self
        for machine in world.machines[:ELSEWHERE]:
            machine.root, machine.clock = world.machines[0].root, world.machines[0].clock
        world.person.root = world.machines[0].root

    def holder(self, machine: Machine, number: int) -> Holder:
        name = f"{machine.name}/{number}"
        if name not in self.numbers:
            self.numbers[name] = self.pods.new_process()
        pid, started = self.numbers[name]
        return Holder(name, self.computer(machine.name), pid, started, "ada")

    def started(self, pid: int) -> str:
        """Return when the process that has this id now began, or "" if there is none."""
        for machine in self.world.machines[:ELSEWHERE]:
            number, at = self.numbers.get(f"{machine.name}/{machine.process}", (0, ""))
            if number == pid and not machine.down:
                return at
        return "later" if pid in self.reused else ""

    def computer(self, name: str) -> str:
        return "another" if name == f"machine-{ELSEWHERE}" else f"desk/{self.pods.boot}"

    def time(self) -> float:
        return self.world.machines[0].clock.now()

    def reach(self, machine: Machine) -> tuple[Any, dict[str, Any]]:
        return records.StoreOf(machine, self.world.store), {"local": Place(machine, self.pods, "this store")}

    def send_due(self, machine: Machine, store: Any, places: Any, driver: Any) -> None:
        scheduler = self.world.scheduler
        for index, job in enumerate(self.world.plan.jobs):
            if index not in self.sent and scheduler.now - scheduler.start >= job.at:
                try:
                    self._send(machine, store, places, driver, index, job)
                except TpukitError as error:
                    self.world.trace.add(machine.name, f"send: {error.message[:80]}")

    def _send(self, machine: Machine, store: Any, places: Any, driver: Any, index: int, job: JobPlan) -> None:
        from tpukit.cli import context
        from tpukit.jobs.use_cases import submission

        made = _plan(index, job)
        if made.id not in {one.id for one in self.world.store.jobs()}:
            self.programs[made.id] = job
            made = self.world.jobs[made.id] = places["local"].prepare(made)
            with people.at(machine, store, places, driver.leases.holder):
                submission.record(context.session(), made, "ada")
        self.sent.add(index)
        self.world.trace.add(machine.name, f"sent {made.id}")

    # Ground truth

    def begin(self, job: str, number: int) -> Run:
        world = self.world
        for other in self.runs.of_job(job):
            world.violate("doubled", f"attempt {number} of {job} begins while attempt {other.number} runs")
        record = world.store._known.get(job)
        if record is not None and record.state.ended:
            world.violate("stale", f"starts attempt {number} of {job}, which is {record.state}")
        run = Run(job, number, "", world.scheduler.now)
        self.runs.every.append(run)
        self.runs.began[job, number] = run
        return run

    def lasts(self, job: str) -> tuple[float, int]:
        """Return the seconds until the program ends, and its exit code."""
        plan = self.programs[job]
        left = max(1.0, plan.seconds - self.saved.get(job, 0.0))
        return (plan.mistake, 1) if plan.mistake and plan.mistake < left else (left, 0)

    def broke(self, run: Run, cause: str) -> None:
        if run.broken == math.inf:
            run.broken, run.cause = self.world.scheduler.now, cause
            kept = (run.broken - run.began) // SAVE_SECONDS * SAVE_SECONDS
            self.saved[run.job] = self.saved.get(run.job, 0.0) + (0.0 if cause == "mistake" else kept)

    # World

    def happen(self, event: Event) -> bool:
        running = sorted(name for name, host in self.pods.hosts.items() if host.phase is Phase.RUNNING)
        if event.kind == "kill host":
            if running:
                self.pods.lose(running[event.which % len(running)])
        elif event.kind == "reboot":
            self._reboot(event)
        elif event.kind == "reuse pid":
            self.reused |= {pid for pid, _ in self.numbers.values() if not self.started(pid)}
        else:
            return event.kind in ("no rights", "foreign", "clear state") or job_events.happen(self.world, self, event)
        return True

    def _reboot(self, event: Event) -> None:
        """Cut the computer's power: its drivers and hosts are gone without a record of how they ended."""
        self.pods.reboot()
        for machine in self.world.machines[:ELSEWHERE]:
            if not machine.down:
                machine.process += 1
                self.world.restart(machine, event.seconds)

    def may_lose(self, machine: Machine) -> bool:
        return len(self.sent) == len(self.world.plan.jobs) and len(self.world.machines) >= ELSEWHERE

    def held(self, job_id: str) -> list[str]:
        return [name for name in self.left() if f"/{job_id}/" in name]

    def left(self) -> list[str]:
        return [name for name, host in self.pods.hosts.items() if host.phase is Phase.RUNNING]


@cache
def _plan(index: int, job: JobPlan) -> plans.Plan:
    fields: dict[str, Any] = {"slices": job.slices, "rule": job.rule, "max": {"restarts": job.restarts}}
    spec = JobSpec.from_json({"name": f"job{index}", "tpu": job.tpu, "command": ["train"], **fields})
    return replace(plans.make(spec, Settings(), "local"), snapshot=None)
