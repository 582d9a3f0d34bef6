"""The store as machines reach it over the network, and the invariants of its records."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

from simulation.machines import Machine
from simulation.reading import Reads
from tpukit.code_queue.records import TPU_JOBS
from tpukit.jobs.reasons import MEANINGS, Budget, Reason, State
from tpukit.jobs.records import JOBS, Attempt, Job

if TYPE_CHECKING:
    from simulation.world import World

READS = ("get", "list", "keys", "events", "lease", "leases", "now")


class Truth:
    """The store itself, with a check of each job that is written."""

    def __init__(self, world: World, store: Any) -> None:
        self._world = world
        self._store = Reads(store) if hasattr(store, "_file") else store
        self._known: dict[str, Job] = {}

    def over(self, store: Any) -> Truth:
        """Return the checked store over another backend, with the same knowledge of jobs."""
        made = type(self)(self._world, store)
        made._known = self._known
        return made

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def jobs(self) -> list[Job]:
        """Return all readable jobs."""
        return list(self._known.values())

    def create(self, kind: Any, key: str, value: Any, **more: Any) -> Any:
        made = self._store.create(kind, key, value, **more)
        self._world.changes += 1
        if kind is JOBS:
            twice = [one for one in self._known if one != key and one.rpartition("-")[0] == key.rpartition("-")[0]]
            if twice:
                self._world.violate("doubled", f"records {key}; {twice[0]} was recorded by the same command")
            self._known[key] = value
        return made

    def put(self, kind: Any, entry: Any, value: Any, **more: Any) -> Any:
        written = self._store.put(kind, entry, value, **more)
        self._world.changes += 1
        if kind is JOBS:
            self._check(self._known.get(entry.key), value)
            self._known[entry.key] = value
        elif kind is TPU_JOBS:
            self._world.trace.add("record", f"{entry.key}: {value.status} {value.reason}")
            self._world.scene.check(entry.key, value)  # type: ignore[attr-defined]
        return written

    def _check(self, before: Job | None, job: Job) -> None:
        world = self._world
        if before == job:
            return
        shown = [f"{one.number} {one.reason or one.state}" for one in job.attempts]
        world.trace.add("record", f"{job.id}: {job.state} {shown} {job.message[:60]}")
        known = {attempt.number: attempt for attempt in before.attempts} if before else {}
        for attempt in job.attempts:
            old = known.get(attempt.number)
            if attempt.state.ended and (old is None or not old.state.ended):
                self._check_end(job, attempt)
        if job.state.ended and not (before and before.state.ended):
            self._check_outcome(job)

    def _check_end(self, job: Job, attempt: Attempt) -> None:
        world, hosts = self._world, self._world.hosts
        hosts.advance()
        training = hosts.began.get((job.id, attempt.number))
        asked = job.id in world.asked
        if training is not None and hosts.healthy(training) and not asked:
            world.violate("evidence", f"ends attempt {attempt.number} of {job.id} ({attempt.reason}), which is healthy")
        cause = training.cause if training else ""
        if attempt.reason is None:
            return
        if MEANINGS[attempt.reason].budget is Budget.USER and cause != "mistake":
            world.violate("budget", f"charges {attempt.reason} for attempt {attempt.number}; cause: {cause or 'none'}")
        if attempt.reason is Reason.CANNOT_START:
            world.violate("evidence", f"gives up attempt {attempt.number} of {job.id}: {attempt.detail}")
        if attempt.reason is Reason.DONE and cause != "done":
            world.violate("evidence", f"calls attempt {attempt.number} of {job.id} done; cause: {cause or 'none'}")

    def _check_outcome(self, job: Job) -> None:
        world = self._world
        mistakes = sum(1 for one in world.hosts.every if one.job == job.id and one.cause == "mistake")
        if job.state is State.CANCELLED and job.id not in world.asked:
            world.violate("lost", f"{job.id} ends cancelled, and no person asked for it: {job.message}")
        if job.state is State.FAILED and not mistakes and not world.quota_failed:
            world.violate("lost", f"{job.id} ends failed without a cause: {job.message}")
        if job.id not in world.asked:
            for training in world.hosts.of_job(job.id):
                world.violate("lost", f"{job.id} ends while attempt {training.number} runs")


class StoreOf:
    """The store as one machine reaches it."""

    def __init__(self, machine: Machine, real: Truth) -> None:
        self._machine, self._real = machine, real
        self.address = real.address

    @cached_property
    def sender(self) -> str:
        """Return the label of this store's hardware."""
        from tpukit.jobs.use_cases import session

        return session.sender_of(self)  # type: ignore[arg-type]

    def now(self) -> float:
        return float(self._real.now())

    def watch(self, kind: Any, wake: Any) -> Any:
        return lambda: None

    def close(self) -> None:
        pass

    def __getattr__(self, name: str) -> Any:
        real, machine = getattr(self._real, name), self._machine

        def call(*args: Any, **kwargs: Any) -> Any:
            def do() -> Any:
                machine.world.acting = machine.name
                return real(*args, **kwargs)

            key = next((str(one)[:40] for one in args if isinstance(one, str)), "")
            return machine.call("store", f"store {name} {key}", do)

        self.__dict__[name] = call
        return call
