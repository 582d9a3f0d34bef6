"""The current attempt of a JobSet, from counts alone, for any number of unobserved events."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from support.gke_world import ADMITTED, jobset, workload
from tpukit.places.gke.attempts import Event, Position, Where, locate, next_event
from tpukit.places.gke.jobsets import JobSetState

happenings = st.lists(st.sampled_from([*Event, "look", "kueue counts anew"]), max_size=40)


class Cluster:
    """One JobSet and its events."""

    def __init__(self) -> None:
        self.restarts = self.counted = self.evictions = self.workloads = 0

    def state(self, made_for: int = 0) -> JobSetState:
        of = jobset(attempt=made_for, restarts=self.restarts, counted=self.counted)
        queued = workload(ADMITTED, evictions=self.evictions)
        queued["metadata"]["uid"] = f"w{self.workloads}"
        return JobSetState(of, queued)

    def happen(self, event: Event) -> None:
        self.evictions += event is Event.EVICTED
        self.restarts += event is not Event.EVICTED
        self.counted += event is Event.USER


def catch_up(learned: dict, state: JobSetState, number: int) -> tuple[list[Event], dict]:
    """Process events round by round as a driver does, each time from the record alone."""
    ended = []
    while True:
        where, began = locate(number + len(ended), Position.of(learned), state)
        learned = began.learned()
        if where is Where.CURRENT:
            return ended, learned
        assert where is Where.OVERTAKEN
        event, after, last = next_event(began, state)
        ended.append(event)
        learned = after.learned()
        assert last == (locate(number + len(ended), after, state)[0] is Where.CURRENT)


@given(happenings)
def test_events_between_looks_end_as_many_attempts_each_once(script):
    """Where Kueue recreates the Workload, unobserved evictions are lost."""
    cluster, learned = Cluster(), {}
    ended: list[Event] = []
    happened: Counter[Event] = Counter()
    unseen = lost = 0
    for what in [*script, "look"]:
        if what == "look":
            new, learned = catch_up(learned, cluster.state(), len(ended))
            ended += new
            unseen = 0
        elif what == "kueue counts anew":
            lost += unseen
            unseen = cluster.evictions = 0
            cluster.workloads += 1
        else:
            cluster.happen(what)
            happened[what] += 1
            unseen += what is Event.EVICTED
    counted = Counter(ended)
    assert counted[Event.USER] == happened[Event.USER]
    assert counted[Event.HARDWARE] == happened[Event.HARDWARE]
    assert happened[Event.EVICTED] - lost <= counted[Event.EVICTED] <= happened[Event.EVICTED]


@given(st.lists(st.sampled_from(Event), max_size=30), st.data())
def test_charged_restarts_are_never_ended_before_those_that_are_not(script, data):
    cluster = Cluster()
    for event in script:
        cluster.happen(event)
    ended, _ = catch_up({}, cluster.state(), 0)
    assert ended == sorted(ended, key=[Event.EVICTED, Event.HARDWARE, Event.USER].index)


def test_locate_jobset_made_for_this_attempt_began_at_zero_whatever_happened_before_the_first_look():
    cluster = Cluster()
    cluster.happen(Event.EVICTED)
    assert locate(3, None, cluster.state(made_for=3)) == (Where.OVERTAKEN, Position("js", workload="w0"))


def test_locate_jobset_of_an_earlier_attempt_makes_room():
    assert locate(2, None, Cluster().state(made_for=1))[0] is Where.OLDER
    assert locate(2, Position("another"), Cluster().state(made_for=1)) == (Where.OLDER, Position("another"))


def test_locate_jobset_of_a_later_attempt_is_not_ours_to_judge():
    assert locate(2, Position("another"), Cluster().state(made_for=3))[0] is Where.NEWER


def test_locate_jobset_that_somebody_made_again_for_the_same_attempt_begins_anew():
    known = Position("another", restarts=4, evictions=2)
    assert locate(2, known, Cluster().state(made_for=2)) == (Where.CURRENT, Position("js", workload="w0"))


def test_locate_without_a_jobset_tells_gone_from_never_made():
    assert locate(0, Position("js"), JobSetState(None))[0] is Where.GONE
    assert locate(0, None, JobSetState(None))[0] is Where.NOT_MADE


def test_locate_running_attempt_of_a_version_that_learnt_nothing_is_the_one_that_runs():
    cluster = Cluster()
    cluster.happen(Event.USER)
    where, began = locate(1, None, cluster.state(), began=True)
    assert (where, began) == (Where.CURRENT, Position("js", restarts=1, counted=1, workload="w0"))


@given(st.text())
def test_made_for_whatever_somebody_wrote_into_the_note_is_a_number(text):
    assert JobSetState({"metadata": {"annotations": {"tpukit.dev/attempt": text}}}).made_for >= 0
