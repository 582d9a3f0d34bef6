"""Changes of teams, one write at a time: the sum never exceeds the cluster, even when the process dies."""

from __future__ import annotations

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from support.team_cluster import FakeCluster, Killed
from tpukit import catalogue
from tpukit.core.clock import ManualClock
from tpukit.core.errors import Conflict, Invalid, NotYet
from tpukit.jobs import render
from tpukit.teams import lock, quotas, registry, settling, shares
from tpukit.teams.team import request

NAMES = ("v4-16", "v4-32", "v5e-8")
SLICES = 4
SHAPES = {catalogue.find(name): SLICES for name in NAMES}
ACCOUNT = "jobs"


class World:
    """A cluster with a number of slices of each kind, whose sums are checked after every write."""

    def __init__(self) -> None:
        self.cluster = FakeCluster()
        for document in render.queues(SHAPES, ["research"], cpus=30, memory_gb=100):
            self.cluster.apply(document)
        self.there = self.sums()
        self.cluster.watcher = self.check

    def sums(self) -> dict[shares.Key, object]:
        total: dict[shares.Key, object] = {}
        for queue in self.cluster.list("ClusterQueue"):
            for key, share in shares.shares(queue).items():
                total[key] = total.get(key, 0) + share.own
        return total

    def check(self) -> None:
        over = {key: (own, self.there[key]) for key, own in self.sums().items() if own > self.there[key]}
        assert not over, f"more is handed out than there is after write {self.cluster.writes}: {over}"

    def add(self, name: str, **options: list[str]) -> None:
        self.cluster.revive()
        change = registry.plan(self.cluster, request(name, **options), ACCOUNT)
        registry.apply(self.cluster, change, ACCOUNT, ManualClock())

    def remove(self, name: str) -> None:
        self.cluster.revive()
        for team in registry.read_teams(self.cluster, ACCOUNT, name):
            registry.remove(self.cluster, team, ACCOUNT, ManualClock())

    def quota(self, name: str) -> dict[str, int]:
        (team,) = registry.read_teams(self.cluster, ACCOUNT, name)
        return dict(team.quota)


def by_name(queues):
    return {one["metadata"]["name"]: shares.shares(one) for one in queues}


def total_of(slices):
    documents = render.queues(slices, [], cpus=30, memory_gb=100)
    return quotas.total([one for one in documents if one["kind"] == "ClusterQueue"])


def quota(**counts: int) -> list[str]:
    return [f"{tpu.replace('_', '-')}={count}" for tpu, count in counts.items()]


def test_quota_moved_to_another_flavor_never_hands_out_more_than_there_is():
    world = World()
    world.add("vision", quota=quota(v4_16=4))
    world.add("vision", quota=quota(v4_32=4))
    assert world.quota("vision") == {"v4-2x2x4": 4}
    world.add("vision", quota=quota(v4_16=2, v5e_8=4))
    assert world.quota("vision") == {"v4-2x2x2": 2, "v5e-2x4": 4}
    assert world.sums() == world.there


MOVES = [  # quotas of vision before and after, and of speech meanwhile
    (quota(v4_16=4), quota(v4_32=4), quota(v5e_8=2)),
    (quota(v4_16=1, v5e_8=4), quota(v4_32=3, v5e_8=1), quota(v4_32=1)),
    (quota(v4_32=1), quota(v4_32=4), quota(v4_16=4)),
    (quota(v4_16=2), ["none"], quota(v4_16=2)),
    ([], quota(v4_16=2), quota(v4_16=2)),
]


@pytest.mark.parametrize(("before", "after", "of_speech"), MOVES)
@pytest.mark.parametrize("repaired_by", ["same", "another team"])
def test_change_that_dies_at_any_write_hands_out_too_much_at_no_moment_and_is_repaired_by_the_next(
    before, after, of_speech, repaired_by
):
    world = World()
    world.add("speech", quota=of_speech)
    if before:
        world.add("vision", quota=before)
    at_first = dict(world.cluster.objects)
    death = 0
    while True:
        death += 1
        world.cluster.objects = dict(at_first)
        world.cluster.dies_at = world.cluster.writes + death
        try:
            world.add("vision", quota=after)
        except Killed:
            if repaired_by == "another team":
                world.add("audio", quota=[])
                assert world.sums() == world.there, "what nobody has belongs to the common queue again"
            world.add("vision", quota=after)
        else:
            assert death > 1, "nothing was written"
            return
        assert request("vision", quota=after).applied(None).quota == world.quota("vision")
        assert world.sums() == world.there
        assert not quotas.overdrawn(world.cluster.list("ClusterQueue"))
        local = world.cluster.get("LocalQueue", "vision", "vision")
        assert local["spec"]["clusterQueue"] == ("tpu" if after == ["none"] else "vision")


def test_removal_that_dies_at_any_write_hands_out_too_much_at_no_moment():
    world = World()
    world.add("vision", quota=quota(v4_16=3, v5e_8=1))
    at_first = dict(world.cluster.objects)
    death = 0
    while True:
        death += 1
        world.cluster.objects = dict(at_first)
        world.cluster.dies_at = world.cluster.writes + death
        try:
            world.remove("vision")
        except Killed:
            world.remove("vision")
            world.add("audio", quota=quota(v4_16=4))
        else:
            assert death > 1
            return
        assert world.sums() == world.there


def test_two_teams_that_ask_for_the_same_slices_at_once_never_both_get_them():
    world = World()
    plans = [
        registry.plan(world.cluster, request(name, quota=quota(v4_16=3)), ACCOUNT) for name in ("vision", "speech")
    ]
    registry.apply(world.cluster, plans[0], ACCOUNT, ManualClock())
    with pytest.raises(Invalid, match="3 × v4-16 is too much: the cluster has 4, vision has 3"):
        registry.apply(world.cluster, plans[1], ACCOUNT, ManualClock())
    assert (world.quota("vision"), world.sums()) == ({"v4-2x2x2": 3}, world.there)


def test_quotas_are_changed_by_one_at_a_time_and_a_dead_one_holds_up_nobody_for_long():
    world, clock = World(), ManualClock()
    with lock.held(world.cluster, clock):
        waiting = ManualClock()
        change = registry.plan(world.cluster, request("vision", quota=quota(v4_16=1)), ACCOUNT)
        real, renewals = waiting.sleep, []

        def sleep(seconds: float) -> None:
            """Advance time while the holder continues to renew its lock."""
            real(seconds)
            held = world.cluster.get("Lease", lock.NAME, lock.NAMESPACE)
            if int(waiting.now()) % 5 == 0:
                renewals.append(world.cluster.replace(held))

        waiting.sleep = sleep
        with pytest.raises(NotYet, match="quotas are being changed by"):
            registry.apply(world.cluster, change, ACCOUNT, waiting)
        assert renewals
    world.cluster.dies_at = world.cluster.writes + 2
    with pytest.raises(Killed):
        world.add("vision", quota=quota(v4_16=1))
    began = clock.now()
    world.cluster.revive()
    registry.apply(world.cluster, change, ACCOUNT, clock)
    assert lock.VALID_SECONDS < clock.now() - began < 2 * lock.VALID_SECONDS
    assert world.quota("vision") == {"v4-2x2x2": 1}


def test_one_that_was_away_for_so_long_that_another_changed_quotas_writes_nothing_more():
    world, clock = World(), ManualClock()
    change = registry.plan(world.cluster, request("vision", quota=quota(v4_16=3)), ACCOUNT)
    with lock.held(world.cluster, clock) as slow:
        registry.apply(world.cluster, change, ACCOUNT, ManualClock())
        clock.sleep(lock.VALID_SECONDS)
        with pytest.raises(Conflict, match="another process"):
            slow.check()


def test_slices_that_went_away_are_taken_from_teams_in_proportion_and_come_back_with_the_pools():
    world = World()
    world.add("vision", quota=quota(v4_16=3))
    world.add("speech", quota=quota(v4_16=1, v4_32=2))
    fewer = total_of({catalogue.find("v4-16"): 2})
    there = world.cluster.list("ClusterQueue")
    settled = settling.settled(fewer, there, settling.with_quota([], there))
    has = {one["metadata"]["name"]: shares.shares(one)["v4-2x2x2", "google.com/tpu"].own for one in settled}
    assert has == {"tpu": 0, "vision": 8, "speech": 8}
    assert not quotas.overdrawn(settled)
    assert settling.shortfalls(settled) == [
        "speech was given 2 × v4-32 and has 0: the cluster has no more",
        "vision was given 3 × v4-16 and has 1: the cluster has no more",
    ]
    total = quotas.total(there)
    again = settling.settled(total, settled, settling.with_quota([], settled))
    assert by_name(again) == by_name(there)


def test_slices_that_are_all_bought_in_another_way_now_leave_teams_what_they_were_given():
    world = World()
    world.add("vision", quota=quota(v4_16=3), borrow=quota(v4_16=1))
    there = world.cluster.list("ClusterQueue")
    total = total_of({render.PoolKind(shape, "spot"): SLICES for shape in SHAPES})
    settled = settling.settled(total, there, settling.with_quota([], there))
    (vision,) = [one for one in settled if one["metadata"]["name"] == "vision"]
    assert settling.given(vision) == ({"v4-2x2x2-spot": 3}, {"v4-2x2x2-spot": 1})
    assert shares.shares(vision)["v4-2x2x2-spot", "google.com/tpu"].own == 24


def test_queue_whose_namespace_was_deleted_by_hand_is_not_handed_out_again():
    world = World()
    world.add("vision", quota=quota(v4_16=3))
    seen = world.cluster.get("Namespace", "vision")
    world.cluster.delete("Namespace", "vision", uid=seen["metadata"]["uid"])
    with pytest.raises(Invalid, match="vision has 3"):
        world.add("speech", quota=quota(v4_16=2))
    world.add("speech", quota=quota(v4_16=1))
    assert world.sums() == world.there


COUNTS = st.dictionaries(st.sampled_from(NAMES), st.integers(1, SLICES), max_size=3)
STEPS = st.lists(st.tuples(st.sampled_from(["vision", "speech", "audio"]), COUNTS, st.integers(0, 12)), max_size=6)


@settings(max_examples=15, deadline=None, derandomize=True)
@given(STEPS)
def test_any_changes_with_any_deaths_never_hand_out_more_than_there_is(steps):
    world = World()
    for team, counts, dies_after in steps:
        world.cluster.dies_at = world.cluster.writes + dies_after
        try:
            world.add(team, quota=[f"{tpu}={count}" for tpu, count in counts.items()] or ["none"])
        except (Killed, Invalid, Conflict):
            continue
    world.cluster.dies_at = 0
    assume(world.cluster.writes)
    world.add("last")
    assert world.sums() == world.there


def test_team_recreated_by_another_person_while_it_is_removed_stays():
    world = World()
    world.add("vision", quota=["v4-16=1"])
    (team,) = registry.read_teams(world.cluster, ACCOUNT, "vision")

    def recreate() -> None:
        world.cluster.objects["Namespace", "", "vision"]["metadata"]["uid"] = "another"

    world.cluster.watcher = recreate
    with pytest.raises(Conflict, match="another uid"):
        registry.remove(world.cluster, team, ACCOUNT, ManualClock())
    assert world.cluster.get("Namespace", "vision")["metadata"]["uid"] == "another"
