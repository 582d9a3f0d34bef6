"""Costs of evictions on Workloads: written slowly, for running jobs only, and only where Kueue follows them."""

from __future__ import annotations

import pytest

from support.fake_cluster import FakeCluster
from support.gke_driving import place_on
from support.gke_world import handle, planned
from tpukit.core import fence
from tpukit.core.clock import ManualClock
from tpukit.core.errors import LeaseLost
from tpukit.places.gke import eviction_costs
from tpukit.teams import boosts
from tpukit.teams.boosts import BOOST, PACE_SECONDS


@pytest.fixture
def cluster():
    return FakeCluster(ManualClock())


@pytest.fixture
def said():
    return []


@pytest.fixture
def place(cluster, said, tmp_path):
    place = place_on(cluster, tmp_path / "data", serving=said.append)
    yield place
    place.close()


def run(cluster, place, **fields):
    """Send a job and let it run; nothing of it is saved, so it loses what it runs."""
    one = handle(plan=planned(max={"unattended": "0s"}, **fields))
    place.submit(one)
    cluster.admit(one.plan.id)
    cluster.start(one.plan.id)
    return one


def drive(cluster, place, *jobs, seconds=0.0, every=5.0):
    """Observe and act for some seconds; return the last observations."""
    for _ in range(int(seconds / every) + 1):
        seen = place.observe(jobs)
        for one, found in zip(jobs, seen, strict=True):
            if found.follow_up:
                place.follow_up(one, found.follow_up)
        cluster.clock.sleep(every)
    return seen


def notes(cluster, one):
    return dict(cluster.workload(one.plan.id)["metadata"].get("annotations", {}))


def boost(cluster, one):
    return boosts.current(cluster.workload(one.plan.id))


def writes(cluster):
    return cluster.asked["patch Workload"]


def test_running_job_gets_a_boost_that_grows_with_what_it_would_lose(cluster, place):
    one = run(cluster, place)
    cluster.clock.sleep(600.0)
    drive(cluster, place, one)
    first = boost(cluster, one)
    drive(cluster, place, one, seconds=3600.0)
    assert 0 < first < boost(cluster, one) < boosts.MOST
    shown = boosts.published(cluster.workload(one.plan.id))
    assert shown.usd > 0
    assert shown.unsaved > 600


def test_larger_job_that_ran_as_long_has_the_larger_boost(cluster, place):
    small, large = run(cluster, place, name="small", slices=1), run(cluster, place, name="large", slices=8)
    cluster.clock.sleep(3600.0)
    drive(cluster, place, small, large)
    assert boost(cluster, small) < boost(cluster, large)


def test_boost_is_written_at_most_once_a_minute_and_not_if_it_hardly_changes(cluster, place):
    one = run(cluster, place)
    cluster.clock.sleep(86_400.0)
    drive(cluster, place, one, seconds=1800.0, every=1.0)
    assert writes(cluster) <= 2 + 1, "the test of the feature, the first boost, and one per cent more of a day"
    young = run(cluster, place, name="young")
    before = writes(cluster)
    drive(cluster, place, one, young, seconds=600.0, every=1.0)
    assert 1 < writes(cluster) - before <= 600.0 / PACE_SECONDS + 2


def test_evicted_job_has_no_boost_while_it_waits(cluster, place):
    one = run(cluster, place)
    cluster.clock.sleep(600.0)
    drive(cluster, place, one)
    assert boost(cluster, one)
    cluster.evict(one.plan.id)
    (over,) = place.observe([one])
    following = handle(1, plan=one.plan, learned=over.next, asked=False)
    drive(cluster, place, following)
    assert notes(cluster, one) == {}


def test_job_of_a_lower_class_stays_below_the_next_class(cluster, place):
    one = run(cluster, place, slices=64)
    cluster.workload(one.plan.id)["spec"]["priority"] = 0
    for kind, value in (("WorkloadPriorityClass", -1000), ("WorkloadPriorityClass", 40), ("PriorityClass", 12)):
        cluster._add(kind, {"metadata": {"name": f"p{value}", "namespace": ""}, "value": value})
    cluster.clock.sleep(30 * 86_400.0)
    drive(cluster, place, one)
    assert 0 < boost(cluster, one) < 12


def test_kueue_without_the_feature_is_said_once_and_nothing_changes(cluster, place, said):
    cluster.follows_boosts = False
    one = run(cluster, place)
    before = cluster.workload(one.plan.id)["metadata"].copy()
    drive(cluster, place, one, seconds=7200.0, every=10.0)
    assert cluster.workload(one.plan.id)["metadata"] == before
    assert len(said) == 1
    assert "PriorityBoost" in said[0]
    assert writes(cluster) <= 7200.0 / eviction_costs.LOOK_SECONDS + 1
    cluster.follows_boosts = True
    drive(cluster, place, one, seconds=eviction_costs.LOOK_SECONDS)
    assert boost(cluster, one), "the feature was turned on meanwhile"


def test_account_without_the_right_is_said_once_and_the_job_is_driven_on(cluster, place, said):
    cluster.denied.add("Workload")
    one = run(cluster, place)
    cluster.clock.sleep(60.0)
    (seen,) = drive(cluster, place, one, seconds=600.0)
    assert seen.warning == ""
    assert len(said) == 1
    assert "roles of `tpu serve`" in said[0]
    assert writes(cluster) == 1


def test_job_that_one_terminal_follows_is_not_weighed(cluster, tmp_path):
    place = place_on(cluster, tmp_path / "data")
    one = run(cluster, place)
    cluster.clock.sleep(600.0)
    drive(cluster, place, one, seconds=600.0)
    place.close()
    assert writes(cluster) == 0


def test_boost_of_another_program_is_left_alone(cluster, place):
    one = run(cluster, place)
    cluster.workload(one.plan.id)["metadata"]["annotations"] = {BOOST: "-5"}
    cluster.clock.sleep(600.0)
    drive(cluster, place, one, seconds=600.0)
    assert notes(cluster, one) == {BOOST: "-5"}


def test_workload_that_was_evicted_since_it_was_seen_gets_no_boost(cluster, place):
    one = run(cluster, place)
    cluster.clock.sleep(600.0)
    (seen,) = place.observe([one])
    cluster.evict(one.plan.id)
    place.follow_up(one, seen.follow_up)
    assert notes(cluster, one) == {}


def test_driver_that_lost_the_job_writes_nothing(cluster, place):
    one = run(cluster, place)
    cluster.clock.sleep(600.0)
    (seen,) = place.observe([one])

    def lost():
        raise LeaseLost("another driver owns it")

    with fence.held(lost), pytest.raises(LeaseLost):
        place.follow_up(one, seen.follow_up)
    assert notes(cluster, one) == {}


@pytest.mark.parametrize("fault", ["refused", "lost"])
def test_cluster_that_does_not_answer_does_not_trouble_the_job(cluster, place, fault):
    one = run(cluster, place)
    cluster.clock.sleep(600.0)
    (seen,) = place.observe([one])
    cluster.faults[cluster.calls + 2] = fault  # after the two lists of priority classes
    place.follow_up(one, seen.follow_up)
    drive(cluster, place, one, seconds=PACE_SECONDS)
    assert boost(cluster, one)
