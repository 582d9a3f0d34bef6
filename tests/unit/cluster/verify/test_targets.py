"""Jobs of a verification from the nodes of a cluster."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tpukit import catalogue
from tpukit.cluster.verify import targets
from tpukit.cluster.verify.checks import Network, Target
from tpukit.cluster.verify.targets import Job
from tpukit.jobs.render import PoolKind

V4_16, V4_8, V3_32 = catalogue.find("v4-16"), catalogue.find("v4-8"), catalogue.find("v3-32")
NONE = Network(None, None)


def nodes(name, shape=V4_16, capacity="spot", hosts=None, ready="True", **spec):
    labels = {
        "cloud.google.com/gke-nodepool": name,
        **PoolKind(shape, capacity).labels,
        "cloud.google.com/gke-accelerator-count": str(shape.chips_per_host),
    }
    return [
        {
            "metadata": {"name": f"{name}-{host}", "labels": labels},
            "spec": spec,
            "status": {"conditions": [{"type": "Ready", "status": ready}]},
        }
        for host in range(shape.hosts if hosts is None else hosts)
    ]


def found(*groups):
    return targets.pools([node for group in groups for node in group])


def test_every_shape_and_capacity_is_recognised_by_its_nodes():
    for shape in catalogue.slices():
        if shape.machine_type is None:
            continue
        for capacity in ("on-demand", "spot", "flex-start", "reservation:mine"):
            (pool,) = found(nodes("p", shape, capacity, hosts=1))
            seen = pool.kind.shape
            assert (seen.topology, seen.chips_per_host, seen.hosts) == (
                shape.topology,
                shape.chips_per_host,
                shape.hosts,
            )
            assert pool.kind.capacity == capacity
            assert pool.whole == (shape.hosts == 1)


def test_other_nodes_and_pools_in_parts_get_no_job():
    cpu = {"metadata": {"name": "c", "labels": {"cloud.google.com/gke-nodepool": "cpu"}}}
    pools = found([cpu], nodes("few", hosts=1), nodes("away", ready="False"), nodes("drained", unschedulable=True))
    assert [(pool.name, pool.ready) for pool in pools] == [("away", 0), ("drained", 0), ("few", 1)]
    assert not targets.of_each(pools, lambda shape: NONE)


def test_two_slices_are_joined_only_where_gke_joins_them():
    pools = found(nodes("a"), nodes("b"), nodes("c"), nodes("d", capacity="on-demand"))
    (job,) = targets.of_two(pools, lambda shape: NONE)
    assert (job.target.name, job.target.slices, job.capacity, job.hosts) == ("v4-16:spot × 2", 2, "spot", 4)
    for shape in (V4_8, V3_32):
        assert not targets.of_two(found(nodes("a", shape), nodes("b", shape)), lambda shape: NONE)


def test_equals_of_a_pool_are_those_on_which_its_job_may_run():
    pools = found(nodes("a"), nodes("b"), nodes("c", capacity="on-demand"), nodes("d", V4_8))
    assert [pool.name for pool in targets.alike(pools, "a")] == ["a", "b"]
    assert not targets.alike(pools, "other")


@given(st.integers(1, 6), st.data())
def test_each_job_gets_another_pool_whichever_of_them_ran(count, data):
    names = [f"pool-{number}" for number in range(count)]
    jobs = [Job(Target(name, V4_16, 1, NONE), "spot") for name in names]
    order = data.draw(st.permutations(names))
    ran = [[name] if data.draw(st.booleans()) else [] for name in order]
    located = [job.target.pool for job in targets.located(jobs, ran)]
    assert sorted(located) == names
    assert all([name] == pools for name, pools in zip(located, ran, strict=True) if pools)


def test_job_over_two_slices_keeps_its_name():
    job = Job(Target("v4-16:spot", V4_16, 2, NONE), "spot")
    assert targets.located([job], [["a", "b"]]) == [job]


def test_pools_of_nodes_are_found_by_name():
    assert targets.ran_on([*nodes("a"), *nodes("b")], ["b-0", "b-1", "gone"]) == ["b"]
