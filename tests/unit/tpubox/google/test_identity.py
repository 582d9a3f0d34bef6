"""The emulator for users other than its owner: disabled APIs, grants that arrive late, and refusals."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from support.google_world import PROJECT, World, pool
from tpubox.google.iam import conditions, roles
from tpubox.google.iam.conditions import Facts
from tpubox.google.wire.server import Emulator
from tpubox.google.wire.settings import NEW_PROJECT, Settings
from unit.tpubox.google.test_server import SET_UP, ask

NETWORKS = f"compute/v1/projects/{PROJECT}/global/networks"
SERVICES = f"service_usage/v1/projects/{PROJECT}/services"
ACCOUNTS = f"iam/v1/projects/{PROJECT}/serviceAccounts"
PROJECT_POLICY = f"resource_manager/v1/projects/{PROJECT}"
DOMAIN = f"{PROJECT}.iam.gserviceaccount.com"
BUILDER = f"serviceAccount:builder@{DOMAIN}"
QUEUED = f"tpu/v2alpha1/projects/{PROJECT}/locations/us-central2-b/queuedResources"


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with World(tmp_path) as made:
        yield made


@pytest.fixture
def slow(tmp_path: Path) -> Iterator[World]:
    """Yield a new project where each change takes effect after ten seconds."""
    with World(tmp_path, enabled=NEW_PROJECT, arrival_seconds=10.0) as made:
        yield made


def account(world: World, name: str = "builder") -> str:
    world.ask("POST", ACCOUNTS, {"accountId": name, "serviceAccount": {}})
    return f"serviceAccount:{name}@{DOMAIN}"


def read_policy(world: World, on: str, **words: str) -> dict[str, Any]:
    """Return a policy with its conditions. Each API has its own place for the version."""
    if on.startswith("resource_manager/"):
        return dict(world.ask("POST", f"{on}:getIamPolicy", {"options": {"requestedPolicyVersion": 3}}, **words))
    return dict(world.ask("POST", f"{on}:getIamPolicy", {}, **{"options.requestedPolicyVersion": "3"}, **words))


def grant(world: World, role: str, member: str, on: str = PROJECT_POLICY, condition: str = "") -> None:
    before = read_policy(world, on)
    new: dict[str, Any] = {"role": role, "members": [member]}
    if condition:
        new["condition"] = {"title": "only", "expression": condition}
    policy = {**before, "version": 3, "bindings": [*before.get("bindings", []), new]}
    world.ask("POST", f"{on}:setIamPolicy", {"policy": policy})


def bind(world: World, path: str, role: str, member: str, condition: str = "") -> None:
    """Grant a role on Cloud Storage."""
    before = world.ask("GET", f"{path}/iam", optionsRequestedPolicyVersion="3")
    new: dict[str, Any] = {"role": role, "members": [member]}
    if condition:
        new["condition"] = {"title": "only", "expression": condition}
    world.ask("PUT", f"{path}/iam", {**before, "version": 3, "bindings": [*before.get("bindings", []), new]})


def test_api_of_a_new_project_is_off_and_the_refusal_is_googles(slow):
    status, answer = slow.send("GET", NETWORKS)
    error = answer["error"]
    assert (status, error["status"], error["errors"][0]["reason"]) == (403, "PERMISSION_DENIED", "accessNotConfigured")
    assert error["message"].startswith("Compute Engine API has not been used in project ")
    (about,) = (one for one in error["details"] if one["@type"].endswith("ErrorInfo"))
    assert (about["reason"], about["metadata"]["service"]) == ("SERVICE_DISABLED", "compute.googleapis.com")
    listed = slow.ask("GET", SERVICES, filter="state:ENABLED")["services"]
    assert {one["config"]["name"].partition(".")[0] for one in listed} == {
        "cloudapis",
        "cloudtrace",
        "datastore",
        "logging",
        "monitoring",
        "serviceusage",
        "storage",
    }


def test_api_that_was_just_enabled_is_listed_at_once_and_answers_later(slow):
    slow.ask("POST", f"{SERVICES}:batchEnable", {"serviceIds": ["compute.googleapis.com"]})
    assert slow.ask("GET", f"{SERVICES}/compute.googleapis.com")["state"] == "ENABLED"
    assert slow.send("GET", NETWORKS)[0] == 403
    slow.pass_time(9)
    assert slow.send("GET", NETWORKS)[0] == 403
    # Enabling it again does not restart the wait.
    slow.ask("POST", f"{SERVICES}:batchEnable", {"serviceIds": ["compute.googleapis.com"]})
    slow.pass_time(1)
    slow.ask("GET", NETWORKS)


def test_account_that_was_just_made_is_unknown_to_policies_for_a_while(tmp_path):
    with World(tmp_path, arrival_seconds=10.0) as world:
        member = account(world)
        policy = {"bindings": [{"role": "roles/viewer", "members": [member]}]}
        refused = world.refusal("POST", f"{PROJECT_POLICY}:setIamPolicy", {"policy": policy})
        assert refused[0] == 400
        assert "does not exist" in refused[2]
        world.pass_time(10)
        world.ask("POST", f"{PROJECT_POLICY}:setIamPolicy", {"policy": policy})


def test_grant_is_in_the_policy_at_once_and_in_force_later(tmp_path):
    with World(tmp_path, arrival_seconds=10.0) as world:
        member = account(world)
        world.pass_time(10)
        grant(world, "roles/compute.networkAdmin", member)
        assert world.send("GET", NETWORKS, principal=member)[0] == 403
        world.pass_time(9)
        grant(world, "roles/container.admin", member)  # a later grant does not delay an earlier one
        world.pass_time(1)
        world.ask("GET", NETWORKS, principal=member)
        clusters = f"container/v1/projects/{PROJECT}/locations/us-central2/clusters"
        assert world.send("GET", clusters, principal=member)[0] == 403
        world.pass_time(9)
        world.ask("GET", clusters, principal=member)


def test_account_without_a_role_is_denied_with_the_permission_that_it_lacks(world):
    member = account(world)
    status, answer = world.send("POST", NETWORKS, {"name": "net"}, principal=member)
    assert status == 403
    (about,) = answer["error"]["details"]
    assert about["reason"] == "IAM_PERMISSION_DENIED"
    assert about["metadata"]["permission"] == "compute.networks.create"


@pytest.mark.parametrize(
    ("method", "path", "permission"),
    [
        ("GET", f"compute/v1/projects/{PROJECT}/regions/us-central2/subnetworks", "compute.subnetworks.list"),
        ("GET", f"compute/v1/projects/{PROJECT}/regions/us-central2/routers/r", "compute.routers.get"),
        ("DELETE", f"{NETWORKS}/net", "compute.networks.delete"),
        ("POST", f"container/v1/projects/{PROJECT}/locations/l/clusters", "container.clusters.create"),
        (
            "POST",
            f"container/v1/projects/{PROJECT}/locations/l/clusters/c/nodePools/p:setSize",
            "container.clusters.update",
        ),
        ("POST", f"{PROJECT_POLICY}:setIamPolicy", "resourcemanager.projects.setIamPolicy"),
        ("POST", ACCOUNTS, "iam.serviceAccounts.create"),
        ("POST", f"{ACCOUNTS}/a@b:setIamPolicy", "iam.serviceAccounts.setIamPolicy"),
        ("GET", f"firestore/v1/projects/{PROJECT}/databases/d", "datastore.databases.get"),
        ("POST", f"{SERVICES}/compute.googleapis.com:enable", "serviceusage.services.enable"),
        ("GET", f"{QUEUED}/q:getMaintenanceInfo", "tpu.queuedResources.get"),
        ("POST", f"{QUEUED}/q:performMaintenanceQueuedResource", "tpu.queuedResources.update"),
    ],
)
def test_request_needs_the_permission_of_its_path(world, method, path, permission):
    status, answer = world.send(method, path, None if method == "GET" else {}, principal=BUILDER)
    assert status == 403
    assert answer["error"]["details"][0]["metadata"]["permission"] == permission


def test_nodes_are_made_by_who_may_act_as_their_account_and_by_nobody_else(world):
    member, nodes = account(world), account(world, "nodes-account")
    pools = world.cluster()
    grant(world, "roles/container.admin", member)
    wanted = pool(config={"serviceAccount": nodes.partition(":")[2]})
    status, _, text = world.refusal("POST", pools, wanted, principal=member)
    assert status == 400
    assert "iam.serviceAccountUser role on the service account" in text
    grant(world, "roles/iam.serviceAccountUser", member, on=f"{ACCOUNTS}/{nodes.partition(':')[2]}")
    world.ask("POST", pools, wanted, principal=member)


def test_nodes_of_an_account_that_does_not_exist_are_refused(world):
    pools = world.cluster()
    status, _, text = world.refusal("POST", pools, pool(config={"serviceAccount": f"gke-sa@{DOMAIN}"}))
    assert (status, text) == (400, f'Service account "gke-sa@{DOMAIN}" does not exist.')


def test_pool_of_identities_comes_with_the_first_cluster_that_has_it_and_stays(tmp_path):
    with World(tmp_path, enabled=("compute", "container", "iam")) as world:
        _check_pool_of_identities(world)


def _check_pool_of_identities(world: World) -> None:
    workloads = account(world, "workloads").partition(":")[2]
    member = f"serviceAccount:{PROJECT}.svc.id.goog[research/cloud-tpu-sa]"
    policy = {"policy": {"bindings": [{"role": "roles/iam.workloadIdentityUser", "members": [member]}]}}
    path = f"{ACCOUNTS}/{workloads}:setIamPolicy"
    assert "Identity Pool does not exist" in world.refusal("POST", path, policy)[2]
    world.network()
    clusters = f"container/v1/projects/{PROJECT}/locations/us-central2/clusters"
    named = {
        "network": "net",
        "subnetwork": "subnet",
        "workloadIdentityConfig": {"workloadPool": f"{PROJECT}.svc.id.goog"},
    }
    world.ask(
        "POST", clusters, {"cluster": {"name": "one", "locations": ["us-central2-b"], "initialNodeCount": 1, **named}}
    )
    world.ask("POST", path, policy)
    world.ask("DELETE", f"{clusters}/one")
    world.ask("POST", path, policy)


def test_token_of_another_account_is_given_only_to_who_may_create_one(world):
    member, other = account(world), account(world, "workloads").partition(":")[2]
    path = f"iam_credentials/v1/projects/-/serviceAccounts/{other}:generateAccessToken"
    body = {"scope": ["https://www.googleapis.com/auth/cloud-platform"]}
    assert world.refusal("POST", path, body, principal=member)[0] == 403
    grant(world, "roles/iam.serviceAccountUser", member, on=f"{ACCOUNTS}/{other}")
    assert world.refusal("POST", path, body, principal=member)[0] == 403
    grant(world, "roles/iam.serviceAccountTokenCreator", member, on=f"{ACCOUNTS}/{other}")
    assert world.ask("POST", path, body, principal=member)["accessToken"]


def test_roles_can_be_handed_out_within_the_bounds_of_the_condition_alone(world):
    member = account(world)
    bounds = "api.getAttribute('iam.googleapis.com/modifiedGrantsByRole', []).hasOnly(['roles/logging.logWriter'])"
    grant(world, "roles/resourcemanager.projectIamAdmin", member, condition=bounds)
    before = read_policy(world, PROJECT_POLICY, principal=member)

    def with_role(role: str) -> dict[str, Any]:
        return {"policy": {**before, "bindings": [*before["bindings"], {"role": role, "members": [member]}]}}

    refused = world.refusal("POST", f"{PROJECT_POLICY}:setIamPolicy", with_role("roles/owner"), principal=member)
    assert refused[0] == 403
    world.ask("POST", f"{PROJECT_POLICY}:setIamPolicy", with_role("roles/logging.logWriter"), principal=member)


def test_condition_that_cannot_be_read_is_refused_when_it_is_set(world):
    member = account(world)
    binding = {"role": "roles/viewer", "members": [member], "condition": {"title": "t", "expression": "maybe()"}}
    assert world.refusal("POST", f"{PROJECT_POLICY}:setIamPolicy", {"policy": {"bindings": [binding]}})[0] == 400


def make_bucket(world: World) -> None:
    uniform = {"iamConfiguration": {"uniformBucketLevelAccess": {"enabled": True}}}
    world.ask("POST", "storage/v1/b", {"name": "runs", "location": "US", **uniform}, project=PROJECT)


def upload(world: World, name: str, **words: str) -> int:
    path = "upload/storage/v1/b/runs/o"
    return world.send("POST", path, b"weights", uploadType="media", name=name, **words)[0]


def test_folder_of_a_team_opens_to_its_account_and_to_no_other_one(world):
    vision, speech = account(world, "team-vision"), account(world, "team-speech")
    make_bucket(world)
    for team, member in (("vision", vision), ("speech", speech)):
        world.ask("POST", "storage/v1/b/runs/managedFolders", {"name": f"teams/{team}/"})
        bind(world, f"storage/v1/b/runs/managedFolders/teams%2F{team}%2F", "roles/storage.objectUser", member)
    assert upload(world, "teams/vision/step-1", principal=vision) == 200
    assert upload(world, "teams/vision/step-1", principal=speech) == 403
    assert upload(world, "datasets/a", principal=vision) == 403
    read = "storage/v1/b/runs/o/teams%2Fvision%2Fstep-1"
    world.ask("GET", read, principal=vision)
    assert world.refusal("GET", read, principal=speech)[0] == 403
    assert world.refusal("DELETE", read, principal=speech)[0] == 403
    assert world.refusal("GET", "runs/teams/vision/step-1", principal=speech)[0] == 403
    listed = world.ask("GET", "storage/v1/b/runs/o", prefix="teams/vision/", principal=vision)
    assert [one["name"] for one in listed["items"]] == ["teams/vision/step-1"]
    for prefix in ("", "teams/", "teams/speech/"):
        assert world.refusal("GET", "storage/v1/b/runs/o", prefix=prefix, principal=vision)[0] == 403


def test_condition_on_a_prefix_does_not_let_anybody_list_by_that_prefix(world):
    """Google checks a list against the bucket, which is why teams have managed folders."""
    member = account(world, "team-vision")
    make_bucket(world)
    condition = 'resource.name.startsWith("projects/_/buckets/runs/objects/teams/vision/")'
    bind(world, "storage/v1/b/runs", "roles/storage.objectUser", member, condition)
    assert upload(world, "teams/vision/a", principal=member) == 200
    assert upload(world, "teams/vision-2/a", principal=member) == 403
    assert world.refusal("GET", "storage/v1/b/runs/o", prefix="teams/vision/", principal=member)[0] == 403


def test_to_replace_an_object_one_must_be_allowed_to_delete_it(world):
    member = account(world)
    make_bucket(world)
    bind(world, "storage/v1/b/runs", "roles/storage.objectCreator", member)
    assert upload(world, "a", principal=member) == 200
    assert upload(world, "a", principal=member) == 403


def test_managed_folder_wants_uniform_access_and_goes_only_when_it_is_empty(world):
    world.ask("POST", "storage/v1/b", {"name": "plain", "location": "US"}, project=PROJECT)
    assert world.refusal("POST", "storage/v1/b/plain/managedFolders", {"name": "a/"})[0] == 412
    make_bucket(world)
    folders = "storage/v1/b/runs/managedFolders"
    world.ask("POST", folders, {"name": "a/"})
    assert world.refusal("POST", folders, {"name": "a/"})[0] == 409
    upload(world, "a/b")
    assert world.refusal("DELETE", f"{folders}/a%2F")[0] == 409
    world.ask("DELETE", "storage/v1/b/runs/o/a%2Fb")
    assert world.refusal("DELETE", "storage/v1/b/runs")[0] == 409
    world.ask("DELETE", f"{folders}/a%2F")
    assert world.refusal("GET", f"{folders}/a%2F")[0] == 404


def test_account_is_found_without_its_project(world):
    account(world)
    assert world.ask("GET", f"iam/v1/projects/-/serviceAccounts/builder@{DOMAIN}")["projectId"] == PROJECT


def test_token_opens_what_the_roles_of_its_account_allow_and_expires(tmp_path):
    with Emulator(tmp_path, SET_UP) as google:
        address, token = google.address, google.token_of(f"builder@{DOMAIN}")
        assert ask(address, NETWORKS, token)[0] == 403
        binding = {"role": "roles/compute.networkAdmin", "members": [BUILDER]}
        google.cloud.state.put("policy", f"projects/{PROJECT}", {"version": 1, "bindings": [binding]})
        assert ask(address, NETWORKS, token)[0] == 200
        assert ask(address, "emulator/resources", token)[0] == 401
        google.cloud.state.put("token", token, {"principal": BUILDER, "expires": 1.0})
        assert ask(address, NETWORKS, token)[0] == 401


def test_settings_of_an_emulator_are_those_of_a_new_project():
    assert Settings().enabled == NEW_PROJECT
    assert Settings().arrival_seconds > 0


_NAMES = some.text("ab/", max_size=6)


@given(_NAMES, _NAMES)
def test_condition_by_prefix_holds_for_that_prefix_alone(prefix, name):
    expression = f'resource.name.startsWith("{prefix}")'
    assert conditions.holds(expression, Facts(name)) == name.startswith(prefix)
    both = f'{expression} && resource.name == "{name}"'
    assert conditions.holds(both, Facts(name)) == name.startswith(prefix)
    assert conditions.holds(f'{expression} || resource.name == "{name}"', Facts(name))


@given(some.sampled_from(sorted(set(roles.ROLES) - {"roles/owner"})))
def test_no_role_but_owner_and_those_named_so_lets_anybody_become_an_account(role):
    becoming = {"roles/iam.serviceAccountTokenCreator", "roles/iam.workloadIdentityUser"}
    assert roles.allows(role, "iam.serviceAccounts.getAccessToken") == (role in becoming)
    assert roles.allows(role, "iam.serviceAccounts.actAs") == (role == "roles/iam.serviceAccountUser")
