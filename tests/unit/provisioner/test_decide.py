"""`decide` over clusters in any state: its rules, and that it settles."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from tpukit import catalogue
from tpukit.google.gke import NodePool, Operation
from tpukit.provisioner import pool_names, pools
from tpukit.provisioner.decide import Cordon, Create, Delete, Step, decide
from tpukit.provisioner.needs import Choice, Need
from tpukit.provisioner.observation import JobSetState, Observation, Tries
from tpukit.provisioner.settings import Capacity, Settings

NOW = 1_700_000_000.0
SHAPE = catalogue.find("v4-16")
CHOICES = tuple(Choice(SHAPE, 2, zone, Capacity("on-demand")) for zone in ("us-central2-b", "us-central2-c"))
JOBSETS = tuple(f"jobset-{number}" for number in range(4))
CONFIG = Settings()
STATUSES = ("PROVISIONING", "RUNNING", "RUNNING_WITH_ERROR", "RECONCILING", "STOPPING", "ERROR")
KINDS = ("CREATE_NODE_POOL", "DELETE_NODE_POOL", "SET_NODE_POOL_SIZE", "UPGRADE_NODES")


def need_of(jobset: str, uid: str, job: str, since: float = NOW - 100) -> Need:
    pool = pool_names.pool_name(jobset, uid, job)
    return Need(pool, "team", jobset, uid, job, f"{job}-0", f"pod-{job}", since, "0/0 nodes", CHOICES)


def pool_of(need: Need, status: str, created: float, **changes: object) -> NodePool:
    body = pools.body(need.pool, need, CHOICES[0], 0, created)
    made = NodePool(
        need.pool, status, "trouble", "ct4p-hightpu-4t", "2x2x2", ("us-central2-b",), 2, labels=body["config"]["labels"]
    )
    return replace(made, **changes)  # type: ignore[arg-type]


@st.composite
def observations(draw: st.DrawFn) -> Observation:
    states = {
        ("team", name): JobSetState(
            f"uid-{draw(st.integers(1, 2))}",
            draw(st.sampled_from(["active", "suspended", "completed", "failed"])),
            NOW - draw(st.integers(0, 2000)),
        )
        for name in draw(st.sets(st.sampled_from(JOBSETS)))
    }
    jobs = [need_of(name, f"uid-{uid}", f"{name}-{job}") for name in JOBSETS for uid in (1, 2) for job in (0, 1)]

    def some(most: int) -> list[Need]:
        chosen = draw(st.sets(st.sampled_from(range(len(jobs))), max_size=most))
        return [jobs[number] for number in sorted(chosen)]

    known = {
        one.pool: pool_of(
            one,
            draw(st.sampled_from(STATUSES)),
            NOW - draw(st.integers(0, 3000)),
            topology=draw(st.sampled_from(["2x2x2", "2x2x4"])),
        )
        for one in some(6)
    }
    for one in some(2):  # pools of others, under any name
        known[one.pool] = NodePool(one.pool, draw(st.sampled_from(STATUSES)), labels={"team": "research"})
    known |= {f"static-{n}": NodePool(f"static-{n}", draw(st.sampled_from(STATUSES))) for n in range(2)}
    waiting = [one for one in some(16) if ("team", one.jobset) in states]
    names_of = st.sampled_from([one.pool for one in jobs])
    errors = st.sampled_from(["", "no"])
    operations = [
        Operation(f"op-{n}", draw(st.sampled_from(KINDS)), draw(names_of), draw(st.booleans()), draw(errors))
        for n in range(draw(st.integers(0, 4)))
    ]
    created = st.sampled_from([one.created for one in map(pools.owner, known.values()) if one] or [0.0])
    tried = st.builds(
        Tries, created=created, errors=st.integers(0, 6), not_before=st.integers(-50, 50).map(lambda wait: NOW + wait)
    )
    occupied = {name: ("other/pod",) if draw(st.booleans()) else () for name in known}
    return Observation(
        needs=tuple(waiting),
        pools=known,
        operations=tuple(operations),
        jobsets=states,
        jobsets_known=draw(st.booleans()),
        hosts_ready={name: draw(st.integers(0, 2)) for name in known},
        hosts={name: hosts_of(name) for name in known},
        cordoned={name: hosts_of(name)[: draw(st.integers(0, 2))] for name in known},
        seats=draw(st.dictionaries(names_of, names_of, max_size=3)),
        foreign=draw(st.sampled_from([None, occupied])),
        suspects={name: NOW - draw(st.integers(0, 300)) for name in known if draw(st.booleans())},
        idle={name: NOW - draw(st.integers(0, 1800)) for name in known if draw(st.booleans())},
        tries={name: draw(tried) for name in known},
    )


def hosts_of(pool: str) -> tuple[str, ...]:
    return (f"{pool}-0", f"{pool}-1")


def acts(seen: Observation, limit: int = 100) -> dict[str, Step]:
    return {name: step for name, step in decide(seen, CONFIG, NOW, limit).items() if step.act}


def deletes_only_what_is_ours_and_cordoned(seen: Observation) -> None:
    for name, step in acts(seen).items():
        if isinstance(step.act, Delete):
            assert pools.owner(seen.pools[name]) is not None
            assert seen.foreign is not None and not seen.foreign[name]
            assert set(seen.cordoned[name]) == set(seen.hosts[name])


def cordons_what_is_removed_next_and_reopens_what_stays(seen: Observation) -> None:
    for name, step in acts(seen).items():
        if isinstance(step.act, Cordon):
            assert pools.owner(seen.pools[name]) is not None
            assert set(step.act.hosts) <= set(seen.hosts[name])
            if step.act.on:
                assert seen.foreign is not None and not seen.foreign[name]
            else:
                assert set(step.act.hosts) == set(seen.cordoned[name])


def deletes_no_pool_of_a_jobset_that_runs_unless_another_is_needed_or_no_pod_came_for_long(seen: Observation) -> None:
    for name, step in acts(seen).items():
        if not isinstance(step.act, Delete) or step.need is not None:
            continue
        whose = pools.owner(seen.pools[name])
        assert whose is not None
        state = seen.jobsets.get((whose.namespace, whose.jobset))
        vacant = name not in seen.seats and NOW - seen.idle.get(name, NOW) >= CONFIG.pod_timeout
        assert vacant or state is None or state.uid != whose.uid or state.state != "active"
        assert state is not None or seen.jobsets_known
        assert NOW - whose.created >= CONFIG.minimum_age
        assert NOW - seen.suspects[name] >= CONFIG.removal_delay


def deletes_and_cordons_nothing_while_the_cluster_cannot_be_read(seen: Observation) -> None:
    steps = decide(replace(seen, jobsets_known=False), CONFIG, NOW, 100).values()
    assert not [one for one in steps if isinstance(one.act, Delete) or (isinstance(one.act, Cordon) and one.act.on)]


def deletes_only_what_an_earlier_round_saw_to_be_superfluous_or_broken(seen: Observation) -> None:
    for name, step in acts(seen).items():
        if isinstance(step.act, Delete):
            whose = pools.owner(seen.pools[name])
            assert whose is not None
            recorded = seen.tries[name].created == whose.created
            assert name in seen.suspects or recorded


def names_the_owner_and_the_incarnation_in_each_delete(seen: Observation) -> None:
    for name, step in acts(seen).items():
        if isinstance(step.act, Delete):
            labels = seen.pools[name].labels
            for key in (pool_names.MANAGED_BY, pool_names.UID, pool_names.JOB, pool_names.CREATED):
                assert step.act.labels[key] == labels[key]


def buys_nothing_that_was_unused_before_its_time_is_over(seen: Observation) -> None:
    for name, step in acts(seen).items():
        if isinstance(step.act, Create):
            assert seen.tries.get(name, Tries()).not_before <= NOW


def makes_no_two_pools_for_a_slice(seen: Observation) -> None:
    """Check that a need gets at most one create, under a free name without an operation."""
    creates = {name: step.act for name, step in acts(seen).items() if isinstance(step.act, Create)}
    made_for = [act.need.pool for act in creates.values()]
    assert len(made_for) == len(set(made_for))
    busy = {one.target for one in seen.operations if not one.done}
    assert not creates.keys() & (seen.pools.keys() | busy)


def starts_no_more_than_may_be_under_way(seen: Observation) -> None:
    running = {one.target for one in seen.operations if not one.done}
    for limit in range(9):
        starting = [step for step in acts(seen, limit).values() if not isinstance(step.act, Cordon)]
        assert len(starting) <= max(0, limit - len(running))


def says_the_same_of_the_same_with_a_reason_for_every_step(seen: Observation) -> None:
    steps = decide(seen, CONFIG, NOW, 5)
    assert decide(seen, CONFIG, NOW, 5) == steps
    assert all(step.reason for step in steps.values())


RULES = (
    deletes_only_what_is_ours_and_cordoned,
    cordons_what_is_removed_next_and_reopens_what_stays,
    deletes_no_pool_of_a_jobset_that_runs_unless_another_is_needed_or_no_pod_came_for_long,
    deletes_and_cordons_nothing_while_the_cluster_cannot_be_read,
    deletes_only_what_an_earlier_round_saw_to_be_superfluous_or_broken,
    names_the_owner_and_the_incarnation_in_each_delete,
    buys_nothing_that_was_unused_before_its_time_is_over,
    makes_no_two_pools_for_a_slice,
    starts_no_more_than_may_be_under_way,
    says_the_same_of_the_same_with_a_reason_for_every_step,
)


@given(observations())
@settings(max_examples=300)
def test_decide_keeps_each_of_its_rules_in_a_cluster_of_any_state(seen: Observation):
    """Checks all rules at once, because generating a cluster takes longer than checking it."""
    for rule in RULES:
        rule(seen)


@given(observations())
@settings(max_examples=100)
def test_decide_comes_to_rest_when_gke_does_what_it_is_asked(seen: Observation):
    """When each act succeeds at once, decisions stop before long, and no act is undone."""
    seen = replace(seen, operations=(), foreign=dict.fromkeys(seen.pools, ()), seats={}, jobsets_known=True)
    seen = replace(seen, pools={k: v for k, v in seen.pools.items() if v.status != "STOPPING"})
    now, made = NOW, 0
    for _ in range(60):
        now += 1000
        steps = decide(seen, CONFIG, now, 100)
        todo = {name: step for name, step in steps.items() if step.act or step.tries != step.before}
        if not todo and now > NOW + 5000:
            break
        known, tries, cordoned = dict(seen.pools), dict(seen.tries), dict(seen.cordoned)
        for name, step in todo.items():
            tries[name] = step.tries
            if isinstance(step.act, Create):
                made += 1
                known[name] = pool_of(replace(step.act.need, pool=name), "RUNNING", now)
            elif isinstance(step.act, Delete):
                del known[name]
                cordoned.pop(name)
            elif isinstance(step.act, Cordon):
                cordoned[name] = hosts_of(name) if step.act.on else ()
        ready = dict.fromkeys(known, 2)
        free = dict.fromkeys(known, ())
        suspects = dict.fromkeys(known, NOW)
        hosts = {name: hosts_of(name) for name in known}
        seen = replace(seen, pools=known, tries=tries, hosts_ready=ready, foreign=free, suspects=suspects)
        seen = replace(seen, hosts=hosts, cordoned=cordoned)
    else:
        raise AssertionError(f"still at it: {todo}")
    assert made <= 2 * len(seen.needs)


def test_decide_jobs_that_sit_on_each_others_pools_ask_for_the_one_that_is_missing():
    first, second = (need_of("jobset-0", "uid-1", f"jobset-0-{job}") for job in (0, 1))
    seen = Observation(
        needs=(first,),
        pools={first.pool: pool_of(first, "RUNNING", NOW - 1000)},
        jobsets={("team", "jobset-0"): JobSetState("uid-1", "active")},
        seats={first.pool: second.pool},
        hosts_ready={first.pool: 2},
    )
    assert list(acts(seen)) == [second.pool]


def swapped(waited: float, sitting: str = "") -> Observation:
    """Return two pools of one slice, where the second was made while another JobSet used the first.

    `sitting` is the JobSet on the second pool.
    """
    slice_, other = need_of("jobset-0", "uid-1", "jobset-0-0"), need_of("jobset-1", "uid-1", "jobset-1-0")
    made, first, second = pool_of(slice_, "RUNNING", NOW - 2000), slice_.pool, other.pool
    return Observation(
        pools={first: made, second: replace(made, name=second)},
        jobsets={("team", "jobset-0"): JobSetState("uid-1", "active")},
        seats={first: first, **({second: sitting} if sitting else {})},
        hosts_ready={first: 2, second: 2},
        hosts={first: hosts_of(first), second: hosts_of(second)},
        cordoned={second: hosts_of(second)},
        foreign={second: ()},
        suspects={second: NOW - 60},
        idle={second: NOW - waited},
    )


def test_second_pool_of_a_slice_is_removed_when_no_pod_came_for_so_long_although_its_jobset_runs():
    (step,) = acts(swapped(CONFIG.pod_timeout)).values()
    assert isinstance(step.act, Delete)
    assert "no pod is on it" in step.reason


def test_second_pool_of_a_slice_stays_before_that_and_when_a_pod_is_on_it():
    early = decide(swapped(CONFIG.pod_timeout - 1), CONFIG, NOW, 5).values()
    assert sorted((step.state, step.idle) for step in early) == [("retained", False), ("retained", True)]
    seated = decide(swapped(CONFIG.pod_timeout, "some-slice"), CONFIG, NOW, 5).values()
    assert [(step.state, step.idle) for step in seated] == [("retained", False)] * 2


def test_pool_that_another_leader_recorded_as_unused_is_removed_without_counting_anew():
    need = need_of("jobset-0", "uid-1", "jobset-0-0")
    seen = replace(swapped(0), needs=(need,), seats={}, idle={need.pool: NOW - CONFIG.removal_delay})
    assert not [one for one in acts(seen).values() if isinstance(one.act, Delete)]
    tries = Tries(kind="unused", created=NOW - 2000, at=NOW - 300, why="its pod did not come", not_before=NOW + 3000)
    recorded = replace(seen, tries={need.pool: tries})
    recorded = replace(recorded, foreign={need.pool: ()}, cordoned={need.pool: hosts_of(need.pool)})
    step = acts(recorded)[need.pool]
    assert (type(step.act), step.reason) == (Delete, "its pod did not come")
    early = replace(recorded, idle={need.pool: NOW})
    assert need.pool not in acts(early) or not isinstance(acts(early)[need.pool].act, Delete)


def test_pool_that_is_being_deleted_counts_as_without_a_pod_for_as_long_as_before():
    need = need_of("jobset-0", "uid-1", "jobset-0-0")
    seen = replace(swapped(60), needs=(need,), seats={}, idle={need.pool: NOW - 60})
    gone = {name: replace(pool, status="STOPPING") for name, pool in seen.pools.items()}
    steps = decide(replace(seen, pools=gone, idle=dict.fromkeys(gone, NOW - 60)), CONFIG, NOW, 5)
    assert [step.idle for step in steps.values()] == [True, True]
