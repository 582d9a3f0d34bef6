"""Predictions from Kueue's objects and records: starts, evictions, changes, and whether they held."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from click.testing import CliRunner
from msgspec.structs import replace

from support import queue_weeks
from tpukit.cli import context, team, team_forecast
from tpukit.cli import run as tpu_run
from tpukit.core.clock import ManualClock
from tpukit.core.errors import Invalid, NotFound
from tpukit.jobs.plan import make
from tpukit.jobs.reasons import Reason, State
from tpukit.jobs.records import JOBS, Attempt, Job, Marks
from tpukit.jobs.spec import JobSpec, Settings
from tpukit.kernel.store.sqlite import SqliteStore
from tpukit.teams.forecast import records, what_if
from tpukit.teams.forecast.durations import Durations, Like, Ran
from tpukit.teams.forecast.outlook import outlook, with_plan
from tpukit.teams.forecast.predict import HORIZON, Start
from tpukit.teams.waiting import Queues
from unit.teams.test_waiting import FLAVORS, cluster_queue, local_queue, runs, workload

NOW = 1_767_225_600.0 + 600  # ten minutes after the objects of these tests were created
HOUR = 3600.0
PREEMPTION = {"withinClusterQueue": "LowerPriority", "reclaimWithinCohort": "Any"}


def queues(*jobs: dict[str, Any], own: int = 2, **more: Any) -> Queues:
    return Queues(jobs, [local_queue()], [cluster_queue(own=own, preemption=PREEMPTION, **more)], FLAVORS)


def record(name: str, hours: float = 1.0, *, state: State = State.COMPLETED, **fields: Any) -> Job:
    """Return a job that held a v4-16 for some hours, after a wait."""
    spec = JobSpec.from_json({"name": name, "tpu": "v4-16", "command": ["true"], "team": "red"})
    plan = make(spec, Settings(), "gke").to_json()
    placed = NOW - 40 * HOUR
    marks = Marks(since=placed - HOUR, placed=placed)
    ended = placed + hours * HOUR if state.ended else 0.0
    attempt = Attempt(0, 0, 0, state, started=placed, ended=ended, reason=Reason.DONE, marks=marks)
    shown = {"state": state, "attempts": (attempt,), "ended": ended} | fields
    return Job(name, "gke", "red", "me", placed - HOUR, plan, **shown)


HISTORY = [record(f"train-{number}", 1 + number / 10) for number in range(10)]


def test_waiting_job_starts_when_the_running_one_is_likely_to_end():
    """The running job is ten minutes old, and jobs like it hold their slices for one to two hours."""
    found = outlook(queues(runs("train-98"), workload("train-99"), own=1), HISTORY, NOW).predict()
    start = found.starts["red/train-99"]
    assert 0.4 * HOUR < start.soonest - NOW < 1.2 * HOUR
    assert 0.7 * HOUR < start.likely - NOW < 1.6 * HOUR
    assert 1.2 * HOUR < start.latest - NOW < 3.5 * HOUR
    assert start.alike == 10
    assert found.now == []


def test_job_that_fits_starts_now_and_one_that_never_fits_is_not_predicted():
    view = outlook(queues(workload("small"), workload("large", slices=9)), HISTORY, NOW)
    found = view.predict()
    assert found.starts["red/small"].latest == NOW
    assert "red/large" not in found.starts
    assert "its queue can have 2" in view.picture.jobs["red/large"].why_not


def test_range_without_any_history_is_wide_and_says_that_it_is():
    start = outlook(queues(runs("one"), workload("two"), own=1), [], NOW).predict().starts["red/two"]
    assert start.alike == 0
    assert start.latest - start.soonest > 5 * HOUR


def test_longest_runtime_of_a_job_bounds_the_wait_for_it():
    spec = JobSpec.from_json({"name": "train", "tpu": "v4-16", "command": ["true"], "max": {"runtime": "15m"}})
    plan = make(spec, Settings(), "gke").to_json()
    running = replace(record("one", state=State.RUNNING), plan=plan)
    held = replace(running.attempts[0], marks=Marks(since=NOW - 600, placed=NOW - 600), started=NOW - 600)
    running = replace(running, attempts=(held,), created=NOW - 600)
    start = outlook(queues(runs("one"), workload("two"), own=1), [*HISTORY, running], NOW).predict().starts["red/two"]
    assert start.latest <= NOW + 300


def test_plan_of_high_priority_evicts_and_the_evicted_job_waits_for_it():
    wanted = {"team": "red", "priority": "high", "image": "a/b:1", "workdir": "gs://bucket/run"}
    spec = JobSpec.from_json({"name": "urgent", "tpu": "v4-16", "command": ["true"], **wanted})
    plan = make(spec, Settings(), "gke")
    there = queues(runs("train-1"), own=1)
    found = outlook(with_plan(there, plan, NOW), HISTORY, NOW).predict()
    assert [(one.entry.id, one.by) for one in found.now] == [("red/train-1", f"red/{plan.id}"), (f"red/{plan.id}", "")]


def test_what_if_changes_only_what_it_names():
    view = outlook(queues(runs("a"), workload("b"), workload("c", at=1), own=1), HISTORY, NOW)
    before = view.predict().starts
    assert before["red/b"].soonest > NOW
    more = view.predict(what_if.with_slices(view.picture, what_if.parse_slices("v4-16=1", "--slices"))).starts
    assert more["red/b"].latest == NOW
    assert more["red/c"].likely > NOW
    first = view.predict(what_if.with_priority(view.picture, "c=high"))
    assert first.starts["red/c"].latest == NOW
    assert [(one.entry.id, one.by) for one in first.now] == [("red/a", "red/c"), ("red/c", "")]
    assert view.predict(what_if.without(view.picture, "red/a")).starts["red/b"].latest == NOW
    assert view.predict().starts == before


def test_quota_of_a_team_is_taken_from_the_common_queue_and_not_beyond_it():
    there = Queues(
        [runs("a", slices=2), workload("mine", team="vision")],
        [local_queue(), local_queue("vision", "vision")],
        [cluster_queue(own=2, preemption=PREEMPTION), cluster_queue("vision", own=0, preemption=PREEMPTION)],
        FLAVORS,
    )
    view = outlook(there, HISTORY, NOW)
    assert view.predict().starts["vision/mine"].soonest > NOW
    moved = what_if.with_quota(view.picture, what_if.parse_slices("vision/v4-16=1", "--quota"))
    key = ("v4-2x2x2", "google.com/tpu")
    assert (moved.queues["vision"].own[key], moved.queues["tpu"].own[key]) == (8.0, 8.0)
    assert moved.queues["vision"].most[key] == math.inf
    with pytest.raises(Invalid, match="has 2 × v4-16 to give"):
        what_if.with_quota(view.picture, what_if.parse_slices("vision/v4-16=3", "--quota"))


@pytest.mark.parametrize("text", ["v4-16", "=2", "v4-16=x", "v4-16=", "red/=1", "v9-16=1", "v4-16=99999999"])
def test_unreadable_numbers_of_slices_are_refused_with_an_example(text):
    with pytest.raises(Invalid):
        what_if.parse_slices(text, "--slices")


def test_unknown_jobs_queues_and_priorities_are_named():
    picture = outlook(queues(workload("one")), [], NOW).picture
    for call, error in (
        (lambda: what_if.without(picture, "none"), NotFound),
        (lambda: what_if.with_priority(picture, "one=urgent"), Invalid),
        (lambda: what_if.with_slices(picture, what_if.parse_slices("blue/v4-16=1", "--slices")), NotFound),
        (lambda: what_if.with_slices(picture, what_if.parse_slices("v5p-8=1", "--slices")), Invalid),
    ):
        with pytest.raises(error):
            call()


def test_durations_come_from_the_most_similar_jobs_of_which_enough_ended():
    mine = [Ran(Like("red", f"train-{number}", "v4-16"), 100.0) for number in range(6)]
    others = [Ran(Like("blue", "other", "v4-16"), 10_000.0) for _ in range(50)]
    known = Durations([*mine, *others])
    assert known.known(Like("red", "train-77", "v4-16")) == 6
    assert known.known(Like("green", "new", "v4-16")) == 56
    assert known.known(Like("green", "new", "v5p-8")) == 56
    assert Durations([]).known(Like("red", "train", "v4-16")) == 0


@pytest.fixture
def store(tmp_path):
    one = SqliteStore(tmp_path / "store.sqlite")
    yield one
    one.close()


def test_predictions_are_kept_once_and_scored_by_what_happened(store):
    def start(low: float, high: float) -> Start:
        return Start(NOW + low, NOW + (low + high) / 2, NOW + high, 5)

    pending = [replace(record(name, state=State.SCHEDULED), attempts=()) for name in "abcd"]
    for one in pending:
        store.create(JOBS, one.id, one)
    ranges = {"red/a": start(0, HOUR), "red/b": start(0, HOUR), "red/c": start(0, HOUR), "red/d": start(0, math.inf)}
    records.keep(store, ranges, pending, NOW)
    later = {name: start(5 * HOUR, 6 * HOUR) for name in ranges}
    records.keep(store, later, pending, NOW + 60)  # the first counts
    records.score(store, NOW + 60)
    assert records.scored(store) == records.Score(0, 0)

    def begins(name: str, at: float, **fields: Any) -> None:
        attempt = Attempt(0, 0, 0, State.RUNNING, started=at + 300, marks=Marks(since=NOW, making=at))
        entry = store.get(JOBS, name)
        store.put(JOBS, entry, replace(entry.value, attempts=(attempt,), **fields))

    begins("a", NOW + 0.5 * HOUR)
    begins("b", NOW + 2 * HOUR)
    entry = store.get(JOBS, "c")
    store.put(JOBS, entry, replace(entry.value, state=State.CANCELLED, ended=NOW + 60))
    records.score(store, NOW + 2 * HOUR)
    states = {entry.key: entry.value.state for entry in store.list(records.PREDICTED).entries}
    assert states == {"a": "held", "b": "missed", "c": "dropped", "d": "open"}
    assert records.scored(store).words == "50 % of 2 starts were in their predicted range; 80 % should be"
    assert store.get(records.PREDICTED, "d").value.latest == NOW + HORIZON
    records.score(store, NOW + records.KEPT_SECONDS + HOUR)
    assert [entry.key for entry in store.list(records.PREDICTED).entries] == ["d"]


def test_ranges_hold_for_jobs_of_four_teams_in_seeded_weeks():
    """A small part of `python tests/support/queue_weeks.py`, which runs 20 seeds."""
    found = queue_weeks.lived(queue_weeks.weeks(2), samples=15, every=6)
    found += queue_weeks.lived(queue_weeks.weeks(3, 120), samples=15, every=4)
    waited = [one for one in found if one.waited]
    assert len(waited) >= 15
    assert queue_weeks.share(found) >= 0.8
    assert queue_weeks.share(waited) >= 0.6  # of so few; ranges half as wide hold less than half of them


class Kueue:
    """A cluster with these queues."""

    def __init__(self, there: Queues) -> None:
        self._kinds = {
            "Workload": there.workloads,
            "ClusterQueue": there.cluster_queues,
            "LocalQueue": there.local_queues,
            "ResourceFlavor": there.flavors,
        }

    def list(self, kind: str, namespace: str = "") -> list[Any]:
        return list(self._kinds[kind])


def test_commands_print_ranges_evictions_and_costs(store, monkeypatch, tmp_path):
    for one in HISTORY:
        store.create(JOBS, one.id, one)
    there = queues(runs("train-98"), workload("train-99"), own=1)
    monkeypatch.setattr(team, "cluster_of_kubectl", lambda: Kueue(there))
    monkeypatch.setattr(context, "store", lambda: store)
    monkeypatch.setattr(context, "CLOCK", ManualClock(NOW))
    run = CliRunner().invoke
    listed = run(team_forecast.command, [])
    assert listed.exit_code == 0, listed.output
    assert "red/train-99  in " in listed.stdout
    assert "starts then" not in listed.stdout
    more = run(team_forecast.command, ["--slices", "v4-16:spot=1"])
    assert more.exit_code == 2 or "has no v4-16:spot" in str(more.exception)
    more = run(team_forecast.command, ["--slices", "v4-16=1"])
    assert "1 × v4-16: " in more.stdout and "USD an hour" in more.stdout
    (row,) = json.loads(run(team_forecast.command, ["--slices", "v4-16=1", "--json"]).stdout)["starts"]
    assert row["then"]["latest"] < row["now"]["soonest"]
    file = tmp_path / "job.yaml"
    file.write_text(
        "name: urgent\ntpu: v4-16\ncommand: [python, t.py]\nteam: red\npriority: high\nimage: a/b:1\nworkdir: gs://bucket/run\n"
    )
    asked = run(team_forecast.command, [str(file)])
    assert asked.exit_code == 0, asked.output
    assert "evicts red/train-98" in asked.stdout
    asked = run(team_forecast.command, [str(file), "--set", "slices=3"])
    assert "no prediction" in asked.stderr
    when = run(tpu_run.command, [str(file), "--place", "gke", "--when"])
    assert (when.exit_code, when.stdout) == (0, "starts now\nit evicts red/train-98\n"), when.output
    assert "80 %" in when.stderr
    assert len(store.list(JOBS).entries) == len(HISTORY)  # it was not sent
    refused = run(tpu_run.command, [str(file), "--when"])
    assert "place local has no queue" in str(refused.exception)
