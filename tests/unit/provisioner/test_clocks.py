"""Replicas of the provisioner with wrong clocks: no slice is lost, kept or delayed because of them."""

from __future__ import annotations

from dataclasses import replace

from support.provisioner_world import ProvisionerWorld
from tpukit.provisioner.decide import Create, decide
from tpukit.provisioner.observation import JobSetState, Observation, Tries
from tpukit.provisioner.settings import Settings
from tpukit.provisioner.view import MirrorView
from unit.provisioner.test_decide import NOW, need_of, pool_of

DAY = 86_400.0
NEED = need_of("train", "uid-1", "train-0")
JOBSETS = {("team", "train"): JobSetState("uid-1", "active")}


def test_pool_whose_hosts_are_coming_stays_where_the_clock_is_a_day_ahead():
    seen = Observation(needs=(NEED,), pools={NEED.pool: pool_of(NEED, "RUNNING", NOW - 90)}, jobsets=JOBSETS)
    step = decide(seen, Settings(), NOW + DAY, 5)[NEED.pool]
    assert (step.state, step.event) == ("creating", "")


def test_pool_is_made_now_where_a_clock_that_was_a_day_ahead_recorded_a_failure():
    tries = Tries(1, rounds=1, at=NOW + DAY, not_before=NOW + DAY + 30, kind="stock-out")
    seen = Observation(needs=(NEED,), jobsets=JOBSETS, tries={NEED.pool: tries})
    assert isinstance(decide(seen, Settings(), NOW, 5)[NEED.pool].act, Create)


def test_pool_that_is_not_needed_leaves_in_time_where_it_was_made_by_a_clock_a_day_ahead():
    pool = pool_of(NEED, "RUNNING", NOW + DAY)
    seen = Observation(pools={NEED.pool: pool}, suspects={NEED.pool: NOW - 60})
    assert decide(seen, Settings(), NOW, 5)[NEED.pool].unchecked


def test_pool_of_a_jobset_that_is_out_of_sight_for_a_moment_stays_while_the_clock_jumps():
    world = ProvisionerWorld(removal_delay="600")
    world.cluster.send("train")
    world.pass_time(200)
    jobsets, world.cluster._jobsets = world.cluster._jobsets, {}
    world.pass_time(10)
    world.clock.set(world.clock.now() + DAY)
    world.pass_time(10)
    world.cluster._jobsets = jobsets
    world.pass_time(60)
    assert world.gke.made.total() == 1
    assert world.cluster.running("train") == 1


def test_hosts_that_stay_away_are_replaced_where_the_clock_is_right():
    pool = pool_of(NEED, "RUNNING", NOW - 4000)
    seen = Observation(needs=(NEED,), pools={NEED.pool: pool}, jobsets=JOBSETS, missing={NEED.pool: NOW - 1801})
    assert decide(seen, Settings(), NOW, 5)[NEED.pool].event == "NodePoolFailed"
    assert not decide(replace(seen, missing={NEED.pool: NOW - 1799}), Settings(), NOW, 5)[NEED.pool].event


def test_provisioner_that_was_stopped_during_a_list_removes_a_pool_in_time():
    world = ProvisionerWorld()
    listed = world.gke.pools
    world.gke.pools = lambda: (world.clock.sleep(400.0), listed())[1]
    world.pass_time(10)
    world.gke.pools = listed
    world.cluster.send("train")
    world.pass_time(300)
    world.cluster.delete("train")
    world.pass_time(600)
    assert world.pools() == []


class _Mirror:
    """A mirror that receives nothing and does not notice, because its process was suspended."""

    def __init__(self, fresh: float) -> None:
        self._fresh = fresh

    def fresh(self) -> float:
        return self._fresh

    def error(self) -> None:
        return None


def test_view_of_a_replica_that_was_suspended_is_out_of_date_until_its_mirrors_hear_again():
    view = MirrorView.__new__(MirrorView)
    view._all = (_Mirror(NOW - 90), _Mirror(NOW))
    assert view.trouble(NOW) == ""
    view._all = (_Mirror(NOW - 3600), _Mirror(NOW))
    assert "cannot be read now" in view.trouble(NOW)


def test_view_is_out_of_date_by_the_clock_that_no_one_sets_also_where_the_time_of_day_was_set_back():
    world = ProvisionerWorld()
    asked: list[float] = []
    world.driver._view.trouble = lambda now: (asked.append(now), "")[1]
    world.pass_time(10)
    world.clock.set(world.clock.now() - 86_400)
    before = len(asked)
    world.pass_time(10)
    assert asked[before - 1] < asked[-1] <= world.clock.elapsed()


def test_no_pool_is_bought_by_an_observation_that_is_out_of_date():
    seen = Observation(needs=(NEED,), jobsets=JOBSETS)
    assert decide(seen, Settings(), NOW, 5)[NEED.pool].act is not None
    step = decide(replace(seen, jobsets_known=False), Settings(), NOW, 5)[NEED.pool]
    assert (step.act, step.event) == (None, "")
