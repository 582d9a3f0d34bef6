"""Leader election over a Lease object: one leader at a time, through crashes and lost connections."""

from __future__ import annotations

import copy
import threading
from typing import Any

import pytest

from support.waiting import PATIENCE
from tpukit.core import fence
from tpukit.core.clock import ManualClock
from tpukit.core.errors import Conflict, LeaseLost, NotFound, Transient
from tpukit.kernel.store import Holder
from tpukit.provisioner.events import About, Events
from tpukit.provisioner.leader import SECONDS, Leadership
from tpukit.provisioner.pace import RECOVERY_SECONDS, Pace


class OneLease:
    """An API server for one Lease and its events, with version checks."""

    def __init__(self) -> None:
        self.lease: dict[str, Any] | None = None
        self.version = 0
        self.events: dict[str, dict] = {}
        self.away: set[str] = set()  # holders that cannot reach it
        self.namespaces = {"system"}
        self.asking = ""

    def get(self, kind, name, namespace="", *, seconds=20.0):
        self._reach()
        if self.lease is None:
            raise NotFound("no lease")
        return copy.deepcopy(self.lease)

    def create(self, document, **_):
        self._reach()
        if document["kind"] == "Event":
            if document["metadata"]["name"] in self.events:
                raise Conflict("told before")
            self.events[document["metadata"]["name"]] = document
        elif document["kind"] == "Namespace":
            self.namespaces.add(document["metadata"]["name"])
        elif document["metadata"]["namespace"] not in self.namespaces:
            raise NotFound("no such namespace")
        elif self.lease is not None:
            raise Conflict("exists")
        else:
            self._store(document)
        return document

    def call(self, method, path, *, body, seconds):
        self._reach()
        if body["metadata"]["resourceVersion"] != str(self.version):
            raise Conflict("another version")
        self._store(body)
        return body

    def _store(self, document) -> None:
        self.version += 1
        self.lease = copy.deepcopy(document)
        self.lease["metadata"]["resourceVersion"] = str(self.version)

    def _reach(self) -> None:
        if self.asking in self.away:
            raise Transient("no answer")


class Replica:
    def __init__(self, cluster: OneLease, clock: ManualClock, name: str) -> None:
        self.cluster, self.name = cluster, name
        self.turns: list[bool] = []
        self.leader = Leadership(cluster, "system", "lease", Holder(name), clock, changed=self.turns.append)

    def renew(self) -> bool:
        self.cluster.asking = self.name
        return self.leader.renew()

    def close(self) -> None:
        self.cluster.asking = self.name
        self.leader.close()


def pair() -> tuple[OneLease, ManualClock, Replica, Replica]:
    cluster, clock = OneLease(), ManualClock()
    return cluster, clock, Replica(cluster, clock, "a"), Replica(cluster, clock, "b")


def test_leader_of_two_only_one_leads():
    _, clock, a, b = pair()
    for _ in range(20):
        assert (a.renew(), b.renew()) == (True, False)
        clock.sleep(5)
    assert a.turns == [True]


def test_leader_that_dies_is_followed_after_its_time():
    _, clock, a, b = pair()
    a.renew()
    waited = 0.0
    while not b.renew():
        clock.sleep(1)
        waited += 1
        assert waited < 2 * SECONDS
    assert waited >= SECONDS
    assert not a.leader.leading()


def test_leader_that_is_cut_off_stops_before_another_begins():
    cluster, clock, a, b = pair()
    a.renew()
    cluster.away.add("a")
    while not b.renew():
        a.renew()
        assert not (a.leader.leading() and b.leader.leading())
        clock.sleep(0.5)
    assert not a.leader.leading()


def test_leader_that_leaves_in_good_order_is_followed_at_once():
    _, _, a, b = pair()
    a.renew()
    assert not b.renew()
    a.close()
    assert b.renew()


def test_leader_that_lost_it_does_not_take_it_back_while_it_is_held():
    _, clock, a, b = pair()
    a.renew()
    b.renew()
    clock.sleep(SECONDS + 1)
    assert b.renew()
    assert not a.renew()
    assert a.leader.hold("pool") is None


def test_leader_in_a_cluster_where_nothing_was_deployed_makes_the_namespace_too():
    cluster, _, a, b = pair()
    cluster.namespaces.clear()
    assert (a.renew(), b.renew()) == (True, False)
    assert cluster.namespaces == {"system"}


def test_leader_token_grows_with_every_change_of_hands():
    _, clock, a, b = pair()
    a.renew()
    b.renew()
    first = a.leader.hold("pool").token
    clock.sleep(SECONDS + 1)
    b.renew()
    assert b.leader.hold("pool").token > first


def test_leader_suspended_for_longer_than_its_lease_does_not_lead_when_it_resumes():
    _, clock, a, _ = pair()
    a.renew()
    clock.suspend(120)
    assert not a.leader.leading()
    assert a.leader.hold("pool") is None


def test_leader_check_counts_from_before_the_renewal_was_sent():
    cluster, clock, a, _ = pair()
    answered = cluster.get

    def slow(*words, **named):
        clock.sleep(3.0)
        return answered(*words, **named)

    a.renew()
    cluster.get = slow
    a.renew()
    held = a.leader.hold("pool")
    assert a.leader.check(held) == pytest.approx(SECONDS * 2 / 3 - 3.0)


def test_leader_check_near_the_end_of_the_lease_renews_it_first():
    cluster, clock, a, _ = pair()
    a.renew()
    held = a.leader.hold("pool")
    clock.sleep(SECONDS / 2)
    before = cluster.version
    with fence.held(lambda: a.leader.check(held)):
        assert fence.check() == pytest.approx(SECONDS * 2 / 3)
    assert cluster.version == before + 1


def test_leader_check_after_a_pause_in_which_another_leads_is_refused():
    _, clock, a, b = pair()
    a.renew()
    held = a.leader.hold("pool")
    b.renew()
    clock.suspend(120)
    assert b.renew()
    with pytest.raises(LeaseLost):
        a.leader.check(held)


def test_leader_check_of_a_lease_from_before_another_led_is_refused_although_it_leads_now():
    _, clock, a, b = pair()
    a.renew()
    held = a.leader.hold("pool")
    b.renew()
    clock.suspend(120)
    b.renew()
    b.close()
    assert a.renew()
    with pytest.raises(LeaseLost):
        a.leader.check(held)
    assert a.leader.check(a.leader.hold("pool")) > 0


@pytest.mark.parametrize("renewed", [False, True])
def test_leader_check_after_a_pause_without_rivals_refuses_what_was_decided_before_it(renewed):
    """The JobSet may have been deleted meanwhile; the next round decides again."""
    _, clock, a, _ = pair()
    a.renew()
    held = a.leader.hold("pool")
    clock.suspend(120)
    if renewed:  # by the background thread, before the acting thread resumes
        assert a.renew()
    with pytest.raises(LeaseLost):
        a.leader.check(held)
    assert a.leader.check(a.leader.hold("pool")) > 0


def test_leader_check_while_the_api_server_is_away_is_refused_when_the_lease_may_have_ended():
    cluster, clock, a, _ = pair()
    a.renew()
    held = a.leader.hold("pool")
    cluster.away.add("a")
    assert a.leader.check(held) > 0
    clock.suspend(SECONDS)
    cluster.asking = "a"
    with pytest.raises(LeaseLost):
        a.leader.check(held)


def test_leader_that_resigns_is_followed_at_once_and_leads_again_where_no_other_does():
    _, clock, a, b = pair()
    a.renew()
    a.leader.resign("slices/pool")
    assert not a.leader.leading()
    assert not a.renew()
    assert b.renew()
    b.close()
    clock.sleep(2 * SECONDS + 1)
    assert a.renew()
    assert a.turns == [True, False, True]


@pytest.mark.parametrize("background", [False, True])
def test_event_of_a_leader_that_lost_its_lease_is_not_written(background):
    def lost():
        raise LeaseLost("another replica is the leader now")

    cluster = OneLease()
    written = cluster.create

    def fenced(document, **named):
        fence.check()
        return written(document, **named)

    cluster.create = fenced
    events = Events(cluster, ManualClock(), background=background)
    with fence.held(lost):
        events.tell(About("team", "train", "uid"), "NodePoolDeleting", "x")
    events.close()
    assert cluster.events == {}


def test_event_said_again_by_another_replica_is_no_new_event():
    cluster, clock = OneLease(), ManualClock()
    about = About("team", "train", "uid", "leader", "pod-uid")
    for _ in range(2):
        events = Events(cluster, clock)
        events.tell(about, "NodePoolCreating", "makes node pool x")
        events.tell(about, "NodePoolCreating", "makes node pool x")
    assert len(cluster.events) == 1


def test_event_that_cannot_be_written_is_tried_again_the_next_time():
    cluster, clock = OneLease(), ManualClock()
    events = Events(cluster, clock)
    cluster.away.add("")
    events.tell(About("team", "train", "uid"), "NodePoolReady", "x")
    cluster.away.clear()
    events.tell(About("team", "train", "uid"), "NodePoolReady", "x")
    assert len(cluster.events) == 1


def test_event_in_the_background_holds_up_nobody_and_is_written_before_leaving():
    cluster, slow = OneLease(), threading.Event()
    answered = cluster.create

    def create(document, **words):
        assert slow.wait(PATIENCE)
        return answered(document, **words)

    cluster.create = create
    events = Events(cluster, ManualClock(), background=True)
    for number in range(5):
        events.tell(About("team", "train", "uid"), "NodePoolReady", f"pool {number}")
    assert not cluster.events
    slow.set()
    events.close()
    assert len(cluster.events) == 5


def test_pace_halves_when_refused_and_grows_back():
    pace = Pace()
    assert pace.limit(8, 0.0) == 8
    pace.slow(0.0)
    pace.slow(0.5)  # refused at the same time
    assert pace.limit(8, 0.5) == 4
    pace.slow(2.0)
    assert pace.limit(8, 2.0) == 2
    assert pace.limit(8, 2.0 + 2 * RECOVERY_SECONDS) == 4
    assert pace.limit(8, 2.0 + 9 * RECOVERY_SECONDS) == 8
    for number in range(20):
        pace.slow(1000.0 + 2 * number)
    assert pace.limit(8, 1040.0) >= 1
