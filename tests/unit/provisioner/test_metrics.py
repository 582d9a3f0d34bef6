"""Metrics of the provisioner, with a GKE that acts by itself."""

from __future__ import annotations

import re
import threading
from dataclasses import replace

from support.provisioner_world import ProvisionerWorld
from support.waiting import PATIENCE
from tpukit.provisioner.driver import Driver


def counted(world: ProvisionerWorld, name: str) -> dict[str, float]:
    """Return the values of a metric by labels."""
    lines = re.findall(rf"^{name}(\{{[^}}]*\}})? (\S+)$", world.metrics.text(), re.MULTILINE)
    return {labels: float(value) for labels, value in lines}


def outcomes(world: ProvisionerWorld) -> dict[tuple[str, str], int]:
    """Count operations by act and outcome."""
    counts = counted(world, "tpukit_provisioner_operations_total")
    pairs = {tuple(re.findall(r'"([^"]*)"', labels)): int(value) for labels, value in counts.items()}
    return {(act, outcome): value for (act, outcome), value in pairs.items()}


def test_metrics_operations_count_when_they_finish_and_by_how():
    world = ProvisionerWorld(zones=("us-central2-b", "us-central2-c"))
    world.gke.stock["us-central2-b", "on-demand"] = 0
    world.cluster.send("one")
    world.pass_time(10)
    assert outcomes(world) == {}  # accepted, and still running
    world.pass_time(600)
    assert outcomes(world) == {("create", "stock-out"): 1, ("delete", "ok"): 1, ("create", "ok"): 1}
    world.gke.breaks["delete"] = 1
    world.cluster.finish("one")
    world.pass_time(900)
    assert not world.pools()
    assert outcomes(world)["delete", "error"] == 1
    assert outcomes(world)["delete", "ok"] == 2


def test_metrics_operations_that_finished_before_this_replica_are_not_its_own():
    world = ProvisionerWorld()
    world.cluster.send("one")
    world.pass_time(300)
    before = outcomes(world)
    world.start()
    world.pass_time(300)
    assert outcomes(world) == before == {("create", "ok"): 1}


def test_metrics_call_that_is_refused_is_a_call_and_no_operation():
    world = ProvisionerWorld()
    world.gke.quota = 0
    world.cluster.send("one")
    world.pass_time(20)
    assert outcomes(world) == {}
    assert counted(world, "tpukit_provisioner_calls_total") == {'{act="create",outcome="NoCapacity"}': 1.0}


def test_metrics_time_to_ready_begins_when_the_leader_was_unschedulable():
    world = ProvisionerWorld()
    world.gke.seconds = (100.0, 100.0)
    world.pass_time(40)
    world.cluster.send("one")
    world.pass_time(300)
    assert counted(world, "tpukit_provisioner_ready_seconds_count") == {'{group="cluster"}': 1.0}
    (seconds,) = counted(world, "tpukit_provisioner_ready_seconds_sum").values()
    assert 100.0 <= seconds <= 125.0
    buckets = counted(world, "tpukit_provisioner_ready_seconds_bucket")
    assert [count for labels, count in buckets.items() if '"60.0"' in labels or '"300.0"' in labels] == [0.0, 1.0]


def test_metrics_time_to_ready_spans_the_attempts_that_found_no_chips():
    world = ProvisionerWorld()
    world.gke.stock["us-central2-b", "on-demand"] = 0
    world.cluster.send("one")
    world.pass_time(600)
    del world.gke.stock["us-central2-b", "on-demand"]
    world.pass_time(1500)
    (seconds,) = counted(world, "tpukit_provisioner_ready_seconds_sum").values()
    assert seconds > 600.0


def test_metrics_decision_counts_once_however_often_it_is_come_to():
    world = ProvisionerWorld()
    world.cluster.send("one", jobs=2)
    world.pass_time(300)
    decisions = counted(world, "tpukit_provisioner_decisions_total")
    assert decisions == {'{reason="NodePoolCreating"}': 2.0, '{reason="NodePoolReady"}': 2.0}


def test_metrics_pools_are_counted_by_state():
    world = ProvisionerWorld()
    world.cluster.send("one", jobs=2)
    world.pass_time(10)
    assert counted(world, "tpukit_provisioner_pools") == {'{state="creating"}': 2.0}
    world.pass_time(300)
    assert counted(world, "tpukit_provisioner_pools") == {'{state="retained"}': 2.0}


def test_metrics_pool_told_of_by_a_round_that_was_not_over_counts_once():
    """The next round has already observed, and makes the same decision."""
    world, gate = ProvisionerWorld(), threading.Event()
    rounds = 0

    def decided(_steps: object) -> None:
        nonlocal rounds
        rounds += 1
        if rounds == 4:
            gate.set()
            assert driver.kernel.settle(PATIENCE)

    def told(_step: object, reason: str) -> None:
        reasons.append(reason)

    reasons: list[str] = []
    counting = replace(world.metrics.counting(), decided=decided, announced=told)
    driver = Driver(
        world.cluster,
        world.gke,
        world.cluster,
        world.leader,
        world.clock,
        zones=world.zones,
        workers=1,
        counting=counting,
    )
    world.cluster.send("one")
    driver.round()
    assert driver.kernel.settle(PATIENCE)
    world.clock.sleep(100)
    world.gke.tick()
    world.cluster.schedule()
    hold = world.leader.hold
    world.leader.hold = lambda name: gate.wait(PATIENCE) and hold(name)
    for _ in range(3):
        driver.round()
    assert driver.kernel.settle(PATIENCE)
    driver.close()
    assert reasons == ["NodePoolCreating", "NodePoolReady"]
