"""A worker: takes one job after the other, runs its code in a separate process, and writes the outcome.

The process for the next job is started ahead, with the common libraries loaded. While code runs, a thread renews the
lease and watches for cancellation; a worker that could not renew it in time ends the code itself, because another
worker may have the job by then.
"""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from msgspec.structs import replace

from tpukit.code_queue import claims, decide, slices
from tpukit.code_queue.child import Child, Limits, fresh_folder
from tpukit.code_queue.claims import Claim
from tpukit.code_queue.decide import Outcome
from tpukit.code_queue.records import RUNNING, SCHEDULED, TPU_JOBS, QueuedJob
from tpukit.code_queue.results import Results
from tpukit.core import retry
from tpukit.core.clock import SYSTEM
from tpukit.core.errors import Conflict, Invalid, NotFound, TpukitError, Transient
from tpukit.jobs.reasons import MEANINGS, Budget, Reason
from tpukit.kernel.store import Holder, Store, change

IDLE_SECONDS = 10.0
"""Seconds between reads of the queue without a hint."""
CANCEL_SECONDS = 1.0
"""Minimum seconds between reads after hints that something changed."""
PEER_SECONDS = 3.0
"""Seconds for which the first host waits for another one to report why it left."""
PEER_ERROR = 10_000
log = logging.getLogger("tpukit.code_queue")


@dataclass(frozen=True, slots=True)
class Settings:
    runs: Path  # folder for files of running processes
    results: str  # folder or gs:// address for results too large for documents
    cache: Path | None = None  # of compiled programs, across jobs
    limits: Limits = field(default_factory=Limits)
    preload: Sequence[str] = ()
    tpu: str = ""  # slice that this machine is; empty: it has no TPU
    grace: float = 20.0  # seconds that code may continue after SIGTERM to the worker


class Worker:
    """A worker of the queue. Call `run` in one thread, `wake` and `leave` from any."""

    def __init__(
        self, store: Store, holder: Holder, settings: Settings, say: Callable[[str, str], None] = lambda key, text: None
    ) -> None:
        # Separate names, so that two workers in one process do not share leases.
        self._store, self._holder = store, replace(holder, name=f"{holder.name}/{id(self):x}")
        self._settings, self._say = settings, say
        self._results = Results(settings.results)
        self._dice = random.Random()  # noqa: S311
        self._hint, self._leave = threading.Event(), threading.Event()
        self._next: Child | None = None
        self.ran = 0
        self.busy = False

    def wake(self) -> None:
        """Wake the worker after a change in the store."""
        self._hint.set()

    @property
    def leaving(self) -> bool:
        return self._leave.is_set()

    def leave(self) -> None:
        self._leave.set()
        self._hint.set()

    def run(self) -> None:
        """Run jobs until told to leave."""
        try:
            while not self._leave.is_set():
                self._hint.clear()
                try:
                    if not self.step():
                        self._hint.wait(IDLE_SECONDS)
                except TpukitError as error:
                    self._say("queue", f"{error}; retrying")
                    self._leave.wait(5.0)
                except Exception:
                    log.exception("a worker failed; continuing with the next job")
                    self._leave.wait(5.0)
        finally:
            if self._next:
                self._next.close()

    def step(self) -> bool:
        """Run one job, if there is one, and return whether there was."""
        child = self._ready()
        claim = claims.take(*(self._store, self._holder, self._dice), lambda job: slices.fits(job, self._settings.tpu))
        if claim is None:
            return False
        self._next = None
        self._serve(claim, child)
        return True

    def run_one(self, key: str, status: str) -> bool:
        """Run the one job that this worker was started for; return False if it is unavailable."""
        child = self._ready()
        entry = self._store.get(TPU_JOBS, key)
        claim = None
        if decide.claimable(entry.value, self._store.now(), status):
            claim = claims.take_one(self._store, self._holder, entry)
        self._next = None
        if claim is None:
            child.close()
            return False
        self._serve(claim, child)
        return True

    def accompany(self, key: str) -> bool:
        """Run the code of a job on another host of the slice than the first one.

        The worker on the first host claims the job and writes the outcome: a program over several hosts is the same on
        each. Return False if the code was stopped before its end.
        """
        child = self._ready()
        self._next = None
        unwatch = self._store.watch(TPU_JOBS, self._hint.set)
        try:
            job = self._wait_for_start(key)
            if job is None:
                return False
            ended = threading.Event()
            watching = threading.Thread(target=self._watch_first_host, args=(key, job, child, ended), daemon=True)
            watching.start()
            outcome = child.run(job.code, float(job.timeout))
            ended.set()
            self._hint.set()
            watching.join()
            if MEANINGS[outcome.reason].budget is Budget.USER:
                self._blame(key, job, outcome)
            self._say(key, f"{outcome.reason} on this host: {outcome.error or outcome.result}")
            return not self._leave.is_set()
        finally:
            unwatch()
            child.close()

    def _wait_for_start(self, key: str) -> QueuedJob | None:
        while not self._leave.is_set():
            self._hint.clear()
            job = self._store.get(TPU_JOBS, key).value
            if job.status == RUNNING:
                return job
            if job.status != SCHEDULED:
                return None
            self._hint.wait(CANCEL_SECONDS)
        return None

    def _blame(self, key: str, job: QueuedJob, outcome: Outcome) -> None:
        """Record that the code failed on this host: the first host loses its peer and would report lost hardware."""

        def said(now: QueuedJob) -> QueuedJob:
            if (now.status, now.attempts) != (RUNNING, job.attempts):
                return now
            return replace(now, peer_error=outcome.error[-PEER_ERROR:])

        change(self._store, TPU_JOBS, key, said)

    def _cause(self, claim: Claim, outcome: Outcome) -> Outcome:
        """Return the outcome of a lost peer: the error that its code raised, if it recorded one."""
        due = SYSTEM.monotonic() + PEER_SECONDS
        while SYSTEM.monotonic() < due:
            with suppress(TpukitError):
                if error := self._store.get(TPU_JOBS, claim.key).value.peer_error:
                    return Outcome(Reason.USER_ERROR, error=error, logs=outcome.logs)
            SYSTEM.sleep(min(0.2, PEER_SECONDS / 10))
        return outcome

    def _watch_first_host(self, key: str, job: QueuedJob, child: Child, ended: threading.Event) -> None:
        while not ended.is_set():
            self._hint.wait(CANCEL_SECONDS)
            self._hint.clear()
            if self._leave.is_set():
                child.stop()
            with suppress(Transient):
                now = self._store.get(TPU_JOBS, key).value
                if (now.status, now.attempts) != (RUNNING, job.attempts):
                    child.stop()
            ended.wait(CANCEL_SECONDS / 2)

    def _ready(self) -> Child:
        if self._next and not self._next.alive:
            self._next.close()
            self._next = None
        if self._next is None:
            settings = self._settings
            folder = fresh_folder(settings.runs)
            self._next = Child(folder, settings.limits, cache=settings.cache, preload=settings.preload)
        return self._next

    def _serve(self, claim: Claim, child: Child) -> None:
        job = claim.entry.value
        self.busy = True
        guard = _Guard(self._store, claim, child, self._leave, self._hint, self._settings.grace)
        try:
            wrong = decide.problems(job)
            self._say(claim.key, f"runs, attempt {job.attempts}")
            outcome = Outcome(Reason.CANNOT_START, error=wrong) if wrong else child.run(job.code, float(job.timeout))
            child.close()
            if outcome.reason is Reason.PEER_LOST:
                outcome = self._cause(claim, outcome)
            self._write(claim, guard, outcome)
        finally:
            guard.close()
            child.close()
            self.busy = False
            self.ran += 1

    def _write(self, claim: Claim, guard: _Guard, outcome: Outcome) -> None:
        """Write the outcome, with retries until it is written or the lease is lost."""
        failures, refused = 0, False
        while not guard.lost:
            try:
                if guard.left and outcome.reason is Reason.CANCELLED:
                    wrote = claims.give_back(self._store, claim)
                else:
                    outcome = self._stored(claim, outcome)
                    wrote = claims.finish(self._store, claim, outcome)
            except Transient as error:
                self._say(claim.key, f"its end cannot be recorded yet: {error.message}")
                failures += 1
                SYSTEM.sleep(retry.growing(failures, 0.2, 5.0))
                continue
            except Invalid as error:  # the store refuses it
                if refused:  # also without a result: the document itself is too large
                    wrote = claims.end_unfit(self._store, claim.entry, claim.entry.value, str(error), claim=claim)
                    self._say(claim.key, _sentence(wrote) if wrote else "was taken over by another worker")
                    return
                refused = True
                outcome = Outcome(Reason.USER_ERROR, error=f"its result cannot be stored: {error}"[:2000])
                continue
            self._say(claim.key, _sentence(wrote) if wrote else "was taken over by another worker")
            return
        self._say(claim.key, "its lease was lost: its result is not recorded, and the job runs again")

    def _stored(self, claim: Claim, outcome: Outcome) -> Outcome:
        try:
            return self._results.shorten(claim.key, claim.entry.value, outcome)
        except Transient:
            raise
        except (TpukitError, OSError) as error:
            return Outcome(Reason.HOST_LOST, error=f"its result cannot be written: {error}", logs=outcome.logs)


class _Guard:
    """A thread that renews the lease of running code, and ends code that is cancelled, returned, or lost."""

    def __init__(
        self,
        store: Store,
        claim: Claim,
        child: Child,
        leave: threading.Event,
        hint: threading.Event,
        grace: float,
    ) -> None:
        self._store, self._claim, self._child = store, claim, child
        self._leave, self._hint, self._grace = leave, hint, grace
        self.lost = False
        self.left = False
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="lease", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._closed.set()
        self._hint.set()
        self._thread.join()

    def _run(self) -> None:
        renewed = read = SYSTEM.monotonic()
        leaving = float("inf")
        while not self._closed.is_set():
            self._hint.wait(0.2 if self._leave.is_set() else min(CANCEL_SECONDS, claims.SECONDS / 6))
            hinted = self._hint.is_set()
            self._hint.clear()
            now = SYSTEM.monotonic()
            if self._leave.is_set():
                leaving = min(leaving, now + self._grace)
                if now >= leaving:
                    self.left = True
                    self._child.stop()
            try:
                due = now - renewed >= claims.SECONDS / 3
                if due:
                    self._store.renew(self._claim.lease, claims.SECONDS)
                    renewed = now
                if (hinted and now - read >= CANCEL_SECONDS / 2) or due:
                    read = now
                    if self._store.get(TPU_JOBS, self._claim.key).value.cancel:
                        self._child.stop()
                elif hinted:
                    self._hint.set()  # keep the hint for the next look
                    self._closed.wait(CANCEL_SECONDS / 4)
            except (Conflict, NotFound):
                self._give_up()
            except TpukitError as error:
                log.debug("the lease of %s could not be renewed: %s", self._claim.key, error)
                if SYSTEM.monotonic() - renewed > claims.SECONDS * 0.8:
                    self._give_up()

    def _give_up(self) -> None:
        self.lost = True
        self._child.stop()


def _sentence(job: QueuedJob) -> str:
    return f"{job.status}: {str(job.error).splitlines()[-1]}" if job.error else str(job.status)
