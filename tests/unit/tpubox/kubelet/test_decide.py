"""The next step for the containers of a pod: tables over plain data."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tpubox.kubelet import decide
from tpubox.kubelet.containers import Container, Role
from tpubox.kubelet.decide import next_step
from tpukit.places.local.processes import Phase, PodState

NOW = 1000.0
RUNNING = PodState(Phase.RUNNING, began=NOW - 5)


def ended(code: int = 0, ago: float = 1.0) -> PodState:
    return PodState(Phase.ENDED, began=NOW - ago - 1, ended=NOW - ago, code=code)


def container(name: str, role: Role, *runs: PodState) -> Container:
    own = {"restartPolicy": "Always"} if role is Role.SIDECAR else {}
    return Container({"name": name, **own}, role, Path(name), runs)


def main(*runs: PodState, name: str = "main") -> Container:
    return container(name, Role.MAIN, *runs)


def started(policy: str, *containers: Container) -> list[str]:
    return [one.name for one in next_step(containers, policy, NOW, grace=30).start]


def test_init_containers_start_one_after_the_other():
    one, two = container("one", Role.INIT), container("two", Role.INIT)
    assert started("Never", one, two, main()) == ["one"]
    assert started("Never", container("one", Role.INIT, RUNNING), two, main()) == []
    assert started("Never", container("one", Role.INIT, ended()), two, main()) == ["two"]


def test_main_containers_start_together_when_init_is_done_and_sidecars_run():
    before = (container("init", Role.INIT, ended()), container("side", Role.SIDECAR, RUNNING))
    assert started("Never", *before, main(), main(name="other")) == ["main", "other"]


def test_sidecar_that_has_not_started_by_its_probe_is_waited_for_and_a_main_container_is_not():
    side, other = container("side", Role.SIDECAR, RUNNING), main(name="other")
    step = next_step([side, main(RUNNING), other], "Never", NOW, grace=30, starting={"side"})
    assert (step.start, step.over) == ((), False)
    step = next_step([side, main(RUNNING), other], "Never", NOW, grace=30, starting={"main"})
    assert step.start == (other,)


@pytest.mark.parametrize(("policy", "again"), [("Always", True), ("OnFailure", True), ("Never", False)])
def test_container_that_a_probe_ended_failed_whatever_it_says(policy: str, again: bool):
    one = replace(main(ended(0)), unwell=True)
    assert next_step([one], policy, NOW, grace=30).start == ((one,) if again else ())


def test_failed_init_container_ends_the_pod_or_is_tried_again():
    failed = container("init", Role.INIT, ended(1))
    assert next_step([failed, main()], "Never", NOW, grace=30).over
    assert started("OnFailure", failed, main()) == ["init"]


@pytest.mark.parametrize(
    ("policy", "code", "again"),
    [("Never", 0, False), ("Never", 1, False), ("OnFailure", 0, False), ("OnFailure", 1, True), ("Always", 0, True)],
)
def test_restart_policy_decides_whether_a_container_starts_again(policy: str, code: int, again: bool):
    step = next_step([main(ended(code))], policy, NOW, grace=30)
    assert (bool(step.start), step.over) == (again, not again)


def test_restarts_wait_twice_as_long_each_time_and_at_most_five_minutes():
    waits = []
    for runs in range(1, 9):
        step = next_step([main(*[ended(1, ago=0.0)] * runs)], "Always", NOW, grace=30)
        waits.append(step.again)
        assert step.crashing == (frozenset({"main"}) if runs > 1 else frozenset())
    assert waits == [None, 10, 20, 40, 80, 160, 300, 300]


def test_restart_after_a_long_run_is_at_once_and_the_waits_begin_anew():
    long = PodState(Phase.ENDED, began=NOW - decide.FORGIVEN_SECONDS - 1, ended=NOW, code=1)
    short = ended(1, ago=0.0)
    assert started("Always", main(short, short, short, long)) == ["main"]
    assert next_step([main(short, short, long, short)], "Always", NOW, grace=30).again == 10


@pytest.mark.parametrize(
    ("policy", "own", "rule", "code", "again"),
    [
        ("Never", "OnFailure", None, 1, True),
        ("Never", "Always", None, 0, True),
        ("Always", "Never", None, 1, False),
        ("Always", "OnFailure", None, 0, False),
        ("Never", "Never", ("In", [42]), 42, True),
        ("Never", "Never", ("In", [42]), 1, False),
        ("Never", "Never", ("NotIn", [42]), 1, True),
        ("Always", "Never", ("NotIn", [42]), 42, False),
    ],
)
def test_restart_policy_and_rules_of_a_container_are_stronger_than_the_pods(policy, own, rule, code, again):
    rules = [{"action": "Restart", "exitCodes": {"operator": rule[0], "values": rule[1]}}] if rule else []
    spec = {"name": "main", "restartPolicy": own, "restartPolicyRules": rules}
    step = next_step([Container(spec, Role.MAIN, Path("main"), (ended(code),))], policy, NOW, grace=30)
    assert (bool(step.start), step.over) == (again, not again)


def test_init_container_with_a_policy_of_its_own_is_tried_again_in_a_pod_that_never_restarts():
    spec = {"name": "init", "restartPolicy": "OnFailure"}
    assert started("Never", Container(spec, Role.INIT, Path("init"), (ended(1),)), main()) == ["init"]


@pytest.mark.parametrize(
    ("policy", "code", "by_something_else"),
    [("Always", 0, True), ("OnFailure", 1, True), ("OnFailure", 0, False), ("Never", 1, False), ("Never", 0, False)],
)
def test_pod_that_waited_for_its_next_run_did_not_end_by_itself(policy: str, code: int, by_something_else: bool):
    pod = [container("init", Role.INIT, ended()), main(ended(code))]
    assert decide.interrupted(pod, policy) == by_something_else


def test_sidecar_that_ends_is_started_again_while_the_main_one_runs():
    assert started("Never", container("side", Role.SIDECAR, ended()), main(RUNNING)) == ["side"]


def test_sidecars_end_last_first_after_the_main_ones():
    one, two = container("one", Role.SIDECAR, RUNNING), container("two", Role.SIDECAR, RUNNING)
    step = next_step([one, two, main(ended())], "Never", NOW, grace=30)
    assert [(each.name, grace) for each, grace in step.stop] == [("two", 30)]
    step = next_step([one, container("two", Role.SIDECAR, ended()), main(ended())], "Never", NOW, grace=30)
    assert [each.name for each, _ in step.stop] == ["one"]


def test_deadline_stops_the_main_ones_first_with_the_time_that_is_left():
    side = container("side", Role.SIDECAR, RUNNING)
    step = next_step([side, main(RUNNING), main(ended(1), name="done")], "Never", NOW, grace=30, deadline=NOW + 7)
    assert [(each.name, grace) for each, grace in step.stop] == [("main", 7)]
    assert not step.start and not step.over


def test_sidecar_does_not_decide_success():
    assert not decide.failed([container("side", Role.SIDECAR, ended(1)), main(ended())])
    assert decide.failed([main(ended()), main(ended(1), name="other")])


_runs = st.lists(st.sampled_from([ended(), ended(1), PodState(Phase.LOST, began=NOW - 9, code=137)]), max_size=3)
_one = st.tuples(st.sampled_from([Role.INIT, Role.SIDECAR]), _runs, st.booleans())


@given(
    st.lists(_one, max_size=3), _runs, st.booleans(), st.sampled_from(["Never", "OnFailure", "Always"]), st.booleans()
)
def test_step_never_starts_what_runs_nor_ends_while_something_does(before, runs, running, policy, leaving):
    containers = [
        container(f"c{i}", role, *some, *([RUNNING] if alive else [])) for i, (role, some, alive) in enumerate(before)
    ]
    containers.append(main(*runs, *([RUNNING] if running else [])))
    step = next_step(containers, policy, NOW, grace=30, deadline=NOW + 5 if leaving else None)
    alive = [one for one in containers if one.running]
    assert not any(one in alive for one in step.start)
    assert all(one in alive for one, _ in step.stop)
    assert not (step.over and alive)
    assert not (leaving and step.start)
    if leaving:
        assert step.over or step.stop
