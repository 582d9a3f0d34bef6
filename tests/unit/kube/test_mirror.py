"""The mirror of a cluster's objects, against an unreliable API server."""

import math
import threading
import time

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from support.kube_server import KubeServer, kubeconfig
from support.waiting import PATIENCE
from tpukit.core.errors import Denied, Transient
from tpukit.kube import Cluster
from tpukit.kube import source as kube_source
from tpukit.kube.documents import PodDoc
from tpukit.kube.mirror import _FIRST_PAUSE, Mirror


@pytest.fixture
def server():
    server = KubeServer()
    yield server
    server.close()


@pytest.fixture
def cluster(server, tmp_path):
    return Cluster(kubeconfig(tmp_path, server.url))


class Watcher:
    """A mirror, and a wait for its expected content."""

    def __init__(self, cluster, **options):
        self.woken = threading.Condition()
        self.wakes = 0
        self.mirror = Mirror(
            cluster, "Pod", "team", **{"wake": self.wake, "silence": 0.3, "longest_pause": 0.02, **options}
        )

    def wake(self):
        with self.woken:
            self.wakes += 1
            self.woken.notify_all()

    def until(self, condition):
        with self.woken:
            assert self.woken.wait_for(lambda: condition(self.mirror), PATIENCE), self.mirror.error()

    def content(self):
        return {one["metadata"]["uid"]: one["metadata"]["resourceVersion"] for one in self.mirror.objects()}


@pytest.fixture
def watched(cluster):
    made = []

    def make(**options):
        made.append(Watcher(cluster, **options))
        return made[-1]

    yield make
    for one in made:
        one.mirror.close()
        one.mirror._thread.join(PATIENCE)
        assert not one.mirror._thread.is_alive()


def test_mirror_lists_and_then_follows_what_happens(server, watched):
    server.put("a", status={"phase": "Pending"})
    server.put("b")
    one = watched()
    assert one.mirror.wait_synced(PATIENCE)
    assert one.content() == server.content()
    server.put("a", status={"phase": "Running"})
    server.remove("b")
    server.put("c")
    one.until(lambda _: one.content() == server.content())
    (a,) = [pod for pod in one.mirror.objects() if pod["metadata"]["name"] == "a"]
    assert a["status"] == {"phase": "Running"}
    assert "unread" not in a["spec"]


def test_mirror_object_made_anew_under_its_name_replaces_the_old_one(server, watched):
    server.put("a")
    one = watched()
    assert one.mirror.wait_synced(PATIENCE)
    server.remove("a")
    server.put("a")
    one.until(lambda mirror: one.content() == server.content())
    assert len(one.mirror.objects()) == 1


def test_mirror_stream_that_ends_in_good_order_goes_on_without_a_list(server, watched):
    one = watched(silence=PATIENCE)
    assert one.mirror.wait_synced(PATIENCE)
    one.until(lambda mirror: mirror.error() is None)
    server.put("a")
    one.until(lambda _: one.content() == server.content())
    server.endings += 1
    server.put("b")
    one.until(lambda _: one.content() == server.content())
    assert [query for _, query in server.asked if "watch" not in query] == [{"limit": "500"}]


def test_mirror_of_a_server_that_hangs_says_so_and_recovers(server, watched):
    server.put("a")
    one = watched()
    assert one.mirror.wait_synced(PATIENCE)
    server.hanging.set()
    one.until(lambda mirror: isinstance(mirror.error(), Transient))
    assert one.content() == server.content()  # the known objects are still there
    server.put("b")
    server.hanging.clear()
    one.until(lambda mirror: one.content() == server.content() and mirror.error() is None)


def test_mirror_that_may_not_list_says_so_at_once(server, watched):
    server.refusals = [(403, {})] * 10_000
    one = watched()
    assert not one.mirror.wait_synced(PATIENCE)
    assert isinstance(one.mirror.error(), Denied)
    server.refusals = []
    one.until(lambda mirror: mirror.error() is None)
    assert one.mirror.wait_synced(0.0)


def test_wait_tried_ends_with_the_first_failure_and_not_after_a_list(server, watched):
    server.refusals = [(500, {})] * 10_000
    one = watched(longest_pause=10.0)
    began = time.monotonic()
    assert not one.mirror.wait_tried(PATIENCE)
    assert time.monotonic() - began < PATIENCE / 2
    assert isinstance(one.mirror.error(), Transient)


def test_wait_tried_waits_for_a_list_that_takes_its_time(server, watched):
    server.hanging.set()
    one = watched(silence=PATIENCE)
    assert not one.mirror.wait_tried(0.2)
    assert one.mirror.error() is None
    server.hanging.clear()
    assert one.mirror.wait_tried(PATIENCE)


def test_mirror_in_trouble_does_not_ask_in_a_loop(server, watched):
    server.refusals = [(500, {})] * 10_000
    began = time.monotonic()
    one = watched(longest_pause=PATIENCE)
    one.until(lambda mirror: mirror.error() is not None)
    assert not one.mirror.wait_synced(0.6)
    asked, spent = len(server.asked), time.monotonic() - began
    assert asked <= 1 + math.log2(1 + spent / (0.5 * _FIRST_PAUSE)), "pauses grow"


def test_mirror_waits_as_long_as_the_server_asks_it_to(server, watched):
    server.refusals = [(429, {"Retry-After": "1"})]
    began = time.monotonic()
    one = watched()
    assert one.mirror.wait_synced(PATIENCE)
    assert time.monotonic() - began >= 1.0
    assert len(server.asked) >= 2


def test_mirror_fresh_is_the_time_of_the_last_list_or_event(server, watched):
    now = iter(range(100, 10_000)).__next__
    one = watched(now=now, silence=PATIENCE)
    assert one.mirror.wait_synced(PATIENCE)
    assert one.mirror.fresh() == 100
    server.put("a")
    one.until(lambda _: one.content() == server.content())
    assert one.mirror.fresh() == 101


def test_mirror_wake_that_fails_does_not_end_it(server, cluster):
    failed = threading.Event()

    def failing():
        failed.set()
        raise RuntimeError("no")

    mirror = Mirror(cluster, "Pod", "team", wake=failing, longest_pause=0.02)
    assert mirror.wait_synced(PATIENCE)
    assert failed.wait(PATIENCE)
    failed.clear()
    server.put("a")
    assert failed.wait(PATIENCE)
    assert len(mirror.objects()) == 1
    assert mirror.error() is None
    mirror.close()


def test_list_of_several_pages_whose_rest_expired_starts_over(server, cluster, monkeypatch):
    monkeypatch.setattr(kube_source, "PAGE_OBJECTS", 3)
    for number in range(10):
        server.put(f"p{number}")
    server.expiring_lists = 1
    listed = cluster.list("Pod", "team", type=PodDoc)
    assert [one["metadata"]["name"] for one in listed] == [f"p{number}" for number in range(10)]
    tokens = ["continue" in query for _, query in server.asked]
    assert tokens == [False, True, False, True, True, True]


def test_list_whose_pages_expire_again_and_again_is_asked_for_in_one(server, cluster, monkeypatch):
    monkeypatch.setattr(kube_source, "PAGE_OBJECTS", 3)
    for number in range(10):
        server.put(f"p{number}")
    server.expiring_lists = 100
    assert len(cluster.list("Pod", "team")) == 10
    assert server.asked[-1][1] == {}


def test_list_with_a_type_has_its_fields_alone_and_without_has_all(server, cluster):
    server.put("a", status={"phase": "Running", "hostIP": "10.0.0.1"})
    (slim,) = cluster.list("Pod", "team", type=PodDoc)
    assert slim["status"] == {"phase": "Running"}
    assert (slim["kind"], slim["apiVersion"]) == ("Pod", "v1")
    (full,) = cluster.list("Pod", "team")
    assert full["status"] == {"phase": "Running", "hostIP": "10.0.0.1"}


def test_list_of_an_object_that_does_not_fit_its_type_has_it_as_it_is(server, cluster):
    server.put("a", status={"phase": None, "hostIP": "10.0.0.1"})
    (listed,) = cluster.list("Pod", "team", type=PodDoc)
    assert listed["status"] == {"phase": None, "hostIP": "10.0.0.1"}


NAMES = st.sampled_from(["a", "b", "c", "d", "e"])
STEPS = st.lists(
    st.tuples(st.just("put"), NAMES)
    | st.tuples(st.just("remove"), NAMES)
    | st.tuples(st.sampled_from(["cut", "end", "expire", "expire lists", "hang", "wait"]), st.just(""))
    | st.tuples(st.just("refuse"), st.sampled_from(["401", "403", "404", "410", "429", "500", "503"])),
    max_size=25,
)


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(STEPS)
def test_mirror_comes_to_what_the_server_has_whatever_happened(tmp_path, monkeypatch, steps):
    monkeypatch.setattr(kube_source, "PAGE_OBJECTS", 2)
    server = KubeServer()
    one = Watcher(Cluster(kubeconfig(tmp_path, server.url)), silence=0.1)
    try:
        for action, what in steps:
            if action == "put":
                server.put(what)
            elif action == "remove":
                server.remove(what)
            elif action == "cut":
                server.cuts += 1
            elif action == "end":
                server.endings += 1
            elif action == "expire":
                server.expire()
            elif action == "expire lists":
                server.expiring_lists += 2
            elif action == "hang":
                server.hanging.set()
            elif action == "refuse":
                server.refusals.append((int(what), {"Retry-After": "0"}))
            else:
                one.mirror.wait_synced(0.02)
        server.hanging.clear()
        server.put("last")
        one.until(lambda mirror: one.content() == server.content() and mirror.error() is None)
    finally:
        one.mirror.close()
        server.close()
