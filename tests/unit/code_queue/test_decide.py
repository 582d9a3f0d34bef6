"""Decisions on queued jobs, and claims of many workers that never conflict."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from msgspec.structs import replace

from tpukit.code_queue import claims, decide, slices
from tpukit.code_queue.client import Client
from tpukit.code_queue.decide import Act, Outcome, Seen
from tpukit.code_queue.driver import Driver
from tpukit.code_queue.records import (
    ACTIVE,
    CANCELLED,
    COMPLETED,
    ENDED,
    FAILED,
    PENDING,
    RUNNING,
    SCHEDULED,
    QueuedJob,
)
from tpukit.core.clock import ManualClock
from tpukit.core.errors import Conflict, Invalid, Transient
from tpukit.jobs.reasons import MEANINGS, Budget, Reason
from tpukit.kernel.store import Holder
from tpukit.kernel.store.sqlite import SqliteStore

NOW = 1000.0
CODE = QueuedJob(code="result = 1", created_at=1.0)
INFRASTRUCTURE = [reason for reason in Reason if MEANINGS[reason].budget is Budget.HARDWARE]
OWN = [reason for reason in Reason if reason not in INFRASTRUCTURE]


def running(**fields) -> QueuedJob:
    return replace(decide.claim(CODE, "w", NOW), **fields)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"code": ""}, "code"),
        ({"code": 7}, "code"),
        ({"code": "#" * 1_000_000}, "900,000"),
        ({"timeout": "soon"}, "timeout"),
        ({"timeout": -1}, "timeout"),
        ({"timeout": float("nan")}, "timeout"),
        ({"timeout": True}, "timeout"),
        ({"priority": "high"}, "priority"),
        ({"metadata": ["x"]}, "metadata"),
    ],
)
def test_pending_document_that_can_never_run_fails_with_the_field_and_is_not_tried(fields, said):
    step = decide.decide("a", replace(CODE, **fields), Seen(leased=False), NOW)
    assert (step.job.status, step.job.reason, step.act) == (FAILED, "cannot start", None)
    assert said in step.job.error
    assert step.job.attempts == 0


@given(st.sampled_from(OWN), st.integers(0, 3), st.booleans())
def test_error_of_the_code_is_never_retried(reason, faults, cancel):
    job = decide.finish("a", running(faults=faults, cancel=cancel), Outcome(reason, error="why"), NOW)
    assert job.status in ENDED
    assert not job.dead_letter


@given(st.sampled_from(INFRASTRUCTURE), st.integers(1, 6))
def test_fault_of_the_infrastructure_is_retried_later_each_time_and_ends_as_dead_letter(reason, most):
    job, waits = replace(CODE, max_faults=most), []
    for number in range(1, most + 1):
        job = decide.finish("a", decide.claim(job, "w", NOW), Outcome(reason), NOW)
        assert job.faults == number
        if number < most:
            assert job.status == PENDING
            assert not decide.claimable(job, NOW)
            assert decide.claimable(job, job.not_before)
            waits.append(job.not_before - NOW)
    assert (job.status, job.dead_letter) == (FAILED, True)
    assert "given up after" in job.error
    assert all(2 ** (n + 1) / 2 <= wait <= 2 ** (n + 1) for n, wait in enumerate(waits))


def test_waits_of_jobs_that_failed_together_differ_and_have_an_end():
    assert len({decide.wait(f"job-{index}", 3) for index in range(100)}) == 100
    assert all(decide.wait(f"job-{index}", 500) <= decide.LONGEST_WAIT for index in range(100))


def test_result_counts_although_cancel_came_meanwhile():
    assert decide.finish("a", running(cancel=True), Outcome(Reason.DONE, "42"), NOW).status == COMPLETED


@pytest.mark.parametrize("reason", [Reason.HOST_LOST, Reason.USER_ERROR])
def test_cancelled_job_whose_attempt_failed_is_cancelled(reason):
    assert decide.finish("a", running(cancel=True), Outcome(reason), NOW).status == CANCELLED


def test_place_that_starts_workers_gets_the_job_again_until_it_has_it():
    step = decide.decide("a", CODE, Seen(leased=False, started=False), NOW)
    assert (step.job.status, step.act, step.job.scheduled_at) == (SCHEDULED, Act.START, NOW)
    assert decide.decide("a", step.job, Seen(leased=False, started=False), NOW).act is Act.START
    assert decide.decide("a", step.job, Seen(leased=False, started=True), NOW).act is None


def test_pod_that_never_came_up_is_a_fault_and_is_removed():
    scheduled = replace(CODE, status=SCHEDULED, scheduled_at=NOW)
    step = decide.decide("a", scheduled, Seen(leased=False, started=True, failure=Reason.EVICTED, detail="x"), NOW)
    assert (step.job.status, step.job.faults, step.act) == (PENDING, 1, Act.STOP)


def test_scheduled_job_that_is_cancelled_ends_when_the_place_has_nothing_of_it():
    scheduled = replace(CODE, status=SCHEDULED, cancel=True)
    assert decide.decide("a", scheduled, Seen(leased=False, started=True), NOW).act is Act.STOP
    assert decide.decide("a", scheduled, Seen(leased=False, started=False), NOW).job.status == CANCELLED


@given(
    st.sampled_from(ACTIVE),
    st.builds(Seen, st.booleans(), st.sampled_from([None, True, False]), st.sampled_from([None, *INFRASTRUCTURE])),
    st.integers(0, 5),
    st.booleans(),
    st.floats(0, 2000),
)
def test_times_never_go_back_and_leased_jobs_are_left_alone(status, seen, faults, cancel, now):
    job = replace(CODE, status=status, faults=faults, cancel=cancel, created_at=500.0, updated_at=900.0, attempts=1)
    after = decide.decide("a", job, seen, now).job
    assert after.updated_at >= 900.0
    assert after.completed_at in (0.0, after.updated_at)
    if seen.leased:
        assert after == job


@dataclass
class Worker:
    holder: Holder
    claim: claims.Claim | None = None
    renewed: float = 0.0
    ran: list[str] = field(default_factory=list)


class Queue(RuleBasedStateMachine):
    """Workers that die, sleep and return over a real store, with a supervisor that is replaced at any moment."""

    @initialize()
    def begin(self):
        self.clock = ManualClock()
        self.store = SqliteStore(FOLDER[0] / f"{next(NUMBERS)}.db", now=self.clock.now)
        self.client = Client(self.store)
        self.workers = [Worker(Holder(f"w{index}")) for index in range(3)]
        self.drivers = [Driver(self.store, self.clock, Holder(f"d{index}")) for index in range(2)]
        self.dice = random.Random(1)
        self.listed = []
        self.ids, self.completed, self.own_errors, self.histories = [], {}, set(), {}

    @rule(faults=st.integers(1, 3), priority=st.integers(-1, 1))
    def submit(self, faults, priority):
        self.ids.append(self.client.submit("result = 1", max_faults=faults, priority=priority))

    @rule(who=st.integers(0, 2))
    def claim(self, who):
        worker = self.workers[who]
        if worker.claim is None:
            worker.claim = claims.take(self.store, worker.holder, self.dice)
            worker.renewed = self.clock.monotonic()

    @rule()
    def read_the_queue(self):
        """List the pending jobs, to act on the list later."""
        self.listed = self.store.list(claims.TPU_JOBS, states=[PENDING]).entries

    @precondition(lambda self: self.listed)
    @rule(who=st.integers(0, 2), data=st.data())
    def claim_what_was_read_before(self, who, data):
        worker, entry = self.workers[who], data.draw(st.sampled_from(self.listed))
        if worker.claim is None:
            worker.claim = claims.take_one(self.store, worker.holder, entry)
            worker.renewed = self.clock.monotonic()

    @precondition(lambda self: any(worker.claim for worker in self.workers))
    @rule(who=st.integers(0, 2))
    def overtake(self, who):
        """Let all workers be silent for longer than a lease, so that their jobs go to one of them or to a new one."""
        for seconds in (claims.SECONDS + 1, 10.0):
            self.clock.sleep(seconds)
            for driver in self.drivers:
                driver.round()
        if self.workers[who].claim:
            self.workers.append(Worker(Holder(f"w{next(NUMBERS)}")))
            who = len(self.workers) - 1
        self.claim(who)

    @rule(who=st.integers(0, 2))
    def heartbeat(self, who):
        worker = self.workers[who]
        if worker.claim and self._valid(worker):
            try:
                self.store.renew(worker.claim.lease, claims.SECONDS)
                worker.renewed = self.clock.monotonic()
            except Conflict:
                worker.claim = None

    @rule(who=st.integers(0, 2), outcome=st.sampled_from([Reason.DONE, Reason.USER_ERROR, Reason.PREEMPTED]))
    def finish(self, who, outcome):
        worker = self.workers[-1 - who]
        if worker.claim is None:
            return
        wrote = claims.finish(self.store, worker.claim, Outcome(outcome, worker.holder.name))
        if wrote and wrote.status == COMPLETED:
            assert worker.claim.key not in self.completed
            self.completed[worker.claim.key] = worker.holder.name
        if wrote and outcome is Reason.USER_ERROR:
            assert worker.claim.key not in self.own_errors
            self.own_errors.add(worker.claim.key)
        worker.claim = None

    @rule(who=st.integers(0, 2))
    def die(self, who):
        self.workers[who] = Worker(Holder(f"w{who}-{next(NUMBERS)}"))

    @rule(who=st.integers(0, 2))
    def leave(self, who):
        worker = self.workers[who]
        if worker.claim:
            claims.give_back(self.store, worker.claim)
            worker.claim = None

    @rule(seconds=st.sampled_from([1.0, 10.0, 50.0]))
    def wait(self, seconds):
        self.clock.sleep(seconds)

    @rule(which=st.integers(0, 1))
    def supervise(self, which):
        self.drivers[which].round()

    @rule(which=st.integers(0, 1))
    def replace_supervisor(self, which):
        self.drivers[which] = Driver(self.store, self.clock, Holder(f"d{next(NUMBERS)}"))

    @precondition(lambda self: self.ids)
    @rule(data=st.data())
    def cancel(self, data):
        self.client.cancel(data.draw(st.sampled_from(self.ids)))

    def _valid(self, worker: Worker) -> bool:
        return self.clock.monotonic() - worker.renewed < claims.SECONDS

    @invariant()
    def no_job_runs_twice_under_valid_leases(self):
        held = [worker.claim.key for worker in self.workers if worker.claim and self._valid(worker)]
        assert len(held) == len(set(held))

    @invariant()
    def what_ended_stays_as_it_is_and_times_only_grow(self):
        for key in self.ids:
            job = self.client.get(key)
            before = self.histories.get(key, job)
            assert job.updated_at >= before.updated_at
            assert job.attempts >= before.attempts
            if before.status in ENDED:
                assert job == before
            if job.status == RUNNING:
                assert job.created_at <= job.scheduled_at <= job.started_at
            self.histories[key] = job

    def teardown(self):
        if not hasattr(self, "store"):
            return
        live = Holder("last")
        for _ in range(200):
            self.clock.sleep(60.0)
            self.drivers[0].round()
            while claimed := claims.take(self.store, live, self.dice):
                claims.finish(self.store, claimed, Outcome(Reason.DONE, "last"))
            if all(self.client.get(key).status in ENDED for key in self.ids):
                break
        left = {key: self.client.get(key) for key in self.ids if self.client.get(key).status not in ENDED}
        assert not left
        for key in self.own_errors:
            assert self.client.get(key).status != COMPLETED
        self.store.close()


FOLDER: list = []
NUMBERS = iter(range(10**9))


def test_workers_that_die_and_supervisors_that_change_run_each_job_once_and_all_end(tmp_path):
    FOLDER[:] = [tmp_path]
    run_state_machine_as_test(Queue, settings=settings(max_examples=40, stateful_step_count=40))


@pytest.fixture
def client(tmp_path):
    store = SqliteStore(tmp_path / "store.db")
    yield Client(store)
    store.close()


def test_submit_with_unique_key_twice_is_one_job(client):
    first = client.submit("result = 1", unique="invoice 7")
    assert client.submit("result = 2", unique="invoice 7") == first
    assert client.get(first).code == "result = 1"
    assert client.submit("result = 1", unique="invoice 8") != first


def test_submit_whose_answers_were_lost_is_one_job(client, monkeypatch):
    create, calls = client._store.create, []

    def lossy(*arguments, **options):
        """Lose the first request, and the answer to the second."""
        calls.append(arguments)
        if len(calls) > 1:
            create(*arguments, **options)
        if len(calls) < 3:
            raise Transient("no answer")

    monkeypatch.setattr(client._store, "create", lossy)
    monkeypatch.setattr("tpukit.code_queue.client.PAUSES", (0.0,) * 5)
    job_id = client.submit("result = 1")
    assert [entry.key for entry in client.list()] == [job_id]


def test_submit_while_the_clock_of_the_store_is_away_is_tried_again(client, monkeypatch):
    now, left = client._store.now, [1, 2]

    def away_at_first():
        if left and left.pop():
            raise Transient("no answer")
        return now()

    monkeypatch.setattr(client._store, "now", away_at_first)
    monkeypatch.setattr("tpukit.code_queue.client.PAUSES", (0.0,) * 5)
    job = client.get(client.submit("result = 1"))
    assert (left, job.created_at > 0, job.created_at) == ([], True, job.updated_at)


def test_submit_of_what_cannot_run_is_refused_with_the_field(client):
    with pytest.raises(Invalid, match="timeout"):
        client.submit("result = 1", timeout=0)


def test_one_worker_takes_jobs_first_in_first_out_within_a_priority(client):
    sent = [client.submit("result = 1") for _ in range(50)]
    urgent = client.submit("result = 1", priority=5)
    taken = [claims.take(client._store, Holder(f"w{turn}"), random.Random(turn)) for turn in range(51)]
    assert [claim.key for claim in taken] == [urgent, *sent]


def test_worker_that_was_too_slow_for_the_first_job_tries_others_at_random(client, monkeypatch):
    sent = [client.submit("result = 1") for _ in range(30)]
    tried = []

    def slow(store, holder, entry):
        tried.append(entry.key)
        return None if len(tried) < 5 else take_one(store, holder, entry)

    take_one = claims.take_one
    monkeypatch.setattr(claims, "take_one", slow)
    claims.take(client._store, Holder("w"), random.Random(3))
    assert tried[0] == sent[0]
    assert set(tried) <= set(sent[: claims.FRONT]) and tried != sent[:5]


@pytest.mark.parametrize("tpu", ["v99", "v5e-3", "v5e-4:cheap"])
def test_submit_for_a_slice_that_does_not_exist_is_refused(client, tpu):
    with pytest.raises(Invalid, match=r"metadata\.tpu"):
        client.submit("result = 1", metadata={"tpu": tpu})


def test_job_for_a_slice_that_no_worker_is_ends_and_runs_nowhere(client):
    """Workers on a machine without TPUs do not take the job, and do not leave it waiting forever."""
    store = client._store
    asked, plain = client.submit("result = 1", metadata={"tpu": "v5e-4"}), client.submit("result = 1")
    assert claims.take(store, Holder("w"), random.Random(1), lambda job: slices.fits(job, "")).key == plain
    driver = Driver(store, ManualClock(store.now()), Holder("supervisor"))
    driver.round()
    driver.close()
    job = client.get(asked)
    assert (job.status, job.reason) == (FAILED, "cannot start")
    assert "no worker of this queue is a v5e-4" in job.error


def test_job_for_a_slice_that_a_worker_is_waits_for_that_worker(client):
    store = client._store
    asked = client.submit("result = 1", metadata={"tpu": "v5e-4:spot"})
    store.acquire(slices.offer("v5e-4", "w"), Holder("w"), 60.0)
    driver = Driver(store, ManualClock(store.now()), Holder("supervisor"))
    driver.round()
    driver.close()
    assert client.get(asked).status == PENDING
    assert claims.take(store, Holder("w"), random.Random(1), lambda job: slices.fits(job, "v5e-4")).key == asked


def test_retry_of_a_job_that_ended_begins_anew_and_of_one_that_waits_is_refused(client):
    job_id = client.submit("result = 1")
    with pytest.raises(Conflict, match="pending"):
        client.retry(job_id)
    client.cancel(job_id)
    assert client.get(job_id).status == CANCELLED
    again = client.retry(job_id)
    assert (again.status, again.cancel, again.faults) == (PENDING, False, 0)


def test_job_that_was_read_while_it_waited_and_has_ended_since_is_not_claimed(client):
    job_id = client.submit("result = 1")
    store, before = client._store, client._store.get(claims.TPU_JOBS, job_id)
    claims.finish(store, claims.take_one(store, Holder("a"), before), Outcome(Reason.DONE, "1"))
    assert claims.take_one(store, Holder("b"), before) is None
    assert client.get(job_id).status == COMPLETED
    assert store.leases() == []


def test_worker_that_was_away_cannot_write_over_the_one_that_has_its_job(client):
    job_id = client.submit("result = 1", max_faults=9)
    store = client._store
    late = claims.take(store, Holder("late"), random.Random(0))
    store.release(late.lease)  # as if the lease had lapsed
    driver = Driver(store, ManualClock(store.now()), Holder("d"))
    driver.round()
    assert client.get(job_id).status == PENDING
    entry = store.get(claims.TPU_JOBS, job_id)
    now_has_it = claims.take_one(store, Holder("next"), entry)
    assert claims.finish(store, late, Outcome(Reason.DONE, "late")) is None
    assert claims.finish(store, now_has_it, Outcome(Reason.DONE, "next")).result == "next"
    driver.close()
