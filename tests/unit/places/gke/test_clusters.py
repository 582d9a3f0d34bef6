"""The kubeconfig context of the cluster that a job was sent to: by uid, by address, from inside a pod."""

from __future__ import annotations

import threading

import pytest

from support.waiting import PATIENCE
from tpukit.core.clock import ManualClock
from tpukit.core.errors import Conflict, NotFound, Transient
from tpukit.jobs.plan import ClusterName
from tpukit.kube import Context
from tpukit.places.gke.clusters import CONTEXTS_SECONDS, SERVER, Clusters, Kubeconfig


class Cluster:
    def __init__(self, server, uid, hang=None):
        self.server, self.uid, self.hang = server, uid, hang

    def identity(self, *, seconds=20.0):
        if self.hang is not None:
            self.hang.wait(PATIENCE)
            raise Transient("does not answer")
        return self.uid


def clusters(contexts, current="a", clock=None):
    """Return the clusters of a kubeconfig; `contexts` maps names to Cluster objects."""
    listed = [Context(name, one.server) for name, one in contexts.items() if name]
    config = Kubeconfig(lambda: listed, lambda: current, lambda name: contexts[name])
    return Clusters(clock or ManualClock(), config)


def test_current_names_context_address_and_uid():
    assert clusters({"a": Cluster("https://one/", "u1")}).current() == ClusterName("a", "https://one", "u1")


def test_context_same_address_under_another_name_is_the_cluster():
    known = clusters({"here": Cluster("https://one", "u1")})
    assert known.context(ClusterName("there", "https://one", "u1")) == "here"
    assert known.open(ClusterName("there", "https://one", "u1")).server == "https://one"


def test_context_same_uid_at_another_address_is_the_cluster_once_it_was_asked():
    known = clusters({"a": Cluster("https://two", "u2"), "b": Cluster("https://10.0.0.1", "u1")})
    name = ClusterName("x", "https://one", "u1")
    assert known.context(name) is None
    known.wait(PATIENCE)
    assert known.context(name) == "b"


def test_context_another_cluster_at_the_same_address_is_not_the_cluster():
    known = clusters({"a": Cluster("https://one", "new")})
    name = ClusterName("a", "https://one", "old")
    with pytest.raises(Conflict, match="is not the cluster that the job was sent to"):
        known.open(name)
    assert known.context(name) is None


def test_context_without_a_uid_goes_by_address_alone():
    known = clusters({"a": Cluster("https://one", "u1")})
    assert known.context(ClusterName("x", "https://one")) == "a"
    assert known.context(ClusterName("a", "https://other")) is None
    with pytest.raises(NotFound, match="no context of this kubeconfig leads to https://other"):
        known.open(ClusterName("a", "https://other"))


def test_context_its_own_name_goes_before_others_with_the_same_address():
    known = clusters({"b": Cluster("https://one", "u1"), "a": Cluster("https://one", "u1")})
    assert known.context(ClusterName("a", "https://one", "u1")) == "a"


def test_context_of_a_pod_is_the_cluster_around_it_by_uid(monkeypatch):
    monkeypatch.delenv(SERVER, raising=False)
    known = clusters({"": Cluster("https://10.0.0.1", "u1")}, current="")
    name = ClusterName("gke_p_l_c", "https://34.1.2.3", "u1")
    assert known.context(name) is None
    known.wait(PATIENCE)
    assert known.context(name) == ""


def test_context_of_a_pod_is_known_by_the_address_that_people_outside_have(monkeypatch):
    monkeypatch.setenv(SERVER, "https://34.1.2.3")
    known = clusters({"": Cluster("https://10.0.0.1", "")}, current="")
    assert known.context(ClusterName("gke_p_l_c", "https://34.1.2.3")) == ""
    assert known.current().server == "https://34.1.2.3"


def test_context_is_told_at_once_while_a_cluster_hangs():
    hang = threading.Event()
    known = clusters({"a": Cluster("https://one", "u1"), "b": Cluster("https://two", "", hang)})
    assert known.context(ClusterName("z", "https://three", "u3")) is None
    assert known.context(ClusterName("a", "https://one", "u1")) == "a"
    hang.set()
    known.wait(PATIENCE)


def test_contexts_are_read_again_after_a_while():
    clock = ManualClock()
    contexts = {"a": Cluster("https://one", "u1")}
    listed = [Context("a", "https://one")]
    known = Clusters(clock, Kubeconfig(lambda: listed, lambda: "a", lambda name: contexts[name]))
    assert known.context(ClusterName("b", "https://two")) is None
    listed.append(Context("b", "https://two"))
    clock.sleep(CONTEXTS_SECONDS)
    assert known.context(ClusterName("b", "https://two")) == "b"
