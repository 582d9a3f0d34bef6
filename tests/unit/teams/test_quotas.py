"""Quotas: their sum never exceeds the cluster, for any quotas of teams."""

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tpukit import catalogue
from tpukit.core.errors import Invalid, NotFound
from tpukit.core.quantities import amount
from tpukit.jobs import render
from tpukit.teams import quotas, shares
from tpukit.teams.team import Team

SHAPES = [catalogue.find(name) for name in ("v4-16", "v4-32", "v5e-8", "v6e-16")]
FLAVORS = [render.PoolKind(shape).flavor for shape in SHAPES]
CHIPS = {render.PoolKind(shape).flavor: shape.chips for shape in SHAPES}
V4_16 = FLAVORS[0]


def there(cpus=8, memory_gb=32, **slices):
    """Return the ClusterQueues of a cluster with this many slices of each shape."""
    shapes = {shape: slices[name] for shape, name in zip(SHAPES, ("a", "b", "c", "d"), strict=True) if name in slices}
    documents = render.queues(shapes, [], cpus=cpus, memory_gb=memory_gb)
    return [one for one in documents if one["kind"] == "ClusterQueue"]


def applied(made):
    return [render.cluster_queue(queue) for queue in made]


def sums(queues):
    total = {}
    for queue in queues:
        for key, share in shares.shares(queue).items():
            total[key] = total.get(key, 0) + share.own
    return total


WORLD = st.fixed_dictionaries({name: st.integers(1, 6) for name in "abcd"})
GIVEN = st.lists(st.dictionaries(st.sampled_from(FLAVORS), st.integers(1, 3), max_size=4), max_size=4)


@settings(max_examples=30, deadline=None)
@given(WORLD, GIVEN, st.integers(0, 40), st.integers(0, 300))
def test_quotas_add_up_to_what_there_is_and_each_team_has_what_it_was_given(world, given_, cpus, memory_gb):
    queues = there(cpus, memory_gb, **world)
    slices = {flavor: world[name] for flavor, name in zip(FLAVORS, "abcd", strict=True)}
    assume(all(sum(team.get(flavor, 0) for team in given_) <= slices[flavor] for flavor in FLAVORS))
    teams = [Team(f"team-{number}", quota) for number, quota in enumerate(given_)]
    made = applied(quotas.divide(quotas.total(queues), teams))
    assert sums(made) == sums(queues)
    assert all(share.own >= 0 for queue in made for share in shares.shares(queue).values())
    by_name = {queue["metadata"]["name"]: shares.shares(queue) for queue in made}
    assert set(by_name) == {"tpu", *(team.name for team in teams if team.quota)}
    for team in teams:
        for flavor, count in team.quota.items():
            assert by_name[team.name][flavor, "google.com/tpu"].own == count * CHIPS[flavor]
    assert not quotas.overdrawn(made)


@settings(max_examples=30, deadline=None)
@given(WORLD, GIVEN)
def test_quotas_given_back_leave_the_queue_as_it_was(world, given_):
    queues = there(**world)
    slices = {flavor: world[name] for flavor, name in zip(FLAVORS, "abcd", strict=True)}
    assume(all(sum(team.get(flavor, 0) for team in given_) <= slices[flavor] for flavor in FLAVORS))
    teams = [Team(f"team-{number}", quota) for number, quota in enumerate(given_)]
    with_teams = applied(quotas.divide(quotas.total(queues), teams))
    assert applied(quotas.divide(quotas.total(with_teams), [])) == queues


@settings(max_examples=30, deadline=None)
@given(WORLD, st.dictionaries(st.sampled_from(FLAVORS), st.integers(1, 3), min_size=1))
def test_quota_of_a_team_holds_its_jobs_with_their_cpus_and_memory(world, quota):
    slices = {flavor: world[name] for flavor, name in zip(FLAVORS, "abcd", strict=True)}
    assume(all(count <= slices[flavor] for flavor, count in quota.items()))
    (_, own) = applied(quotas.divide(quotas.total(there(**world)), [Team("team", quota)]))
    has = shares.shares(own)
    for shape in SHAPES:
        flavor = render.PoolKind(shape).flavor
        hosts = quota.get(flavor, 0) * shape.hosts
        assert has[flavor, "cpu"].own >= hosts * render.machine_share.cpu(shape)
        assert has[flavor, "memory"].own >= hosts * render.machine_share.memory_gb(shape) * 10**9


def test_borrowing_is_limited_in_chips_alone():
    (_, own) = applied(quotas.divide(quotas.total(there(a=3, b=2)), [Team("team", {V4_16: 1}, {V4_16: 1})]))
    limits = {key: share.limit for key, share in shares.shares(own).items()}
    assert limits[V4_16, "google.com/tpu"] == 8
    assert limits[FLAVORS[1], "google.com/tpu"] == 0
    assert {limit for (_, resource), limit in limits.items() if resource != "google.com/tpu"} == {None}


def test_every_queue_lends_takes_back_and_evicts_lower_work_of_its_own():
    for queue in applied(quotas.divide(quotas.total(there(a=2)), [Team("team", {V4_16: 1})])):
        assert queue["spec"]["cohortName"] == "tpu"
        assert queue["spec"]["preemption"] == {
            "withinClusterQueue": "LowerPriority",
            "reclaimWithinCohort": "Any",
            "borrowWithinCohort": {"policy": "Never"},
        }


def test_total_of_a_queue_that_says_nothing_is_what_all_have_together():
    made = applied(quotas.divide(quotas.total(there(a=2)), [Team("team", {V4_16: 1})]))
    for queue in made:
        queue["metadata"].pop("annotations", None)
    assert quotas.total(made) == quotas.total(there(a=2))


def test_queue_applied_anew_hands_out_too_much_until_it_is_divided_again():
    (_, own) = applied(quotas.divide(quotas.total(there(a=2)), [Team("team", {V4_16: 1})]))
    anew = [*there(a=2), own]
    assert quotas.overdrawn(anew) == ["3 × v4-16 are assigned to teams, and the cluster has 2"]
    assert not quotas.overdrawn(applied(quotas.divide(quotas.total(anew), [Team("team", {V4_16: 1})])))


def test_pools_that_went_away_leave_the_common_queue_empty_and_never_below():
    (common, _) = applied(quotas.divide(quotas.total(there(a=1)), [Team("team", {V4_16: 3})]))
    assert amount(common["spec"]["resourceGroups"][0]["flavors"][0]["resources"][0]["nominalQuota"]) == 0


def test_cluster_without_the_common_queue_is_told_what_makes_it():
    with pytest.raises(NotFound, match="tpu cluster addons"):
        quotas.total([])
    assert quotas.overdrawn([]) == [], "queues of somebody else's making are their affair"


@pytest.mark.parametrize(
    ("team", "said"),
    [
        (Team("b", {V4_16: 2}), "2 × v4-16 is too much: the cluster has 2, a has 1\n  write v4-16=1 or less"),
        (Team("b", {FLAVORS[1]: 1}), "the cluster has no v4-32\n  it has v4-16"),
        (Team("b", {V4_16: 1}, {FLAVORS[1]: 1}), "--borrow: the cluster has no v4-32"),
        (Team("b", {}, {}), "--borrow: b has no quota of its own"),
    ],
)
def test_check_refuses_what_cannot_be_given(team, said):
    with pytest.raises(Invalid) as error:
        quotas.check(quotas.total(there(a=2)), team, [Team("a", {V4_16: 1})])
    assert said in str(error.value)


def test_check_of_a_team_that_has_all_there_is_takes_it_from_nobody_else():
    with pytest.raises(Invalid, match="take some from another team first"):
        quotas.check(quotas.total(there(a=2)), Team("b", {V4_16: 1}), [Team("a", {V4_16: 2})])
