"""Queued resources of the emulator over time: when they may be fulfilled, and how long their TPU VMs may run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.google_world import PROJECT, World
from tpubox.google.compute import stock_and_quota
from tpubox.google.tpu import nodes as tpu_nodes
from tpubox.google.wire.cloud import stamp
from tpubox.google.wire.settings import Hooks

PLACE = f"projects/{PROJECT}/locations/us-central2-b"
V2, ALPHA = f"tpu/v2/{PLACE}", f"tpu/v2alpha1/{PLACE}"
V4_8 = {"acceleratorType": "v4-8", "runtimeVersion": "tpu-ubuntu2204-base"}
SECONDS = {"ADVANCE": 10.0}
DAY = 86400.0


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with World(tmp_path, seconds=SECONDS) as made:
        yield made


def request(**more: Any) -> dict[str, Any]:
    return {"tpu": {"nodeSpec": [{"parent": PLACE, "nodeId": "vm", "node": V4_8}]}, **more}


def queue(world: World, zone: str = V2, **more: Any) -> Any:
    return world.ask("POST", f"{zone}/queuedResources", request(**more), queuedResourceId="wish")


def lend(world: World, **run: Any) -> None:
    """Request a flex-start resource, and wait until it runs."""
    queue(world, ALPHA, provisioningModel="FLEX_START", **({"runDuration": run} if run else {}))
    world.pass_time(10)
    world.pass_time(10)
    assert state(world) == ("ACTIVE", "SERVICE")


def state(world: World) -> tuple[str, str]:
    told = world.ask("GET", f"{V2}/queuedResources/wish")["state"]
    return told["state"], told["stateInitiator"]


def vm(world: World, zone: str = V2) -> Any:
    return world.ask("GET", f"{zone}/nodes/vm")


def at(world: World, seconds: float) -> str:
    return stamp(world.clock.now() + seconds)


@pytest.mark.parametrize("form", ["validAfterDuration", "validAfterTime", "validInterval"])
def test_request_stays_accepted_without_machines_until_it_is_valid(world, form):
    values = {
        "validAfterDuration": "100.5s",
        "validAfterTime": at(world, 100.5),
        "validInterval": {"startTime": at(world, 100.5)},
    }
    queue(world, queueingPolicy={form: values[form]})
    for _ in range(10):
        world.pass_time(10)
    assert state(world) == ("ACCEPTED", "SERVICE")
    assert world.ask("GET", f"{V2}/nodes") == {"nodes": []}
    world.pass_time(0.5)
    assert state(world)[0] == "PROVISIONING"
    world.pass_time(10)
    assert (state(world)[0], vm(world)["state"]) == ("ACTIVE", "READY")
    assert world.ask("GET", f"{V2}/queuedResources/wish")["queueingPolicy"] == {form: values[form]}


def test_request_that_is_valid_later_leaves_the_chips_to_others_meanwhile(world):
    stock_and_quota.limit_stock(world.cloud, "us-central2-b", "v4", 4)
    queue(world, queueingPolicy={"validAfterDuration": "100s"})
    world.pass_time(10)
    world.ask("POST", f"{V2}/nodes", V4_8, nodeId="other")
    world.pass_time(1)
    assert world.ask("GET", f"{V2}/nodes/other")["state"] == "READY"
    world.pass_time(100)
    assert state(world)[0] == "WAITING_FOR_RESOURCES"
    world.ask("DELETE", f"{V2}/nodes/other")
    world.pass_time(1)
    assert state(world)[0] == "PROVISIONING"


def test_request_whose_time_has_come_already_does_not_wait(world):
    queue(world, queueingPolicy={"validAfterTime": at(world, -100)})
    world.pass_time(10)
    assert state(world)[0] == "PROVISIONING"


def test_request_for_an_interval_begins_with_it_and_fails_at_its_end(world):
    stock_and_quota.limit_stock(world.cloud, "us-central2-b", "v4", 0)
    queue(world, queueingPolicy={"validInterval": {"startTime": at(world, 100), "endTime": at(world, 160)}})
    seen = []
    for seconds in (99, 1, 59, 1):
        world.pass_time(seconds)
        seen.append(state(world)[0])
    assert seen == ["ACCEPTED", "WAITING_FOR_RESOURCES", "WAITING_FOR_RESOURCES", "FAILED"]
    told = world.ask("GET", f"{V2}/queuedResources/wish")["state"]
    assert (told["failedData"]["error"]["code"], "expired" in told["failedData"]["error"]["message"]) == (9, True)


@pytest.mark.parametrize(
    ("policy", "words"),
    [
        ({"validAfterDuration": "soon"}, "queueingPolicy.validAfterDuration"),
        ({"validAfterDuration": "60"}, "google.protobuf.Duration"),
        ({"validAfterDuration": "-60s"}, "google.protobuf.Duration"),
        ({"validUntilDuration": "1h"}, "google.protobuf.Duration"),
        ({"validUntilDuration": "0s"}, "in the past"),
        ({"validAfterTime": "tomorrow"}, "google.protobuf.Timestamp"),
        ({"validAfterTime": "2026-01-01T00:00:00"}, "google.protobuf.Timestamp"),
        ({"validAfterTime": "2026-02-30T00:00:00Z"}, "google.protobuf.Timestamp"),
        ({"validUntilTime": "1970-01-01T00:00:00Z"}, "in the past"),
        ({"validInterval": {"endTime": "1970-01-01T00:00:00Z"}}, "in the past"),
        (
            {"validInterval": {"startTime": "2999-01-02T00:00:00Z", "endTime": "2999-01-01T00:00:00Z"}},
            "interval in which resources may be created is empty",
        ),
        (
            {"validInterval": {"startTime": "2999-01-01T00:00:00Z", "endTime": "2999-01-01T01:00:00+01:00"}},
            "interval in which resources may be created is empty",
        ),
        (
            {"validAfterDuration": "60s", "validUntilDuration": "600s"},
            "oneof field 'start_timing_constraints' is already set. Cannot set 'validUntilDuration'",
        ),
        ({"validAfterDuration": "60s", "validAfterTime": "2999-01-01T00:00:00Z"}, "start_timing_constraints"),
    ],
)
def test_queueing_policy_that_cannot_be_meant_is_refused(world, policy, words):
    body = request(queueingPolicy=policy)
    status, word, text = world.refusal("POST", f"{V2}/queuedResources", body, queuedResourceId="wish")
    assert (status, word) == (400, "INVALID_ARGUMENT")
    assert words in text
    assert world.cloud.inventory() == []


def test_request_made_anew_under_the_name_of_one_that_waited_has_its_own_times(world):
    queue(world, queueingPolicy={"validAfterDuration": "100s"})
    world.pass_time(50)
    world.ask("DELETE", f"{V2}/queuedResources/wish")
    world.pass_time(1)
    queue(world, queueingPolicy={"validAfterDuration": "100s"})
    world.pass_time(50)
    assert state(world)[0] == "ACCEPTED"
    world.pass_time(49)
    assert state(world)[0] == "ACCEPTED"
    world.pass_time(1)
    assert state(world)[0] == "PROVISIONING"


def test_reset_request_has_the_durations_of_its_policy_again(world):
    queue(world, queueingPolicy={"validUntilDuration": "60s"})
    world.pass_time(10)
    world.pass_time(10)
    world.pass_time(1000)
    world.ask("POST", f"{V2}/queuedResources/wish:reset", {})
    world.pass_time(10)
    assert state(world)[0] == "PROVISIONING"


def test_lent_machines_are_taken_back_when_they_have_run_for_so_long(world):
    lend(world, maxRunDuration="3600s")
    assert vm(world, ALPHA)["schedulingConfig"]["terminationTimestamp"] == at(world, 3600)
    world.pass_time(3599)
    assert (state(world)[0], vm(world)["state"]) == ("ACTIVE", "READY")
    world.pass_time(1)
    assert (state(world), vm(world)["state"]) == (("SUSPENDING", "SERVICE"), "TERMINATED")
    assert not tpu_nodes.runs(world.cloud.state.get("vm", f"{PLACE}/nodes/vm"), 0)
    world.pass_time(10)
    assert state(world) == ("SUSPENDED", "SERVICE")
    assert world.ask("GET", f"{V2}/nodes") == {"nodes": []}
    world.pass_time(10 * DAY)
    assert state(world)[0] == "SUSPENDED"


def test_lent_machines_have_their_hosts_until_these_have_shut_down(tmp_path):
    hosts = ["vm"]
    hooks = Hooks(vm_has_hosts=lambda name: bool(hosts))
    with World(tmp_path, hooks, seconds=SECONDS) as world:
        lend(world, maxRunDuration="60s")
        world.pass_time(60)
        world.pass_time(20)
        assert (state(world)[0], vm(world)["state"]) == ("SUSPENDING", "TERMINATED")
        assert tpu_nodes.shutdown_of(world.cloud.state.get("vm", f"{PLACE}/nodes/vm"), 0) == {"grace": 30.0}
        hosts.clear()
        world.pass_time(1)
        assert state(world)[0] == "SUSPENDED"


def test_lent_machines_of_which_one_was_deleted_are_taken_back_with_those_that_are_left(world):
    spec = {"multiNodeParams": {"nodeCount": 2, "nodeIdPrefix": "vm"}, "node": V4_8}
    queue(world, ALPHA, tpu={"nodeSpec": [spec]}, runDuration={"maxRunDuration": "60s"})
    world.pass_time(10)
    world.pass_time(10)
    world.ask("DELETE", f"{V2}/nodes/vm-0")
    world.pass_time(60)
    world.pass_time(10)
    assert state(world) == ("SUSPENDED", "SERVICE")
    assert world.ask("GET", f"{V2}/nodes") == {"nodes": []}


def test_machines_lent_until_a_time_go_at_that_time_however_late_they_came(world):
    queue(world, ALPHA, runDuration={"terminationTime": at(world, 600)}, queueingPolicy={"validAfterDuration": "500s"})
    world.pass_time(500)
    world.pass_time(10)
    assert state(world)[0] == "ACTIVE"
    world.pass_time(90)
    assert state(world)[0] == "SUSPENDING"


def test_request_whose_machines_would_have_to_go_before_they_came_fails(world):
    stock_and_quota.limit_stock(world.cloud, "us-central2-b", "v4", 0)
    queue(world, ALPHA, runDuration={"terminationTime": at(world, 60)})
    world.pass_time(59)
    assert state(world)[0] == "WAITING_FOR_RESOURCES"
    world.pass_time(1)
    assert state(world)[0] == "FAILED"


def test_flex_start_lends_for_seven_days_and_takes_the_preemptible_quota(world):
    stock_and_quota.limit_quota(world.cloud, "us-central2", "v4", 4, spot=True)
    lend(world)
    body = request(spot={})
    assert world.refusal("POST", f"{V2}/queuedResources", body, queuedResourceId="more")[0] == 429
    world.pass_time(7 * DAY - 1)
    assert state(world)[0] == "ACTIVE"
    world.pass_time(1)
    assert state(world)[0] == "SUSPENDING"


def test_machines_of_a_reset_request_run_for_all_of_their_time_again(world):
    lend(world, maxRunDuration="100s")
    world.pass_time(50)
    world.ask("POST", f"{V2}/queuedResources/wish:reset", {})
    world.pass_time(10)
    world.pass_time(10)
    world.pass_time(99)
    assert state(world)[0] == "ACTIVE"
    world.pass_time(1)
    assert state(world)[0] == "SUSPENDING"


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"runDuration": {"maxRunDuration": "a day"}}, "runDuration.maxRunDuration"),
        ({"runDuration": {"maxRunDuration": "0s"}}, "longer than nothing"),
        ({"runDuration": {"maxRunDuration": "604801s"}, "provisioningModel": "FLEX_START"}, "7 days"),
        ({"runDuration": {"terminationTime": "1970-01-01T00:00:00Z"}}, "termination time"),
        (
            {
                "runDuration": {"terminationTime": "2999-01-01T00:00:00Z"},
                "queueingPolicy": {"validAfterTime": "2999-01-01T00:00:01Z"},
            },
            "before resources may be created",
        ),
        ({"runDuration": {"maxRunDuration": "60s", "terminationTime": "2999-01-01T00:00:00Z"}}, "oneof"),
        ({"provisioningModel": "FLEX_START", "spot": {}}, "FLEX_START cannot be combined"),
        ({"provisioningModel": "SLOW_START"}, "SLOW_START"),
        ({"spot": {}, "guaranteed": {}}, "oneof field 'tier' is already set"),
        ({"guaranteed": {"minDuration": "long"}}, "guaranteed.minDuration"),
    ],
)
def test_run_that_cannot_be_meant_is_refused(world, more, words):
    status, word, text = world.refusal("POST", f"{ALPHA}/queuedResources", request(**more), queuedResourceId="wish")
    assert (status, word) == (400, "INVALID_ARGUMENT")
    assert words in text


def test_run_duration_is_a_field_of_alpha_alone(world):
    body = request(runDuration={"maxRunDuration": "60s"})
    text = world.refusal("POST", f"{V2}/queuedResources", body, queuedResourceId="wish")[2]
    assert 'Unknown name "runDuration"' in text
