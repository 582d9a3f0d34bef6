"""Submission: one submission is one job with its own id, even when answers are lost."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from tpukit.cli import context
from tpukit.core.clock import ManualClock
from tpukit.core.errors import Denied, Invalid, Transient
from tpukit.jobs import plan
from tpukit.jobs.reasons import State
from tpukit.jobs.records import JOBS, PLAN_BYTES, Job
from tpukit.jobs.spec import JobSpec, Settings
from tpukit.jobs.use_cases import submission
from tpukit.kernel.store import Store
from tpukit.places.capabilities import Capabilities
from tpukit.places.workdirs import Workdirs

SPEC = {"name": "train", "tpu": "v4-16", "command": ["true"]}


class Place:
    name = "local"
    capabilities = Capabilities(uses_this_machine=True)

    def __init__(self) -> None:
        self.ids: frozenset[str] = frozenset()

    def prepare(self, one: plan.Plan) -> plan.Plan:
        return one

    def taken(self, one: plan.Plan) -> frozenset[str]:
        return self.ids

    def check(self, one: plan.Plan) -> tuple[()]:
        return ()

    def workdir(self, one: plan.Plan, origin: int) -> str:
        return one.workdir_of(origin)

    def share_code(self, one: plan.Plan) -> str:
        return ""


@pytest.fixture
def store(tmp_path, monkeypatch) -> Iterator[Store]:
    monkeypatch.setenv("TPUKIT_HOME", str(tmp_path))
    monkeypatch.setenv("TPUKIT_SETTINGS", str(tmp_path / "settings.yaml"))
    monkeypatch.setattr(context, "places", lambda: {"local": Place()})
    monkeypatch.setattr(context, "CLOCK", ManualClock())
    context.store.cache_clear()
    yield context.store()
    context.store().close()
    context.store.cache_clear()


def made(**fields: Any) -> plan.Plan:
    return plan.make(JobSpec.from_json({**SPEC, **fields}), Settings(), "local")


def test_settle_same_file_twice_gets_two_ids_though_no_store_knows_the_other(store):
    ids = {submission.settle(context.session(), made()).id for _ in range(20)}
    assert len(ids) == 20
    assert all(one.startswith("train-") and len(one) == len("train-") + 5 for one in ids)


@pytest.mark.parametrize("lost", [1, 2, 4])
def test_record_whose_answers_are_lost_is_one_job(store, monkeypatch, lost):
    create, losses = store.create, iter(range(lost))

    def losing(*args: Any, **options: Any) -> Any:
        entry = create(*args, **options)
        if next(losses, None) is not None:
            raise Transient("the answer was lost")
        return entry

    monkeypatch.setattr(store, "create", losing)
    sent = submission.record(context.session(), submission.settle(context.session(), made()))
    assert store.keys(JOBS) == {sent.id}
    assert len(store.events(JOBS, sent.id)) == 1
    assert store.get(JOBS, sent.id).value.submission


def test_record_whose_store_stays_away_says_that_it_may_be_there(store, monkeypatch):
    def away(*args: Any, **options: Any) -> Any:
        raise Transient("no route")

    monkeypatch.setattr(store, "create", away)
    settled = submission.settle(context.session(), made())
    with pytest.raises(Transient, match=f"tpu job show {settled.id}"):
        submission.record(context.session(), settled)


def test_record_under_an_id_that_another_submission_took_gets_another_and_holds_nothing_of_the_other(store):
    settled = submission.settle(context.session(), made())
    first = submission.record(context.session(), settled)
    second = submission.record(context.session(), settled)
    assert first.id != second.id
    assert store.keys(JOBS) == {first.id, second.id}
    assert {lease.name for lease in store.leases()} == {f"jobs/{second.id}"}


def test_record_puts_the_code_where_other_drivers_find_it_before_the_job_can_be_seen(store, monkeypatch):
    seen: list[tuple[str, bool]] = []

    class Sharing(Place):
        def share_code(self, one: plan.Plan) -> str:
            seen.append((one.id, bool(store.keys(JOBS))))
            return ""

    monkeypatch.setattr(context, "places", lambda: {"local": Sharing()})
    sent = submission.record(context.session(), submission.settle(context.session(), made()))
    assert seen == [(sent.id, False)]


def test_warn_shows_before_a_job_is_sent_how_long_its_hardware_lasts_without_a_driver(store, monkeypatch, capsys):
    class Costly(Place):
        def limit(self, one: plan.Plan) -> str:
            return "its TPU VMs end after 1d"

    monkeypatch.setattr(context, "places", lambda: {"local": Costly()})
    one = submission.settle(context.session(), made())
    submission.warn(context.session(), one)
    assert f"{one.id}: its TPU VMs end after 1d" in capsys.readouterr().err
    assert not store.keys(JOBS)


def test_record_whose_code_cannot_be_shared_now_records_nothing(store, monkeypatch):
    class Away(Place):
        def share_code(self, one: plan.Plan) -> str:
            raise Transient("the bucket is unreachable")

    monkeypatch.setattr(context, "places", lambda: {"local": Away()})
    with pytest.raises(Transient, match="bucket"):
        submission.record(context.session(), submission.settle(context.session(), made()))
    assert not store.keys(JOBS)


def test_record_whose_code_may_not_be_shared_says_so_and_is_sent(store, monkeypatch, capsys):
    class Closed(Place):
        def share_code(self, one: plan.Plan) -> str:
            return "gs://runs: permission denied"

    monkeypatch.setattr(context, "places", lambda: {"local": Closed()})
    sent = submission.record(context.session(), submission.settle(context.session(), made()))
    assert store.keys(JOBS) == {sent.id}
    assert "only a driver on this machine can start the job: gs://runs: permission denied" in capsys.readouterr().err


def test_record_of_a_plan_without_room_for_its_history_is_refused_before_it_is_sent(store):
    with pytest.raises(Invalid, match="bytes"):
        submission.record(context.session(), submission.settle(context.session(), made(config={"x": "x" * PLAN_BYTES})))
    assert not store.keys(JOBS)


@pytest.fixture
def left(store, tmp_path) -> plan.Plan:
    """Return a job that marked the folder that its file names."""
    one = submission.settle(context.session(), made(workdir=str(tmp_path / "work")))
    Workdirs().claim(one, one.workdir, this_machine=True)
    return one


def recorded(store: Store, one: plan.Plan, state: State) -> None:
    store.create(JOBS, one.id, Job(one.id, one.place, one.team, "ada", 0.0, one.to_json(), state=state))


@pytest.mark.parametrize("state", [State.RUNNING, State.COMPLETED])
def test_settle_in_a_workdir_with_the_output_of_another_job_is_refused(store, left, tmp_path, state):
    recorded(store, left, state)
    (tmp_path / "work" / "result.json").touch()
    with pytest.raises(Invalid, match=f"holds the output of job {left.id}"):
        submission.settle(context.session(), made(workdir=left.workdir))


def test_settle_with_resume_in_a_workdir_with_the_output_of_another_job_is_sent(store, left, tmp_path):
    (tmp_path / "work" / "result.json").touch()
    assert submission.settle(context.session(), replace(made(workdir=left.workdir), resume=True)).resume


def test_settle_in_the_workdir_of_a_job_that_ended_without_output_is_sent_and_may_claim_it(store, left):
    recorded(store, left, State.FAILED)
    one = submission.settle(context.session(), made(workdir=left.workdir))
    Workdirs().claim(one, one.workdir, this_machine=True)


@pytest.mark.parametrize("known", [True, False])
def test_settle_in_the_workdir_of_a_job_that_may_still_run_is_refused(store, left, known):
    if known:
        recorded(store, left, State.RUNNING)
    with pytest.raises(Invalid, match=f"is the workdir of job {left.id}"):
        submission.settle(context.session(), made(workdir=left.workdir))


def test_settle_in_a_bucket_that_cannot_be_read_warns_and_is_sent(store, monkeypatch, capsys):
    def denied(*args: Any, **options: Any) -> Any:
        raise Denied("no storage.objects.get")

    monkeypatch.setattr(Workdirs, "held", denied)
    assert submission.settle(context.session(), made(workdir="gs://bucket/run")).id
    assert "could not check whether gs://bucket/run holds another job's output" in capsys.readouterr().err
