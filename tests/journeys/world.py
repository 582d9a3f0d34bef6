"""A world to drive jobs through: a real store, the real loop, a manual clock, and a place whose hosts follow a script.

The place refuses calls that would harm a real one (two live attempts of a job, an attempt out of turn, an act on a job
that has ended), and after every tick the world checks the invariants.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from journeys.bare_place import BarePlace
from tpukit.core.clock import ManualClock
from tpukit.core.errors import Invalid, TpukitError, Transient
from tpukit.jobs import plan
from tpukit.jobs.controller.driver import Driver
from tpukit.jobs.reasons import Reason, State
from tpukit.jobs.records import ACTIVE, JOBS, Job
from tpukit.jobs.spec import JobSpec, Settings
from tpukit.kernel.store import Event, Holder, Store, change, everything
from tpukit.kernel.store.process import this_process
from tpukit.kernel.store.sqlite import SqliteStore
from tpukit.places.base import Handle, HostView, Observation
from tpukit.places.capabilities import Capabilities

TICK = 1.0


class Killed(BaseException):
    """A kill of the driving process. None of its code may run afterwards, not even error handlers."""


@dataclass(frozen=True, slots=True)
class Try:
    """The script of one attempt."""

    reason: Reason = Reason.DONE
    runs: float = 2.0  # seconds until it ends by itself
    saves: int = 0  # steps it saves in addition to those it found
    hangs: bool = False  # reports a first step, then none, and never ends by itself
    refusals: int = 0  # submits that fail before one is accepted
    leaves: float = 1.0  # seconds from a stop to the exit
    impossible: bool = False  # its first host starts, and the others never can


@dataclass
class Running:
    """The state of an attempt in the place."""

    script: Try
    hosts: list[str] = field(default_factory=list)  # those that have begun
    refusals: int = 0
    began: float = 0.0
    told: float | None = None
    leaves_by: float = 0.0
    found: int = -1  # the step it resumed from

    def ends(self) -> float:
        never = self.script.hangs or not self.hosts  # an attempt stopped before it began does not end by itself
        by_itself = float("inf") if never else self.began + self.script.runs
        return by_itself if self.told is None else min(by_itself, self.leaves_by)


class SimulatedPlace(BarePlace):
    capabilities = Capabilities(uses_this_machine=True)

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self._scripts: dict[str, Sequence[Try]] = {}
        self.attempts: dict[tuple[str, int], Running] = {}
        self.begun: Counter[tuple[str, int, str]] = Counter()  # starts of each host
        self.acts: defaultdict[str, int] = defaultdict(int)
        self.half_submits = False  # the next submit is interrupted midway

    def script(self, job_id: str, tries: Sequence[Try]) -> None:
        self._scripts[job_id] = tries

    def live(self, job_id: str) -> list[int]:
        now = self._clock.now()
        return [number for (job, number), it in self.attempts.items() if job == job_id and it.hosts and now < it.ends()]

    def submit(self, handle: Handle) -> None:
        job_id, attempt = handle.plan.id, handle.attempt
        self.acts[job_id] += 1
        assert not attempt.state.ended, f"{job_id} attempt {attempt.number} has ended and is submitted"
        assert not [number for number in self.live(job_id) if number != attempt.number], "two live attempts"
        it = self._attempt(handle)
        if it.refusals < it.script.refusals:
            it.refusals += 1
            raise Transient("the place is busy")
        for name in self._names(handle):
            if name not in it.hosts and it.told is None:
                self.begun[job_id, attempt.number, name] += 1
                it.hosts.append(name)
                it.began = self._clock.now()
                if it.script.impossible:
                    raise Invalid("the workdir is a file")
                if self.half_submits:
                    self.half_submits = False
                    raise Killed

    def observe(self, handles: Sequence[Handle]) -> Sequence[Observation | TpukitError]:
        return [self._observe(handle) for handle in handles]

    def stop(self, handle: Handle, grace: float) -> None:
        self.acts[handle.plan.id] += 1
        it = self._attempt(handle)
        if it.told is None:
            it.told = self._clock.now()
            it.leaves_by = it.told + (min(grace, it.script.leaves) if it.hosts else 0.0)

    def _attempt(self, handle: Handle) -> Running:
        key = (handle.plan.id, handle.attempt.number)
        if key not in self.attempts:
            before = sum(1 for job, _ in self.attempts if job == handle.plan.id)
            assert handle.attempt.number == before, f"attempt {handle.attempt.number} comes after {before} others"
            script = self._scripts[handle.plan.id][handle.attempt.number]
            self.attempts[key] = Running(script, found=handle.attempt.saved)
        return self.attempts[key]

    def _observe(self, handle: Handle) -> Observation:
        now = self._clock.now()
        it = self.attempts.get((handle.plan.id, handle.attempt.number))
        names = self._names(handle)
        if it is None or (len(it.hosts) < len(names) and it.told is None):
            begun = it.hosts if it else []
            states = ["running" if name in begun else "waiting" for name in names]
            return Observation(State.PENDING, self._views(names, states), active=bool(begun))
        saved = it.found + it.script.saves if it.script.saves else -1
        if now < it.ends():
            views = self._views(names, ["running"] * len(names), it, now)
            return Observation(State.RUNNING, views, it.began, saved, ran=now - it.began)
        views = self._views(names, ["ended"] * len(names), it, now)
        over: dict[str, Any] = {"active": False, "ended": it.ends()}
        if it.told is not None and it.ends() == it.leaves_by:
            return Observation(State.FAILED, views, it.began, saved, Reason.CANCELLED, **over)
        reason = it.script.reason
        state = State.COMPLETED if reason is Reason.DONE else State.FAILED
        return Observation(state, views, it.began, saved, reason, "" if reason is Reason.DONE else names[-1], **over)

    @staticmethod
    def _names(handle: Handle) -> list[str]:
        return [plan.host_name(handle.plan.id, 0, index) for index in range(handle.plan.slice.hosts)]

    def _views(self, names: Sequence[str], states: Sequence[str], it: Running | None = None, now: float = 0.0) -> Any:
        moved = 0.0 if it is None else (it.began if it.script.hangs else now)
        step = None if it is None else 1 if it.script.hangs else max(0, it.found) + int(now - it.began)
        heard = self._clock.monotonic()
        return tuple(
            HostView(
                name, 0, index, state, pid=0 if state == "waiting" else 100 + index, step=step, moved=moved, heard=heard
            )
            for index, (name, state) in enumerate(zip(names, states, strict=True))
        )


class Fuse:
    """A fuse that kills the driving process at its nth outside call, either before it or midway in a submit."""

    def __init__(self) -> None:
        self.calls = 0
        self.log: list[str] = []
        self._at: dict[int, str] = {}
        self._meanwhile: dict[str, Callable[[], object]] = {}

    def set(self, at: int, how: str) -> None:
        self._at[at] = how

    def just_before(self, name: str, action: Callable[[], object]) -> None:
        """Run `action` between the driver's last act and its next call of that name."""
        self._meanwhile[name] = action

    def around(self, target: object, *methods: str) -> Any:
        return _Fused(self, target, methods)

    def call(self, name: str, target: Any, arguments: tuple[Any, ...], options: dict[str, Any]) -> Any:
        self._meanwhile.pop(name, lambda: None)()
        how = self._at.pop(self.calls, "")
        self.calls += 1
        self.log.append(name)
        if how == "midway" and name == "submit":
            target.half_submits = True
        elif how:
            raise Killed
        return getattr(target, name)(*arguments, **options)


class _Fused:
    def __init__(self, fuse: Fuse, target: object, methods: Sequence[str]) -> None:
        self._fuse, self._target, self._methods = fuse, target, methods

    def __getattr__(self, name: str) -> Any:
        if name not in self._methods:
            return getattr(self._target, name)
        return lambda *arguments, **options: self._fuse.call(name, self._target, arguments, options)


class World:
    """A world of drivers.

    With `elsewhere`, each driver has its own machine, and the others wait until its leases lapse.
    """

    def __init__(self, folder: Path, *, parallel: int = 0, elsewhere: bool = False, place: Any = None) -> None:
        self._folder, self._parallel, self._elsewhere = folder, parallel, elsewhere
        self.clock = ManualClock()
        self.place = place(self.clock) if place else SimulatedPlace(self.clock)
        self.fuse = Fuse()
        self.complaints: list[str] = []
        self._drivers = 0
        self.store = self._open()
        self.driver = self._new_driver()
        self._ended: dict[str, tuple[Job, int]] = {}

    def close(self) -> None:
        self.store.close()

    def send(self, *tries: Try, name: str = "train", **fields: Any) -> str:
        spec = JobSpec.from_json({"name": name, "tpu": "v4-16", "command": ["x"], "rule": "pre", **fields})
        made = plan.make(spec, Settings(), "local", taken=self.store.keys(JOBS, name))
        if tries:
            self.place.script(made.id, tries)
        job = Job(made.id, "local", "team", "me", self.clock.now(), plan=made.to_json())
        self.store.create(JOBS, made.id, job, events=[Event(self.clock.now(), "sent")])
        return made.id

    def ask(self, job_id: str, wanted: str) -> None:
        """Write a request as `tpu job stop|resume|rerun` does."""

        def asked(job: Job) -> Job:
            if wanted == "stop":
                return job if job.state.ended else replace(job, wanted="stop")
            assert job.state.ended
            return replace(job, state=State.PENDING, wanted=wanted, reason=None, message="", ended=0.0)

        change(self.store, JOBS, job_id, asked)
        if wanted != "stop":
            self._ended.pop(job_id, None)

    def tick(self) -> int:
        """Run one round by a driver. If it is killed, another driver takes over."""
        try:
            active = self.driver.round()
        except Killed:
            if not self._elsewhere:  # the machine knows that the process is dead
                for lease in self.store.leases():
                    self.store.release(lease)
            self.store.close()
            self.store = self._open()
            self.driver = self._new_driver()
            active = 1
        self.check()
        self.clock.sleep(TICK)
        return active

    def run(self, most: int = 500) -> None:
        """Run until no job is active."""
        for _ in range(most):
            if not self.tick():
                return
        raise AssertionError(f"jobs are still active: {self.active()}")

    def until(self, condition: Callable[[], bool], most: int = 500) -> None:
        for _ in range(most):
            if condition():
                return
            self.tick()
        raise AssertionError("it never came to pass")

    def active(self) -> list[Job]:
        return [entry.value for entry in everything(self.store, JOBS, states=ACTIVE)]

    def job(self, job_id: str) -> Job:
        return self.store.get(JOBS, job_id).value

    def summary(self, job_id: str) -> tuple[Any, ...]:
        """Return the state and reason of a job, and the outcome of each attempt."""
        job = self.job(job_id)
        tries = [
            (attempt.number, attempt.stage, attempt.origin, attempt.reason, attempt.saved) for attempt in job.attempts
        ]
        return job.state, job.reason, tries

    def check(self) -> None:
        for entry in everything(self.store, JOBS):
            job = entry.value
            numbers = [attempt.number for attempt in job.attempts]
            folded = job.folded.count if job.folded else 0
            assert numbers == list(range(folded, folded + len(numbers)))
            assert all(attempt.state.ended and attempt.reason for attempt in job.attempts[:-1])
            launched = [
                event
                for event in self.store.events(JOBS, job.id)
                if event.text.startswith("attempt ") and "stage" in event.text
            ]
            assert len(launched) == folded + len(numbers)
            live = self.place.live(job.id)
            if job.state.ended:
                assert not live, f"{job.id} has ended and attempt {live} runs"
            if isinstance(self.place, SimulatedPlace):
                assert len(live) <= 1
                assert all(number == numbers[-1] for number in live)
                if job.state.ended:
                    before = self._ended.setdefault(job.id, (job, self.place.acts[job.id]))
                    assert before == (job, self.place.acts[job.id]), f"something was done to {job.id} after its end"
        if isinstance(self.place, SimulatedPlace):
            assert all(times == 1 for times in self.place.begun.values()), "a host was started twice"

    def _open(self) -> Store:
        return SqliteStore(self._folder / "store.db", now=self.clock.now)

    def _new_driver(self) -> Driver:
        """Create a driver in a new process, on this machine or another one."""
        self._drivers += 1
        name, me = f"driver-{id(self)}-{self._drivers}", this_process()
        holder = Holder(name, f"machine of {name}" if self._elsewhere else me.machine, me.pid, me.started)
        store = self.fuse.around(self.store, "list", "get", "put", "acquire", "lease", "release")
        place = self.fuse.around(self.place, "submit", "observe", "stop")
        return Driver(
            store,
            {"local": place},
            self.clock,
            holder,
            parallel=self._parallel,
            complain=lambda job_id, text: self.complaints.append(text),
        )
