"""One list for many jobs: its cost for the API server, and its error when the server is unavailable."""

from __future__ import annotations

import time
from contextlib import suppress

import pytest

from support.kube_server import KubeServer, kubeconfig
from support.waiting import until
from tpukit.core.clock import SystemClock
from tpukit.core.errors import Denied, Transient
from tpukit.kube import Cluster
from tpukit.places.gke import namespace
from tpukit.places.gke.namespace import Lister


@pytest.fixture
def server():
    server = KubeServer()
    yield server
    server.close()


@pytest.fixture
def lister(server, tmp_path):
    lister = Lister(Cluster(kubeconfig(tmp_path, server.url)), SystemClock())
    yield lister
    lister.close()


def lists_of_pods(server):
    return [query for path, query in server.asked if path.endswith("/pods") and "watch" not in query]


def test_list_pods_are_listed_once_and_followed_from_then_on(server, lister):
    server.put("a", status={"phase": "Running"})
    assert [len(pods) for pods in lister.list("team").pods.values()] == [1]
    server.put("b", status={"phase": "Running"})
    until(lambda: [len(pods) for pods in lister.list("team").pods.values()] == [2])
    assert len(lists_of_pods(server)) == 1


def test_list_of_a_namespace_that_may_not_be_seen_says_so(server, lister):
    server.refusals = [(403, {})]
    with pytest.raises(Denied):
        lister.list("team")


def test_list_of_an_api_server_that_hangs_ends_as_passing_trouble(server, lister, monkeypatch):
    monkeypatch.setattr(namespace, "SYNC_SECONDS", 0.2)
    server.hanging.set()
    with pytest.raises(Transient, match="did not list its pods"):
        lister.list("team")


def test_list_of_an_api_server_in_trouble_says_so_at_once_and_works_again_when_it_is_over(server, lister):
    """Neither repeated reads nor a single read are delayed."""
    server.refusals = [(503, {})]
    began = time.monotonic()
    with pytest.raises(Transient):
        lister.list("team")
    assert time.monotonic() - began < namespace.SYNC_SECONDS / 2

    def listed():
        with suppress(Transient):
            return lister.list("team")

    assert until(listed).jobsets == {}
