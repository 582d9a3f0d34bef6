"""`tpu sandbox up --slices` on a sandbox that has slices: those stay, and the queue covers all of them."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

from tpubox.box import furnish
from tpubox.box.furnish import ZONE, additions
from tpubox.kubelet import Pool, of_slice
from tpukit import catalogue
from tpukit.jobs.render import PoolKind
from tpukit.teams.shares import shares
from tpukit.teams.workloads import CHIPS

V4_16, V5E_16 = catalogue.find("v4-16"), catalogue.find("v5litepod-16")
SPOT, ON_DEMAND, OTHER = PoolKind(V4_16, "spot"), PoolKind(V4_16), PoolKind(V5E_16, "spot")
CPU = Pool("cpu", "e2-standard-8", {"cpu-0": ZONE})


def names(pools):
    return [pool.name for pool in pools]


def test_additions_to_an_empty_sandbox_are_numbered_by_shape():
    pools, total = additions([], {ON_DEMAND: 1, SPOT: 2})
    assert names(pools) == ["v4-16-0", "v4-16-1", "v4-16-2"]
    assert [pool.capacity for pool in pools] == ["on-demand", "spot", "spot"]
    assert total == {ON_DEMAND: 1, SPOT: 2}


def test_additions_of_another_kind_keep_the_slices_that_are_there_in_the_queue():
    there, _ = additions([], {SPOT: 2})
    pools, total = additions([*there, CPU], {ON_DEMAND: 1, OTHER: 1})
    assert names(pools) == ["v4-16-2", "v5litepod-16-0"]
    assert total == {SPOT: 2, ON_DEMAND: 1, OTHER: 1}


def test_additions_of_what_is_there_add_nothing_and_fewer_take_nothing_away():
    there, total = additions([], {SPOT: 2, PoolKind(V4_16, "reservation:mine"): 1})
    assert additions(there, total) == ([], total)
    assert additions(there, {SPOT: 1}) == ([], total)


def test_additions_of_more_of_a_kind_take_the_numbers_that_are_free():
    there, _ = additions([], {SPOT: 3})
    pools, total = additions([there[0], there[2]], {SPOT: 3})
    assert (names(pools), total) == (["v4-16-1"], {SPOT: 3})


def test_additions_do_not_count_pools_of_clusters_that_terraform_made():
    foreign = replace(of_slice("theirs", V4_16, ZONE, capacity="spot"), cluster="projects/p/locations/l/clusters/c")
    _, total = additions([foreign], {ON_DEMAND: 1})
    assert total == {ON_DEMAND: 1}


class Machines:
    """The pools of the node agent, without nodes."""

    def __init__(self):
        self._pools = {}

    def pools(self):
        return {name: {"pool": pool.to_json()} for name, pool in self._pools.items()}

    def add_pool(self, pool):
        self._pools[pool.name] = pool


class Applied:
    """A cluster that holds what was applied last under each name."""

    def __init__(self):
        self._found = {}

    def apply(self, document):
        metadata = document["metadata"]
        self._found[document["kind"], metadata.get("namespace", ""), metadata["name"]] = document

    def list(self, kind):
        return [document for (of, _, _), document in self._found.items() if of == kind]


def test_slices_of_another_kind_on_a_running_sandbox_leave_those_that_are_there_in_the_queue(monkeypatch):
    machines, cluster = Machines(), Applied()
    monkeypatch.setattr(furnish, "agent", lambda place: machines)
    monkeypatch.setattr(furnish, "Cluster", lambda kubeconfig: cluster)
    monkeypatch.setattr(furnish, "_post", lambda place, path, body: None)
    place = SimpleNamespace(kubeconfig="", google=())
    furnish.furnish(place, {SPOT: 2})
    furnish.furnish(place, {OTHER: 1})
    (queue,) = cluster.list("ClusterQueue")
    slices = {flavor: int(share.own) for (flavor, resource), share in shares(queue).items() if resource == CHIPS}
    assert {flavor: chips for flavor, chips in slices.items() if chips} == {SPOT.flavor: 16, OTHER.flavor: 16}
    assert {one["metadata"]["name"] for one in cluster.list("ResourceFlavor")} >= {SPOT.flavor, OTHER.flavor}
