"""Node pools of the emulator without chips or quota, or with an injected fault."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.google_world import PROJECT, World, pool
from tpubox.google.compute import stock_and_quota
from tpubox.google.wire.faults import Fault
from tpukit.google.refusals import is_quota


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with World(tmp_path) as made:
        yield made


def test_quota_counts_chips_of_a_region_by_generation_and_tier(world):
    stock_and_quota.limit_quota(world.cloud, "us-central2", "v4", 16)
    pools = world.cluster()
    world.ask("POST", pools, pool("a"))
    status, word, text = world.refusal("POST", pools, pool("b"))
    assert (status, word) == (403, "PERMISSION_DENIED")
    assert "request requires '16.0' and is short '16.0'. project has a quota of '16.0' with '0.0' available" in text
    world.ask("POST", pools, pool("c", config={"spot": True}))
    region = world.ask("GET", f"compute/v1/projects/{PROJECT}/regions/us-central2")
    assert region["quotas"] == [{"metric": "TPU_PODSLICE_V4", "limit": 16, "usage": 16}]
    world.ask("DELETE", f"{pools}/a")
    world.ask("POST", pools, pool("b"))


def test_stock_out_may_take_its_time_before_it_is_told(world):
    pools = world.cluster()
    world.cloud.faults.set(Fault("slow", "CREATE_NODE_POOL", times=1, seconds=900.0))
    world.cloud.faults.set(Fault("stockout", times=1))
    world.ask("POST", pools, pool("a"))
    world.pass_time(899)
    assert world.ask("GET", f"{pools}/a")["status"] == "PROVISIONING"
    world.pass_time(2)
    down = world.ask("GET", f"{pools}/a")
    assert (down["status"], down["conditions"][0]["code"]) == ("ERROR", "GCE_STOCKOUT")


def test_quota_that_is_used_up_when_machines_are_made_fails_the_operation(world):
    pools = world.cluster()
    world.cloud.faults.set(Fault("gce-quota", "us-central2-b", times=1))
    operation = world.ask("POST", pools, pool("a"))
    assert "[GCE_QUOTA_EXCEEDED]" in operation["statusMessage"]
    assert is_quota(operation["statusMessage"]), "the provisioner looks for another place then"
    down = world.ask("GET", f"{pools}/a")
    assert (down["status"], down["conditions"][0]["code"]) == ("ERROR", "GCE_QUOTA_EXCEEDED")


def test_stock_out_keeps_the_pool_in_error_until_there_are_chips(world):
    stock_and_quota.limit_stock(world.cloud, "us-central2-b", "v4", 16)
    pools = world.cluster()
    world.ask("POST", pools, pool("a"))
    operation = world.ask("POST", pools, pool("b"))
    assert operation["status"] == "DONE"
    assert re.fullmatch(
        r"Google Compute Engine: Not all instances running in IGM after 0s\. Expected 4, running 0, transitioning 4\. "
        r"Current errors: \[GCE_STOCKOUT\]: Instance 'gke-\S+-0000' creation failed: The zone "
        rf"'projects/{PROJECT}/zones/us-central2-b' does not have enough resources available to fulfill the request\. "
        r" '\(resource type:compute\)'\.",
        operation["statusMessage"],
    )
    down = world.ask("GET", f"{pools}/b")
    assert (down["status"], down["conditions"][0]["code"]) == ("ERROR", "GCE_STOCKOUT")
    world.ask("DELETE", f"{pools}/a")
    world.pass_time(59)
    assert world.ask("GET", f"{pools}/b")["status"] == "ERROR"
    world.pass_time(1)
    healed = world.ask("GET", f"{pools}/b")
    assert healed["status"] == "RUNNING"
    assert "conditions" not in healed


def test_reservation_gives_its_chips_to_those_who_name_it(world):
    stock_and_quota.limit_stock(world.cloud, "us-central2-b", "v4", 0)
    stock_and_quota.reserve(world.cloud, "ours", "us-central2-b", "v4", 16)
    pools = world.cluster()
    affinity = {"consumeReservationType": "SPECIFIC_RESERVATION", "key": "compute.googleapis.com/reservation-name"}

    def reserved(name: str, values: list[str]) -> Any:
        asked = pool(name, config={"reservationAffinity": {**affinity, "values": values}})
        return world.ask("POST", pools, asked).get("statusMessage", "")

    assert "[theirs] does not exist" in reserved("a", ["theirs"])
    assert reserved("b", [f"projects/{PROJECT}/reservations/ours"]) == ""
    assert "reservation ours does not have enough" in reserved("c", ["ours"])


def test_faults_end_operations_as_told(world):
    pools = world.cluster()
    world.cloud.faults.set(Fault("fail", "CREATE_NODE_POOL .*/a$", message="Out of luck."))
    assert world.ask("POST", pools, pool("a"))["statusMessage"] == "Out of luck."
    assert world.refusal("GET", f"{pools}/a")[0] == 404
    world.cloud.faults.set(Fault("broken", "/b$"))
    assert "statusMessage" not in world.ask("POST", pools, pool("b"))
    assert world.ask("GET", f"{pools}/b")["status"] == "RUNNING_WITH_ERROR"
    world.cloud.faults.set(Fault("fail", "DELETE_NODE_POOL", times=1))
    assert world.ask("DELETE", f"{pools}/b")["statusMessage"] == "An internal error has occurred."
    assert world.ask("GET", f"{pools}/b")["status"] == "RUNNING"
    world.ask("DELETE", f"{pools}/b")
    world.cloud.faults.set(Fault("quota", "us-central2-b .*/c$", times=1))
    assert world.refusal("POST", pools, pool("c"))[0] == 403
    world.cloud.faults.set(Fault("stockout", "us-central2-b", times=1))
    assert "GCE_STOCKOUT" in world.ask("POST", pools, pool("c"))["statusMessage"]
