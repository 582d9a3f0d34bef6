"""The emulator as a whole: refused bodies, faults, recorded requests, and state that survives a kill."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.google_world import PROJECT, World, pool
from tpubox.google.wire import schemas, state
from tpubox.google.wire.faults import Fault
from tpubox.google.wire.refusal import Refused
from tpubox.google.wire.settings import Hooks, Pool, Settings, number_of
from tpukit.core.errors import Conflict, Invalid

NETWORKS = f"compute/v1/projects/{PROJECT}/global/networks"


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with World(tmp_path) as made:
        yield made


def test_operation_takes_time_unless_somebody_says_otherwise():
    assert Settings().duration("CREATE_CLUSTER") > 0
    assert Settings(seconds={"insert": 5.0}).duration("CREATE_CLUSTER") == Settings().duration("CREATE_CLUSTER")
    assert Settings(seconds={"": 0.0}).duration("CREATE_CLUSTER") == 0


def test_body_with_several_mistakes_names_them_all(world):
    pools = world.cluster()
    asked = pool(config={"machineTipe": "x", "diskSizeGb": "large", "spot": 1}, placementPolicy={"type": "LOOSE"})
    status, answer = world.send("POST", pools, asked)
    error = answer["error"]
    assert (status, error["status"]) == (400, "INVALID_ARGUMENT")
    fields = [one["field"] for one in error["details"][0]["fieldViolations"]]
    config = "nodePool.config"
    assert fields == ["nodePool.placementPolicy.type", config, f"{config}.diskSizeGb", f"{config}.spot"]
    assert "Unknown name \"machineTipe\" at 'nodePool.config': Cannot find field." in error["message"]
    assert "Invalid value at 'nodePool.config.diskSizeGb' (TYPE_INT32), \"large\"" in error["message"]


def test_numbers_of_enumerations_become_names():
    asked = {"nodePool": {"placementPolicy": {"type": 1}, "upgradeSettings": {"strategy": 3}}}
    checked = schemas.check("container", "CreateNodePoolRequest", asked)
    assert checked["nodePool"] == {"placementPolicy": {"type": "COMPACT"}, "upgradeSettings": {"strategy": "SURGE"}}
    with pytest.raises(Refused, match="is none of"):
        schemas.check("container", "CreateNodePoolRequest", {"nodePool": {"upgradeSettings": {"strategy": 1}}})


def test_sixty_four_bits_travel_as_text():
    asked = {"nodePool": {"maxPodsConstraint": {"maxPodsPerNode": "16"}}}
    assert schemas.check("container", "CreateNodePoolRequest", asked) == asked


def test_compute_passes_over_fields_it_does_not_know(world):
    world.ask("POST", NETWORKS, {"name": "net", "providersOwn": True})
    assert "providersOwn" not in world.ask("GET", f"{NETWORKS}/net")


@pytest.mark.parametrize("body", [b"{", b"[]", b'"text"'])
def test_body_that_is_no_object_is_refused(world, body):
    assert world.refusal("POST", NETWORKS, body)[0] == 400


def test_path_that_is_not_emulated_says_so(world):
    status, word, text = world.refusal("GET", f"compute/v1/projects/{PROJECT}/global/images")
    assert (status, word) == (501, "notImplemented")
    assert f"GET compute/v1/projects/{PROJECT}/global/images" in text


def test_project_that_does_not_exist_is_denied(world):
    assert world.refusal("GET", "compute/v1/projects/theirs/global/networks")[:2] == (403, "forbidden")
    assert world.ask("GET", f"compute/v1/projects/{number_of(PROJECT)}")["name"] == PROJECT


def test_service_that_was_disabled_refuses_until_it_is_enabled(world):
    services = f"service_usage/v1/projects/{PROJECT}/services"
    world.ask("POST", f"{services}/compute.googleapis.com:disable", {"disableDependentServices": True})
    status, answer = world.send("GET", NETWORKS)
    assert status == 403
    assert answer["error"]["details"][0]["reason"] == "SERVICE_DISABLED"
    listed = world.ask("GET", services, filter="state:ENABLED")["services"]
    assert "compute.googleapis.com" not in [one["config"]["name"] for one in listed]
    operation = world.ask("POST", f"{services}:batchEnable", {"serviceIds": ["compute.googleapis.com"]})
    assert world.ask("GET", f"service_usage/v1/{operation['name']}")["done"] is True
    world.ask("GET", NETWORKS)


def test_requests_can_be_asked_for_by_who_made_them(world):
    world.send("GET", NETWORKS, agent="tpukit-provisioner/1")
    world.send("GET", f"{NETWORKS}/none", agent="tpukit-provisioner/1")
    world.send("GET", NETWORKS, agent="somebody else")
    mine = world.cloud.requests(agent="^tpukit-provisioner", path="/none$")
    assert [(one["method"], one["status"], one["path"]) for one in mine] == [("GET", 404, f"{NETWORKS}/none")]
    assert len(world.cloud.requests()) == 3


def test_fault_refuses_as_often_as_it_was_told(world):
    world.cloud.faults.set(Fault("refuse", r"^GET compute/.*networks$", times=2, status=429, message="Slow down."))
    answers = [world.send("GET", NETWORKS)[0] for _ in range(4)]
    assert answers == [429, 429, 200, 200]
    (told,) = world.cloud.faults.table()
    assert (told["met"], told["struck"]) == (2, 2)
    world.cloud.faults.clear()
    assert world.cloud.faults.table() == []


def test_fault_with_a_chance_strikes_alike_with_one_seed(tmp_path):
    def run(folder: str, seed: int) -> list[int]:
        with World(tmp_path / folder, seed=seed) as world:
            world.cloud.faults.set(Fault("refuse", chance=0.5, name="often"))
            return [world.send("GET", NETWORKS)[0] for _ in range(40)]

    first = run("a", 1)
    assert first == run("b", 1)
    assert first != run("c", 2)
    assert 5 < first.count(503) < 35


@pytest.mark.parametrize(
    "words",
    [
        {"kind": "earthquake"},
        {"kind": "slow", "chance": 2},
        {"kind": "refuse", "match": "("},
        {"kind": "fail", "times": -1},
    ],
    ids=lambda words: words["kind"],
)
def test_fault_that_cannot_be_is_refused(words):
    with pytest.raises(Invalid):
        Fault(**words)


def test_slow_operation_takes_longer_by_what_was_told(tmp_path):
    with World(tmp_path, seconds={"": 5.0}) as world:
        world.cloud.faults.set(Fault("slow", "^insert .*/net$", times=1, seconds=10))
        operation = world.ask("POST", NETWORKS, {"name": "net"})
        path = f"compute/v1/projects/{PROJECT}/global/operations/{operation['name']}"
        world.pass_time(14.9)
        assert world.ask("GET", path)["status"] == "RUNNING"
        world.pass_time(0.2)
        assert world.ask("GET", path)["status"] == "DONE"


def test_flaw_of_the_emulator_is_an_answer_and_in_its_log(world, caplog):
    world.cloud.state.put("network", f"projects/{PROJECT}/global/networks/net", {})
    world.cloud.state.put("router", f"projects/{PROJECT}/regions/us-central2/routers/r", {"network": 7})
    with caplog.at_level(logging.ERROR):
        status, _, text = world.refusal("DELETE", f"{NETWORKS}/net")
    assert status == 500
    assert "The emulator failed" in text
    assert caplog.records


def test_second_emulator_in_one_folder_is_refused(tmp_path):
    with World(tmp_path), pytest.raises(Conflict, match="another emulator works"):
        World(tmp_path)


def test_everything_is_there_after_a_restart(tmp_path):
    with World(tmp_path, seconds={"CREATE_NODE_POOL": 60.0}) as world:
        pools = world.cluster()
        world.ask("POST", pools, pool())
        fault = world.cloud.faults.set(Fault("refuse", "never", times=3))
        before = world.cloud.inventory()
    with World(tmp_path) as world:
        assert world.cloud.inventory() == before
        assert [one["name"] for one in world.cloud.faults.table()] == [fault.name]
        assert world.ask("GET", f"{pools}/tpu-0")["status"] == "PROVISIONING"
        world.pass_time(5000)
        assert world.ask("GET", f"{pools}/tpu-0")["status"] == "RUNNING"


def test_kill_while_nodes_come_up_brings_them_up_again(tmp_path):
    class Killed(BaseException):
        """A kill seen from within: no code runs after it."""

    def die(one: Pool) -> None:
        raise Killed

    with World(tmp_path) as world:
        pools = world.cluster()
        world.cloud.hooks = Hooks(on_pool_created=die)
        with pytest.raises(Killed):
            world.ask("POST", pools, pool())
    seen: list[str] = []
    with World(tmp_path, Hooks(on_pool_created=lambda one: seen.append(one.name))) as world:
        world.pass_time(5000)
        assert seen == ["tpu-0"]
        assert world.ask("GET", f"{pools}/tpu-0")["status"] == "RUNNING"


def test_refused_request_changes_nothing(world):
    """A request is atomic: a cluster whose pool is refused is not created."""
    world.network()
    clusters = f"container/v1/projects/{PROJECT}/locations/us-central2/clusters"
    wanted = {"name": "one", "locations": ["us-central2-b"], "network": "net", "subnetwork": "subnet"}
    bad = {**pool(initialNodeCount=3)["nodePool"]}
    before = world.cloud.inventory()
    world.refusal("POST", clusters, {"cluster": {**wanted, "nodePools": [bad]}})
    assert world.cloud.inventory() == before


def test_policy_made_from_an_old_one_is_refused(world):
    project = f"resource_manager/v1/projects/{PROJECT}"
    first = world.ask("POST", f"{project}:getIamPolicy", {})
    binding = {"role": "roles/viewer", "members": ["user:a@example.com"]}
    world.ask("POST", f"{project}:setIamPolicy", {"policy": {**first, "bindings": [binding]}})
    status, word, _ = world.refusal("POST", f"{project}:setIamPolicy", {"policy": {**first, "bindings": []}})
    assert (status, word) == (409, "ABORTED")
    world.ask("POST", f"{project}:setIamPolicy", {"policy": {"bindings": []}})
    assert world.cloud.inventory() == []


def test_policy_etag_comes_back_in_the_alphabet_of_urls_as_gcloud_writes_it(world):
    project = f"resource_manager/v1/projects/{PROJECT}"
    seen = ""
    for number in range(200):  # until the two alphabets differ
        policy = world.ask("POST", f"{project}:getIamPolicy", {})
        seen += policy["etag"]
        binding = {"role": "roles/viewer", "members": [f"user:u{number}@example.com"]}
        etag = policy["etag"].replace("+", "-").replace("/", "_")
        world.ask("POST", f"{project}:setIamPolicy", {"policy": {"bindings": [binding], "etag": etag}})
    assert {"+", "/"} <= set(seen)


def test_policy_for_an_account_that_is_not_there_is_refused(world):
    email = f"nobody@{PROJECT}.iam.gserviceaccount.com"
    policy = {"bindings": [{"role": "roles/viewer", "members": [f"serviceAccount:{email}"]}]}
    project = f"resource_manager/v1/projects/{PROJECT}:setIamPolicy"
    assert f"Service account {email} does not exist" in world.refusal("POST", project, {"policy": policy})[2]
    world.ask("POST", f"iam/v1/projects/{PROJECT}/serviceAccounts", {"accountId": "nobody"})
    world.ask("POST", project, {"policy": policy})
    status, answer = world.send("POST", f"iam/v1/projects/{PROJECT}/serviceAccounts", {"accountId": "nobody"})
    assert status == 409
    (detail,) = answer["error"]["details"]
    assert detail["resourceName"] == f"projects/{PROJECT}/serviceAccounts/{email}"


def test_ranges_that_overlap_are_refused(world):
    world.network()
    subnets = f"compute/v1/projects/{PROJECT}/regions/us-central2/subnetworks"
    asked = {"name": "other", "network": f"projects/{PROJECT}/global/networks/net", "ipCidrRange": "10.65.0.0/24"}
    told = world.refusal("POST", subnets, asked)[2]
    assert told.endswith(
        "Invalid IPCidrRange: 10.65.0.0/24 conflicts with existing subnetwork 'subnet' in region 'us-central2'."
    )


def test_last_nat_goes_with_an_empty_list(world):
    world.network()
    routers = f"compute/v1/projects/{PROJECT}/regions/us-central2/routers"
    network = f"projects/{PROJECT}/global/networks/net"
    world.ask("POST", routers, {"name": "r", "network": network, "bgp": None, "nats": [{"name": "nat"}]})
    assert len(world.ask("GET", f"{routers}/r")["nats"]) == 1
    operation = world.ask("PATCH", f"{routers}/r", {"nats": []})
    assert operation["region"].endswith("/regions/us-central2")
    assert world.ask("GET", f"{routers}/r")["nats"] == []


def test_fields_file_is_what_its_rules_read():
    """The rules cannot run here, because their source documents are absent; the file they wrote is complete."""
    document = json.loads(Path(schemas.__file__).with_name("fields.json").read_text())
    for messages in document.values():
        for fields in messages.values():
            for kind in json.dumps(fields).split('"$')[1:]:
                assert kind.partition('"')[0] in messages


def test_requests_the_newest_are_remembered_and_older_ones_not(world, monkeypatch):
    monkeypatch.setattr(state, "RETAINED_REQUESTS", 3)
    for number in range(5):
        world.send("GET", f"compute/v1/projects/{PROJECT}/global/networks/n{number}")
    assert [one["path"].rpartition("/")[2] for one in world.cloud.requests()] == ["n2", "n3", "n4"]
