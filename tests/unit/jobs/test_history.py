"""Bounded histories: decisions stay the same, and a record never outgrows its limit."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from support.simulated_firestore import firestore
from support.store_home import environment, home, store
from tpukit.core.errors import Invalid, NotFound
from tpukit.jobs import history, report, rules
from tpukit.jobs.controller.decide import decide
from tpukit.jobs.plan import Plan, make
from tpukit.jobs.reasons import MEANINGS, Budget, Reason, State
from tpukit.jobs.records import ACTIVE, JOBS, PLAN_BYTES, RECORD_BYTES, Attempt, Folded, Job
from tpukit.jobs.rules import RULES, Action
from tpukit.jobs.spec import JobSpec, Settings
from tpukit.kernel.store import Event, Store, change
from tpukit.places.base import Handle, HostView, Observation

__all__ = ["environment", "firestore", "home", "store"]

HOSTS = 64


def spec(**fields: Any) -> JobSpec:
    return JobSpec.from_json({"name": "train", "tpu": "v4-512", "command": ["python", "train.py"], **fields})


def job(**fields: Any) -> Job:
    plan = make(spec(), Settings(), "gke")
    return Job(plan.id, "gke", "t", "me", 1.0, plan.to_json(), **fields)


@st.composite
def ended(draw: st.DrawFn, attempts: tuple[Attempt, ...]) -> Attempt:
    """Draw an attempt that follows these, with its end."""
    action = draw(st.sampled_from([Action.RESUME, Action.RESUME, Action.REAPPLY, Action.RERUN]))
    attempt = rules.following(attempts, action, asked=draw(st.integers(0, 15)) == 0)
    began = 1000.0 * attempt.number
    return replace(
        attempt,
        state=State.FAILED,
        reason=draw(st.sampled_from(list(Reason))),
        saved=attempt.saved + draw(st.sampled_from([0, 0, 1])),
        step=draw(st.sampled_from([-1, -1, 3, 7, 20])),
        started=draw(st.sampled_from([0.0, began])),
        ended=began + draw(st.sampled_from([5.0, 700.0])),
        learned=draw(st.sampled_from([{}, {"nodes": ["n" * 9000]}, {"hosts": {"h": "x" * 40_000}}])),
    )


@given(st.data(), st.sampled_from(sorted(RULES)), st.sampled_from([0, 1, 3, 40]))
def test_compacted_any_history_is_decided_and_numbered_as_before(data, rule, restarts):
    every: tuple[Attempt, ...] = ()
    record = job()
    for _ in range(data.draw(st.integers(1, 30))):
        attempt = data.draw(ended(every))
        every = (*every, attempt)
        record = history.compacted(replace(record, attempts=(*record.attempts, attempt)))
        assert record.attempts == every[-len(record.attempts) :]
        assert rules.decide(record.attempts, rule, restarts, record.folded) == rules.decide(every, rule, restarts)
        for action in (Action.RESUME, Action.RERUN, Action.REAPPLY):
            assert rules.following(record.attempts, action) == rules.following(every, action)
            assert rules.following(every, action).number == len(every)
        assert report.restarts(record) == report.restarts(replace(record, attempts=every, folded=None))
        assert history.compacted(record) == record
    assert (record.folded or Folded()).count == len(every) - len(record.attempts)


@given(st.data())
def test_decide_spends_of_the_users_budget_what_users_errors_since_the_last_request_cost(data):
    """Compare the count that folds forward with one that looks back."""
    every: tuple[Attempt, ...] = ()
    for _ in range(data.draw(st.integers(1, 20))):
        every = (*every, data.draw(ended(every)))
    asked = max((one.number for one in every if one.asked), default=0)
    spent = sum(1 for one in every[asked:] if one.reason and MEANINGS[one.reason].budget is Budget.USER)
    assert history.restarts(history.fold(None, every)) == spent


text = st.text(st.sampled_from('ab\n\t\0\x1b"\\é☃𝄞\ud800'), max_size=30).map(lambda part: part * 700)


@given(text, st.integers(4, 5000))
def test_cut_fits_is_text_of_one_kind_and_stays_what_it_is(said, most):
    once = history.cut(said, most)
    assert len(once.encode()) <= most
    assert history.cut(once, most) == once
    assert len(msgspec.json.encode(once)) <= 2 * most + 2


@given(st.dictionaries(st.text("ab", max_size=3), st.text(max_size=9).map(lambda part: part * 9000), max_size=6))
def test_learned_that_is_too_large_keeps_its_small_fields_and_stays_what_it_is(new):
    kept = history.learned({"uid": "u-1"}, new)
    assert len(msgspec.json.encode(kept)) <= history.LEARNED_BYTES
    assert kept["uid"] == new.get("uid", "u-1")
    assert history.learned(kept, new) == kept


def lost(number: int, long: str) -> Observation:
    """Return a preemption of 64 hosts, with messages as long as places write them."""
    names = [f"train-abcde-slice-0-{index}" for index in range(HOSTS)]
    learned = {
        "uid": f"{number:036d}",
        "restarts": number,
        "hosts": {
            name: {"uid": f"{number:036d}", "node": f"gke-tpu-{name}", "said": long[:500], "tail": [long[:200]] * 4}
            for name in names
        },
        "nodes": [f"{number}-{name}" for name in names],
    }
    hosts = tuple(HostView(name, 0, index, "lost", step=number) for index, name in enumerate(names))
    return Observation(
        State.FAILED,
        hosts,
        started=10.0 * number + 1,
        saved=number,
        reason=Reason.PREEMPTED,
        host=names[0],
        detail=long,
        active=False,
        ended=10.0 * number + 5,
        warning=long,
        learned=learned,
    )


@pytest.mark.parametrize(
    ("address", "long"), [("sqlite", ""), ("firestore://simulated-1", 'said "this"\n\\ é☃\0' * 500)]
)
def test_record_of_64_hosts_preempted_200_times_stays_below_its_limit_and_goes_on(firestore, store: Store, long):
    plan = make(spec(capacity="spot", config={"notes": "n" * (PLAN_BYTES - 4096)}), Settings(), "gke")
    store.create(JOBS, plan.id, Job(plan.id, "gke", "t", "me", 1.0, plan.to_json()))
    now = 10.0

    def step(seen: Observation | None) -> Job:
        note: list[str] = []

        def after(record: Job) -> Job:
            made = decide(record, plan.spec, seen, now)
            note.append(made.note)
            if seen and seen.state is State.RUNNING:  # repeated observations change nothing
                again = decide(made.job, plan.spec, seen, now)
                assert (again.job, again.note) == (made.job, "")
            return made.job

        entry = store.get(JOBS, plan.id)
        written = store.put(JOBS, entry, after(entry.value), events=[Event(now, text) for text in note if text])
        assert len(msgspec.json.encode(written.value)) <= RECORD_BYTES
        return written.value

    step(None)
    for number in range(200):
        now = 1000.0 * (number + 1)
        running = replace_observation(lost(number, long), state=State.RUNNING, reason=None, detail="", active=True)
        assert step(running).state is State.RUNNING
        record = step(lost(number, long))
        assert (record.state, record.attempts[-1].number) == (State.PENDING, number)
        now += 900.0
        record = step(lost(number, long))
        assert (record.state, record.attempts[-1].number, record.attempts[-1].stage) == (
            State.SCHEDULED,
            number + 1,
            number + 1,
        )
    read = store.get(JOBS, plan.id).value
    assert read == record
    assert read.folded is not None
    assert read.folded.count + len(read.attempts) == 201
    handle = Handle.of(read)
    assert (handle.attempt.number, handle.attempt.origin, handle.attempt.saved) == (200, 0, 199)
    assert any(one.number == 199 and one.learned["uid"] == f"{199:036d}" for one in handle.earlier)
    assert Handle.of(read, 0).attempt.number == 0
    with pytest.raises(NotFound, match="holds no attempt 50"):
        Handle.of(read, 50)
    assert report.restarts(read).endswith("not charged: 200 preempted")
    assert [entry.key for entry in store.list(JOBS, states=ACTIVE).entries] == [plan.id]


def replace_observation(seen: Observation, **fields: Any) -> Observation:
    from dataclasses import replace as changed

    return changed(seen, **fields)


@pytest.mark.parametrize("address", ["sqlite", "firestore://simulated-1"])
def test_document_above_the_limit_is_refused_with_a_sentence_and_nothing_is_written(firestore, store: Store):
    with pytest.raises(Invalid, match=r"the job takes 26\d,\d+ bytes, and a record has at most 262,144"):
        store.create(JOBS, "large", replace(job(), plan={"x": "x" * RECORD_BYTES}))
    assert not store.keys(JOBS)
    store.create(JOBS, "fits", job())
    with pytest.raises(Invalid, match="at most"):
        change(store, JOBS, "fits", lambda one: replace(one, message="m" * RECORD_BYTES))
    assert store.get(JOBS, "fits").value.message == ""


def test_record_written_before_attempts_were_folded_reads_as_it_was():
    old = msgspec.to_builtins(job(attempts=(Attempt(0, 0, 0),)))
    del old["folded"], old["submission"]
    assert msgspec.convert(old, Job).folded is None
    assert Handle.of(msgspec.convert(old, Job)).attempt.number == 0
    assert Plan.from_json(old["plan"]).id == old["id"]
