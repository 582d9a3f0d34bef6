"""Kueue's order: quotas, borrowing, preemption. Tables for known cases, properties for any."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from tpukit.teams.forecast.line import Change, Entry, Line, Queue

CHIPS = ("v4-2x2x2", "google.com/tpu")


def queue(name: str, own: float, limit: float = math.inf, **more: str | bool) -> Queue:
    return Queue(name, "tpu", {CHIPS: own}, {CHIPS: own + limit}, **more)  # type: ignore[arg-type]


def entry(name: str, of: str = "a", chips: float = 1, priority: int = 0, since: float = 0.0) -> Entry:
    return Entry(name, of, {CHIPS: chips}, priority, since)


def line(queues: Sequence[Queue], running: Sequence[Entry] = (), waiting: Sequence[Entry] = ()) -> Line:
    made = Line({one.name: one for one in queues})
    for number, one in enumerate(running):
        made.run(one, float(number))
    for one in waiting:
        made.wait(one)
    return made


def said(changes: Sequence[Change]) -> list[tuple[str, str]]:
    return [(one.entry.id, one.by) for one in changes]


def test_jobs_go_by_priority_then_by_age_and_smaller_ones_pass_one_that_does_not_fit():
    made = line([queue("a", 4)], [], [entry("old"), entry("big", chips=9, priority=5), entry("high", priority=9)])
    assert said(made.settle(0)) == [("high", ""), ("old", "")]
    assert [one.id for one in made.waiting] == ["big"]


def test_strict_queue_is_blocked_by_its_first_job():
    made = line([queue("a", 4, strict=True)], [], [entry("big", chips=9, priority=5), entry("small")])
    assert made.settle(0) == []


def test_stopped_queue_admits_no_job():
    assert line([queue("a", 4, stopped=True)], [], [entry("one")]).settle(0) == []


def test_higher_job_evicts_the_lowest_and_of_equals_the_last_admitted():
    running = [entry("first", chips=2), entry("low", chips=2, priority=-5), entry("last", chips=2)]
    made = line([queue("a", 6)], running, [entry("urgent", chips=4, priority=9)])
    assert said(made.settle(9)) == [("low", "urgent"), ("last", "urgent"), ("urgent", "")]
    assert set(made.running) == {"first", "urgent"}


def test_job_of_equal_priority_evicts_no_job():
    assert line([queue("a", 2)], [entry("one", chips=2)], [entry("two", chips=2)]).settle(0) == []


def test_eviction_that_is_not_needed_is_taken_back():
    """Kueue adds victims in order until the job fits, then spares those without which it still does."""
    running = [entry("small", chips=1, priority=-9), entry("large", chips=4, priority=-5)]
    made = line([queue("a", 5)], running, [entry("urgent", chips=4)])
    assert said(made.settle(0)) == [("large", "urgent"), ("urgent", "")]


def test_queue_takes_its_own_quota_back_from_a_borrower_of_higher_priority():
    running = [entry("borrows", "b", chips=6, priority=9)]
    made = line([queue("a", 4), queue("b", 4)], running, [entry("mine", chips=4)])
    assert said(made.settle(0)) == [("borrows", "mine"), ("mine", "")]


def test_borrower_evicts_no_job_of_another_queue():
    running = [entry("theirs", "b", chips=4, priority=-9)]
    made = line([queue("a", 2), queue("b", 4)], running, [entry("wants", chips=4, priority=9)])
    assert made.settle(0) == []


def test_borrowing_is_limited_and_never_more_than_others_leave():
    queues = [queue("a", 2, limit=1), queue("b", 4)]
    assert said(line(queues, [], [entry("three", chips=3), entry("four", chips=4)]).settle(0)) == [("three", "")]
    assert line(queues, [entry("theirs", "b", chips=4)], [entry("three", chips=3)]).settle(0) == []


def test_job_that_needs_no_borrowing_goes_before_an_older_and_higher_one_that_does():
    made = line([queue("a", 2), queue("b", 2)], [], [entry("borrows", "a", 4, 9), entry("own", "b", 2, since=5)])
    assert said(made.settle(0)) == [("own", "")]


jobs = st.lists(
    st.tuples(st.sampled_from("abc"), st.integers(1, 6), st.integers(-1, 1), st.floats(0, 9)), min_size=1, max_size=14
)
quotas = st.tuples(*(st.integers(0, 6) for _ in "abc"))
limits = st.tuples(*(st.sampled_from([0.0, 2.0, math.inf]) for _ in "abc"))


def used(made: Line) -> Mapping[str, float]:
    total = dict.fromkeys("abc", 0.0)
    for one in made.running.values():
        total[one.queue] += one.need[CHIPS]
    return total


@settings(max_examples=300, deadline=None)
@given(quotas, limits, jobs, st.integers(0, 14))
def test_any_line_keeps_quotas_loses_no_job_and_leaves_none_that_fits(own, limit, sent, later):
    queues = [queue(name, own[at], limit[at]) for at, name in enumerate("abc")]
    made = line(queues)
    entries = [entry(f"job-{at}", of, chips, priority, since) for at, (of, chips, priority, since) in enumerate(sent)]
    evicted: list[Change] = []
    for group in (entries[:later], entries[later:]):
        before = made.running
        for one in group:
            made.wait(one)
        changes = made.settle(float(len(before)))
        evicted += [one for one in changes if one.by]
        assert made.settle(99.0) == []  # settled
    now = used(made)
    assert sum(now.values()) <= sum(own)
    assert all(now[name] <= own[at] + limit[at] for at, name in enumerate("abc"))
    assert {*made.running, *(one.id for one in made.waiting)} == {one.id for one in entries}
    assert len(made.running) + len(made.waiting) == len(entries)
    by = {one.id: one for one in entries}
    for change in evicted:
        taker = by[change.by]
        same = taker.queue == change.entry.queue
        assert not same or taker.priority > change.entry.priority
    for one in made.waiting:  # whatever fits runs, and a queue has its own quota for its highest jobs
        at = "abc".index(one.queue)
        free = min(own[at] + limit[at] - now[one.queue], sum(own) - sum(now.values()))
        assert one.need[CHIPS] > free
        lower = sum(x.need[CHIPS] for x in made.running.values() if x.queue == one.queue and x.priority < one.priority)
        assert one.need[CHIPS] > own[at] - now[one.queue] + lower
