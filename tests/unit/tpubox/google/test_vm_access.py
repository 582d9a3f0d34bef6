"""TPU VMs through the API: addresses, metadata, keys, and the accounts of machines."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some

from support.google_world import PROJECT, World
from tpubox.google.compute import login_profiles
from tpubox.google.tpu import vm_faults
from tpubox.google.wire.faults import Fault
from tpubox.tpu_vms.logins import logins
from tpukit.cli import sandbox_faults
from tpukit.core.errors import Invalid

ZONE = f"tpu/v2/projects/{PROJECT}/locations/us-central2-b"
V4_32 = {"acceleratorType": "v4-32", "runtimeVersion": "tpu-ubuntu2204-base"}
OS_LOGIN = "oslogin/v1/users"
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAA"


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with World(tmp_path) as made:
        yield made


def make(world: World, name: str = "vm", **changes: Any) -> Any:
    world.ask("POST", f"{ZONE}/nodes", {**V4_32, **changes}, nodeId=name)
    return node(world, name)


def node(world: World, name: str = "vm") -> Any:
    return world.ask("GET", f"{ZONE}/nodes/{name}")


def test_no_two_hosts_share_an_address(world):
    made = [make(world, f"vm-{number}", networkConfig={"enableExternalIps": True}) for number in range(5)]
    world.ask("DELETE", f"{ZONE}/nodes/vm-2")
    made = [*made[:2], *made[3:], make(world, "vm-9", networkConfig={"enableExternalIps": True})]
    points = [point for one in made for point in one["networkEndpoints"]]
    addresses = [point["ipAddress"] for point in points] + [point["accessConfig"]["externalIp"] for point in points]
    assert len(set(addresses)) == 5 * 4 * 2


def test_external_addresses_come_and_go_with_the_setting(world):
    assert "accessConfig" not in make(world)["networkEndpoints"][0]
    mask = "network_config.enable_external_ips"  # spelled as gcloud does
    world.ask("PATCH", f"{ZONE}/nodes/vm", {"networkConfig": {"enableExternalIps": True}}, updateMask=mask)
    assert "externalIp" in node(world)["networkEndpoints"][3]["accessConfig"]
    world.ask("PATCH", f"{ZONE}/nodes/vm", {}, updateMask=mask)
    assert "accessConfig" not in node(world)["networkEndpoints"][0]


def test_patch_replaces_maps_that_its_mask_names_and_leaves_the_others(world):
    make(world, metadata={"a": "1", "b": "2"}, labels={"team": "x"})
    world.ask("PATCH", f"{ZONE}/nodes/vm", {"metadata": {"b": "3"}, "labels": {}}, updateMask="metadata")
    assert (node(world)["metadata"], node(world)["labels"]) == ({"b": "3"}, {"team": "x"})
    world.ask("PATCH", f"{ZONE}/nodes/vm", {}, updateMask="metadata")
    assert "metadata" not in node(world)


def test_guest_attributes_are_those_of_the_workers_asked_for(world):
    vm = make(world)
    for worker in range(4):
        world.cloud.state.put("vm_guest", f"{vm['id']}/{worker}", {"hostkeys/ssh-ed25519": f"k{worker}", "a/b": "c"})
    path = f"{ZONE}/nodes/vm:getGuestAttributes"

    def values(**body: Any) -> list[list[str]]:
        answer = world.ask("POST", path, body)["guestAttributes"]
        return [[item["value"] for item in one["queryValue"]["items"]] for one in answer]

    assert values(workerIds=[""]) == [[f"k{worker}", "c"] for worker in range(4)]
    assert values(workerIds=["2"], queryPath="hostkeys/") == [["k2"]]
    assert values(workerIds=["3", "0"], queryPath="a/b") == [["c"], ["c"]]
    assert world.refusal("POST", path, {"workerIds": ["4"]})[0] == 400


def test_project_metadata_changes_only_from_its_latest_fingerprint(world):
    path = f"compute/v1/projects/{PROJECT}"
    before = world.ask("GET", path)["commonInstanceMetadata"]
    items = [{"key": "ssh-keys", "value": f"ada:{KEY}"}]
    body = {"fingerprint": before["fingerprint"], "items": items}
    operation = world.ask("POST", f"{path}/setCommonInstanceMetadata", body)
    assert (operation["status"], operation["targetLink"].endswith(f"projects/{PROJECT}")) == ("DONE", True)
    assert world.ask("GET", path)["commonInstanceMetadata"]["items"] == items
    assert world.refusal("POST", f"{path}/setCommonInstanceMetadata", body)[0] == 412


def test_os_login_profile_has_an_account_from_its_first_key_on(world):
    user = login_profiles.OWNER_EMAIL
    assert world.ask("GET", f"{OS_LOGIN}/{user}/loginProfile")["posixAccounts"] == []
    profile = world.ask("POST", f"{OS_LOGIN}/{user}:importSshPublicKey", {"key": KEY}, projectId=PROJECT)[
        "loginProfile"
    ]
    assert profile["posixAccounts"][0]["username"] == "owner_example_com"
    assert [one["key"] for one in profile["sshPublicKeys"].values()] == [KEY]
    assert world.ask("GET", f"{OS_LOGIN}/{user}/loginProfile") == profile
    assert world.refusal("POST", f"{OS_LOGIN}/{user}:importSshPublicKey", {"key": "hello"})[0] == 400


def test_os_login_lets_in_those_whom_the_policy_does(world):
    robot = f"robot-1@{PROJECT}.iam.gserviceaccount.com"
    iam = f"iam/v1/projects/{PROJECT}/serviceAccounts"
    world.ask("POST", iam, {"accountId": "robot-1", "serviceAccount": {}})
    me = f"serviceAccount:{robot}"
    world.ask("POST", f"{OS_LOGIN}/{robot}:importSshPublicKey", {"key": KEY}, principal=me)
    assert world.send("GET", f"{OS_LOGIN}/{login_profiles.OWNER_EMAIL}/loginProfile", principal=me)[0] == 403
    assert list(login_profiles.who_may_log_in(world.cloud, PROJECT)) == []
    binding = {"role": "roles/compute.osLogin", "members": [me]}
    policy = f"resource_manager/v1/projects/{PROJECT}:setIamPolicy"
    world.ask("POST", policy, {"policy": {"bindings": [binding]}})
    assert len(list(login_profiles.who_may_log_in(world.cloud, PROJECT))) == 1


def test_vm_cannot_run_as_an_account_that_is_not_there(world):
    account = {"email": f"nobody@{PROJECT}.iam.gserviceaccount.com"}
    body = {**V4_32, "serviceAccount": account}
    status, _, text = world.refusal("POST", f"{ZONE}/nodes", body, nodeId="vm")
    assert (status, "does not exist" in text) == (400, True)


def test_preemption_ordered_with_grace_reaches_the_api_at_its_end(world):
    make(world)
    vm_faults.strike(world.cloud, "preempt", "vm", grace=20)
    world.pass_time(19)
    assert node(world)["state"] == "READY"
    world.pass_time(1)
    assert node(world)["state"] == "PREEMPTED"


def test_maintenance_goes_from_notice_over_work_to_health(world):
    make(world)
    vm_faults.strike(world.cloud, "maintenance", "vm", notice=100, seconds=50)
    seen = []
    for _ in range(3):
        now = node(world)
        seen.append((now["state"], now["health"], now.get("upcomingMaintenance", {}).get("maintenanceStatus")))
        world.pass_time(100 if len(seen) == 1 else 50)
    assert seen == [
        ("READY", "UNHEALTHY_MAINTENANCE", "PENDING"),
        ("READY", "UNHEALTHY_MAINTENANCE", "ONGOING"),
        ("READY", "HEALTHY", None),
    ]


def test_maintenance_can_be_performed_before_its_time(world):
    alpha = ZONE.replace("v2", "v2alpha1")
    make(world)
    assert world.refusal("POST", f"{alpha}/nodes/vm:performMaintenance", {})[1] == "FAILED_PRECONDITION"
    vm_faults.strike(world.cloud, "maintenance", "vm", notice=1000)
    world.ask("POST", f"{alpha}/nodes/vm:performMaintenance", {})
    world.pass_time(1)
    assert node(world)["upcomingMaintenance"]["maintenanceStatus"] == "ONGOING"


@pytest.mark.parametrize("first", [0, 20], ids=["that had begun", "that begins meanwhile"])
def test_maintenance_ends_though_the_vm_is_repaired_by_then(world, first):
    make(world)
    vm_faults.strike(world.cloud, "maintenance", "vm", notice=first, seconds=50)
    world.pass_time(10)
    vm_faults.strike(world.cloud, "repair", "vm", seconds=100)
    for _ in range(9):
        world.pass_time(10)
    assert (node(world)["state"], "upcomingMaintenance" in node(world)) == ("REPAIRING", False)
    world.pass_time(10)
    assert stands(world)


def test_vm_that_is_repaired_can_be_preempted(world):
    make(world)
    vm_faults.strike(world.cloud, "repair", "vm", seconds=100)
    vm_faults.strike(world.cloud, "preempt", "vm", grace=20)
    world.pass_time(200)
    assert node(world)["state"] == "PREEMPTED"


def stands(world: World) -> bool:
    """Check that the TPU VM's hosts can run."""
    (vm,) = world.cloud.state.all("vm").values()
    return (vm["state"], vm["health"], vm["_shutdown"]) == ("READY", "HEALTHY", None)


LENGTHS = some.fixed_dictionaries({"seconds": some.sampled_from([5, 25, 55, 105])})
TROUBLES = some.one_of(
    some.tuples(some.sampled_from(["repair", "maintenance"]), LENGTHS),
    some.tuples(some.sampled_from(["freeze", "crash", "unhealthy", "restore"]), some.just({})),
)


@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(order=some.lists(some.tuples(TROUBLES, some.integers(0, 5)), max_size=8))
def test_after_any_order_of_troubles_and_time_a_vm_stands(world, order):
    make(world)
    for (trouble, words), steps in order:
        vm_faults.strike(world.cloud, trouble, "vm", **words)
        for _ in range(steps):
            world.pass_time(10)
    for _ in range(25):
        world.pass_time(10)
    vm_faults.strike(world.cloud, "restore", "vm")
    assert stands(world)
    world.ask("DELETE", f"{ZONE}/nodes/vm")


ENDS = some.tuples(some.sampled_from(["preempt", "stop"]), some.just({}))


@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(order=some.lists(some.tuples(some.one_of(TROUBLES, ENDS), some.integers(0, 5)), max_size=8))
def test_vm_that_was_stopped_or_taken_back_stays_so_whatever_happens_then(world, order):
    make(world, acceleratorType="v4-8")
    seen: list[str] = []
    for (trouble, words), steps in order:
        with suppress(Invalid):  # some TPU VMs have no hosts
            if trouble == "stop":
                world.send("POST", f"{ZONE}/nodes/vm:stop", {})
            else:
                vm_faults.strike(world.cloud, trouble, "vm", **words)
        for _ in range(steps):
            world.pass_time(10)
            seen.append(node(world)["state"])
    ended = next((number for number, state in enumerate(seen) if state in ("PREEMPTED", "STOPPED")), len(seen))
    assert len(set(seen[ended:])) <= 1
    world.ask("DELETE", f"{ZONE}/nodes/vm")


def test_what_takes_hosts_away_is_refused_of_a_vm_that_has_none(world):
    make(world)
    vm_faults.strike(world.cloud, "preempt", "vm", after=0)
    world.pass_time(1)
    for action in ("preempt", "repair", "maintenance", "crash"):
        with pytest.raises(Invalid, match="vm is PREEMPTED: it has no hosts"):
            vm_faults.strike(world.cloud, action, "vm")


def test_ordered_repair_happens_once_to_each_vm_it_matches(world):
    make(world, "one")
    make(world, "two")
    world.cloud.faults.set(Fault("repair", "nodes/one$", seconds=100))
    world.pass_time(99)
    assert node(world, "one")["state"] == "READY"
    world.pass_time(1)
    assert (node(world, "one")["state"], node(world, "two")["state"]) == ("REPAIRING", "READY")
    for _ in range(20):
        world.pass_time(10)
    assert node(world, "one")["state"] == "READY"
    assert world.cloud.faults.table()[0]["struck"] == 1


def test_suspended_queued_resource_waits_until_its_hosts_are_off(world):
    running = True
    object.__setattr__(world.cloud.hooks, "vm_has_hosts", lambda name: running)
    spec = {"multisliceParams": {"nodeCount": 2, "nodeIdPrefix": "q"}, "node": V4_32}
    path = f"{ZONE}/queuedResources"
    world.ask("POST", path, {"tpu": {"nodeSpec": [spec]}}, queuedResourceId="q")
    world.pass_time(1)
    assert node(world, "q-1")["multisliceNode"] is True
    world.cloud.faults.set(Fault("preempt", "q-0", times=1))
    for _ in range(5):
        world.pass_time(10)
    assert world.ask("GET", f"{path}/q")["state"]["state"] == "SUSPENDING"
    running = False
    world.pass_time(10)
    world.pass_time(10)
    assert world.ask("GET", f"{path}/q")["state"]["state"] == "SUSPENDED"


def test_command_offers_all_that_can_happen_to_a_vm():
    action = next(one for one in sandbox_faults.vm.params if one.name == "action")
    assert tuple(action.type.choices) == vm_faults.ACTIONS


def test_login_takes_keys_of_node_and_project_unless_blocked():
    node_keys, project_keys = {"ssh-keys": f"\nada:{KEY}1 ada@x\n"}, {"ssh-keys": f"bob:{KEY}2\nada:{KEY}3"}
    both = logins(node_keys, project_keys, [], 0)
    assert both == {"ada": [f"{KEY}1", f"{KEY}3"], "bob": [f"{KEY}2"]}
    assert logins({**node_keys, "block-project-ssh-keys": "TRUE"}, project_keys, [], 0) == {"ada": [f"{KEY}1"]}


def test_login_as_root_is_nobodys():
    assert logins({"ssh-keys": f"root:{KEY}\nada:{KEY}"}, {}, [], 0) == {"ada": [KEY]}


def test_login_with_os_login_pays_no_attention_to_metadata_keys():
    keys = {"ssh-keys": f"ada:{KEY}"}
    profile = {"posixAccounts": [{"username": "eve"}], "sshPublicKeys": {"f": {"key": KEY}}}
    assert logins({**keys, "enable-oslogin": "TRUE"}, {}, [profile], 0) == {"eve": [KEY]}
    assert logins(keys, {"enable-oslogin": "TRUE"}, [profile], 0) == {"eve": [KEY]}
    assert logins({**keys, "enable-oslogin": "FALSE"}, {"enable-oslogin": "TRUE"}, [profile], 0) == {"ada": [KEY]}


@given(some.integers(0, 2_000_000_000), some.integers(0, 2_000_000_000))
def test_login_with_a_key_that_expires_ends_in_time(expires, now):
    text = datetime.fromtimestamp(expires, UTC).strftime("%Y-%m-%dT%H:%M:%S+0000")
    line = f'ada:{KEY} google-ssh {{"userName":"ada@example.com","expireOn":"{text}"}}'
    assert bool(logins({"ssh-keys": line}, {}, [], now)) == (now < expires)


@given(some.text())
def test_login_reads_any_metadata_without_failing(text):
    for user, keys in logins({"ssh-keys": text}, {}, [], 0).items():
        assert user
        assert all(len(key.split()) == 2 for key in keys)
