"""`tpu sandbox up --slices` on a sandbox that has slices: those stay, and the queue covers all of them."""

from __future__ import annotations

from dataclasses import replace

from tpubox.box.furnish import ZONE, additions
from tpubox.kubelet import Pool, of_slice
from tpukit import catalogue
from tpukit.jobs.render import PoolKind

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
