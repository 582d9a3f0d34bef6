"""Policies in the emulator: accepted roles, members and conditions, and deleted members."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.google_world import PROJECT, World
from unit.tpubox.google.test_identity import ACCOUNTS, DOMAIN, PROJECT_POLICY, account, grant, make_bucket

BUCKET = "storage/v1/b/runs/iam"
SUBNET = f"compute/v1/projects/{PROJECT}/regions/us-central2/subnetworks/subnet"
REPOSITORIES = f"artifact_registry/v1/projects/{PROJECT}/locations/us/repositories"
ADA = "user:ada@example.com"
CONDITION = {"title": "own", "expression": 'resource.name.startsWith("projects/_/buckets/runs/objects/a/")'}


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with World(tmp_path) as made:
        yield made


def bound(role: str = "roles/storage.objectViewer", *members: str, **fields: Any) -> dict[str, Any]:
    return {"role": role, "members": list(members or (ADA,)), **fields}


def write(world: World, *bindings: dict[str, Any], **fields: Any) -> Any:
    policy = {"bindings": list(bindings), **fields}
    return world.ask("POST", f"{PROJECT_POLICY}:setIamPolicy", {"policy": policy})


def refused(world: World, *bindings: dict[str, Any], **fields: Any) -> tuple[int, str, str]:
    policy = {"bindings": list(bindings), **fields}
    return world.refusal("POST", f"{PROJECT_POLICY}:setIamPolicy", {"policy": policy})


# Deleted accounts


def test_deleted_account_stays_in_every_policy_as_a_deleted_member(world):
    member = account(world, "worker-one")
    email, other = member.partition(":")[2], account(world, "worker-two").partition(":")[2]
    number = world.ask("GET", f"{ACCOUNTS}/{email}")["uniqueId"]
    make_bucket(world)
    world.network()
    world.ask("POST", REPOSITORIES, {"format": "DOCKER"}, repositoryId="images")
    world.pass_time(60)
    grant(world, "roles/storage.admin", member)
    world.ask("PUT", BUCKET, {"bindings": [bound("roles/storage.admin", ADA, member)]})
    for path, role in (
        (f"{ACCOUNTS}/{other}:setIamPolicy", "roles/iam.serviceAccountUser"),
        (f"{REPOSITORIES}/images:setIamPolicy", "roles/artifactregistry.reader"),
        (f"{SUBNET}/setIamPolicy", "roles/compute.networkUser"),
    ):
        world.ask("POST", path, {"policy": {"bindings": [bound(role, ADA, member)]}})
    world.ask("DELETE", f"{ACCOUNTS}/{email}")
    gone = f"deleted:serviceAccount:{email}?uid={number}"
    for policy in (
        world.ask("POST", f"{PROJECT_POLICY}:getIamPolicy", {}),
        world.ask("GET", BUCKET),
        world.ask("POST", f"{ACCOUNTS}/{other}:getIamPolicy"),
        world.ask("GET", f"{REPOSITORIES}/images:getIamPolicy"),
        world.ask("GET", f"{SUBNET}/getIamPolicy"),
    ):
        (binding,) = policy["bindings"]
        assert (binding["members"][-1], member in binding["members"]) == (gone, False)


def test_policy_with_a_deleted_account_can_be_written_back(world):
    member = account(world, "worker-one")
    grant(world, "roles/storage.admin", member)
    world.ask("DELETE", f"{ACCOUNTS}/{member.partition(':')[2]}")
    before = world.ask("POST", f"{PROJECT_POLICY}:getIamPolicy", {})
    assert write(world, *before["bindings"], etag=before["etag"])["bindings"] == before["bindings"]


def test_account_that_is_made_anew_has_none_of_the_grants_of_the_earlier_one(world):
    member = account(world, "worker-one")
    grant(world, "roles/storage.admin", member)
    world.ask("GET", "storage/v1/b", project=PROJECT, principal=member)
    world.ask("DELETE", f"{ACCOUNTS}/{member.partition(':')[2]}")
    account(world, "worker-one")
    assert world.send("GET", "storage/v1/b", project=PROJECT, principal=member)[0] == 403


@pytest.mark.parametrize("project", [PROJECT, "-"])
def test_account_is_found_by_its_number_wherever_by_its_address(world, project):
    member = account(world, "worker-one")
    shown = world.ask("GET", f"{ACCOUNTS}/worker-one@{DOMAIN}")
    path = f"iam/v1/projects/{project}/serviceAccounts/{shown['uniqueId']}"
    assert world.ask("GET", path) == shown
    policy = {"policy": {"bindings": [bound("roles/iam.serviceAccountUser", member)]}}
    world.ask("POST", f"{path}:setIamPolicy", policy)
    act_as = {"permissions": ["iam.serviceAccounts.actAs"]}
    assert world.ask("POST", f"{path}:testIamPermissions", act_as, principal=member) == act_as
    world.ask("GET", path, principal=member)  # the role has iam.serviceAccounts.get, on this account only
    world.ask("DELETE", path)
    assert world.refusal("GET", path)[0] == 404
    assert world.refusal("GET", f"{ACCOUNTS}/worker-one@{DOMAIN}")[0] == 404


# Roles and members


@pytest.mark.parametrize(
    "role",
    [
        *("roles/storage.objectReader", "roles/iam.serviceAccountUsers", "roles/container.Admin", "roles/everything"),
        *("roles/storage.legacyBucketReader", "roles/resourcemanager.organizationAdmin"),
    ],
)
def test_role_that_does_not_exist_or_is_for_something_else_is_refused_on_a_project(world, role):
    assert refused(world, bound(role)) == (
        400,
        "INVALID_ARGUMENT",
        f"Role {role} is not supported for this resource.",
    )


@pytest.mark.parametrize(
    "role",
    ["roles/owner", "roles/browser", "roles/storage.folderAdmin", "roles/compute.osLogin", "roles/run.new"],
)
def test_role_that_exists_or_is_of_a_service_without_a_list_is_taken(world, role):
    assert write(world, bound(role))["bindings"] == [bound(role)]


@pytest.mark.parametrize(
    ("method", "path", "role", "other"),
    [
        ("PUT", BUCKET, "roles/storage.legacyBucketReader", "roles/container.admin"),
        ("PUT", BUCKET, "roles/storage.admin", "roles/viewer"),
        ("PUT", BUCKET, "roles/storage.admin", "roles/storage.hmacKeyAdmin"),
        (
            "POST",
            f"{ACCOUNTS}/nodes-account@{DOMAIN}:setIamPolicy",
            "roles/iam.workloadIdentityUser",
            "roles/storage.objectCreator",
        ),
        ("POST", f"{SUBNET}/setIamPolicy", "roles/compute.networkUser", "roles/compute.imageUser"),
        ("POST", f"{REPOSITORIES}/images:setIamPolicy", "roles/artifactregistry.reader", "roles/logging.logWriter"),
    ],
)
def test_role_that_has_nothing_to_do_with_a_thing_is_refused_in_its_policy(world, method, path, role, other):
    make_bucket(world)
    account(world, "nodes-account")
    world.network()
    world.ask("POST", REPOSITORIES, {"format": "DOCKER"}, repositoryId="images")
    world.pass_time(60)

    def body(name: str) -> dict[str, Any]:
        policy = {"bindings": [bound(name)]}
        return policy if method == "PUT" else {"policy": policy}

    world.ask(method, path, body(role))
    status, _, text = world.refusal(method, path, body(other))
    assert (status, text) == (400, f"Role {other} is not supported for this resource.")


@pytest.mark.parametrize(
    ("member", "words"),
    [
        ("user:not-an-email", "Invalid member: user:not-an-email"),
        ("group:", "is of an unknown type"),
        ("ada@example.com", "is of an unknown type"),
        ("robot:ada@example.com", "is of an unknown type"),
        ("serviceAccount:worker", "Invalid member: serviceAccount:worker"),
        ("domain:example", "Invalid member: domain:example"),
        ("deleted:serviceAccount:a@b.com", "Invalid member: deleted:serviceAccount:a@b.com"),
        ("principal:iam.googleapis.com", "Invalid member: principal:iam.googleapis.com"),
        ("allUsers", "Request contains an invalid argument."),
        ("allAuthenticatedUsers", "Request contains an invalid argument."),
    ],
)
def test_member_that_cannot_be_one_of_a_project_is_refused(world, member, words):
    status, _, text = refused(world, bound("roles/viewer", member))
    assert (status, words in text) == (400, True)


@pytest.mark.parametrize(
    "member",
    [
        *("group:all@example.com", "domain:example.com", f"serviceAccount:{PROJECT}.svc.id.goog[team/runner]"),
        *("deleted:user:ada@example.com?uid=1234", "serviceAccount:1-compute@developer.gserviceaccount.com"),
        "principalSet://iam.googleapis.com/projects/1/locations/global/workloadIdentityPools/p/group/g",
    ],
)
def test_member_of_every_kind_is_taken(world, member):
    assert write(world, bound("roles/viewer", member))["bindings"] == [bound("roles/viewer", member)]


def test_bindings_of_one_role_are_merged_and_members_are_in_them_once(world):
    made = write(world, bound("roles/viewer", ADA, ADA), bound("roles/viewer", ADA, "user:bob@example.com"))
    assert made["bindings"] == [bound("roles/viewer", ADA, "user:bob@example.com")]


# Conditions and versions


@pytest.mark.parametrize("version", [None, 0, 1])
def test_condition_in_a_policy_of_an_older_version_is_refused(world, version):
    status, _, text = refused(world, bound(condition=CONDITION), **({} if version is None else {"version": version}))
    assert (status, "at least 3" in text) == (400, True)


def test_version_that_does_not_exist_is_refused(world):
    assert refused(world, bound(), version=2)[0] == 400
    asked = {"options": {"requestedPolicyVersion": 2}}
    assert world.refusal("POST", f"{PROJECT_POLICY}:getIamPolicy", asked)[0] == 400


@pytest.mark.parametrize("missing", ["title", "expression"])
def test_condition_without_a_title_or_an_expression_is_refused(world, missing):
    condition = {key: value for key, value in CONDITION.items() if key != missing}
    status, _, text = refused(world, bound(condition=condition), version=3)
    assert (status, missing in text) == (400, True)


def test_condition_on_a_basic_role_is_refused(world):
    assert refused(world, bound("roles/viewer", condition=CONDITION), version=3)[0] == 400


def test_policy_with_conditions_hides_them_from_who_does_not_ask_for_version_3(world):
    made = write(world, bound("roles/tpu.admin"), bound(condition=CONDITION), version=3)
    assert made["version"] == 3
    old = world.ask("POST", f"{PROJECT_POLICY}:getIamPolicy", {})
    plain, hidden = old["bindings"]
    assert (old["version"], old["etag"], plain) == (1, made["etag"], bound("roles/tpu.admin"))
    assert hidden["role"].startswith("roles/storage.objectViewer_withcond_")
    assert set(hidden) == {"role", "members"}
    assert world.ask("POST", f"{PROJECT_POLICY}:getIamPolicy", {"options": {"requestedPolicyVersion": 3}}) == made


def test_policy_with_conditions_is_not_replaced_from_an_older_version_of_it(world):
    write(world, bound(condition=CONDITION), version=3)
    old = world.ask("POST", f"{PROJECT_POLICY}:getIamPolicy", {})
    status, _, text = refused(world, *old["bindings"], bound("roles/viewer"), etag=old["etag"], version=1)
    assert (status, "cannot be less than the existing policy version (3)" in text) == (400, True)


def test_policy_with_conditions_is_overwritten_without_an_etag(world):
    write(world, bound(condition=CONDITION), version=3)
    assert write(world, bound())["bindings"] == [bound()]


@pytest.mark.parametrize(
    ("method", "path", "query", "role"),
    [
        ("GET", BUCKET, "optionsRequestedPolicyVersion", "roles/storage.objectViewer"),
        (
            "POST",
            f"{ACCOUNTS}/nodes-account@{DOMAIN}:getIamPolicy",
            "options.requestedPolicyVersion",
            "roles/iam.serviceAccountUser",
        ),
        ("GET", f"{SUBNET}/getIamPolicy", "optionsRequestedPolicyVersion", "roles/compute.networkUser"),
    ],
)
def test_version_of_a_policy_is_asked_for_where_its_api_has_a_place_for_it(world, method, path, query, role):
    make_bucket(world)
    account(world, "nodes-account")
    world.network()
    policy = {"version": 3, "bindings": [bound(role, condition=CONDITION)]}
    if path == BUCKET:
        world.ask("PUT", BUCKET, policy)
    else:
        world.ask("POST", path.replace("getIamPolicy", "setIamPolicy"), {"policy": policy})
    assert "_withcond_" in world.ask(method, path)["bindings"][0]["role"]
    assert world.ask(method, path, **{query: "3"})["bindings"] == policy["bindings"]


def test_condition_on_a_bucket_without_uniform_access_is_refused(world):
    world.ask("POST", "storage/v1/b", {"name": "plain", "location": "US"}, project=PROJECT)
    policy = {"version": 3, "bindings": [bound(condition=CONDITION)]}
    status, reason, text = world.refusal("PUT", "storage/v1/b/plain/iam", policy)
    assert (status, reason) == (412, "conditionNotMet")
    assert "enable uniform bucket-level access" in text


@pytest.mark.parametrize("path", [BUCKET, "storage/v1/b/runs/managedFolders/a%2F/iam"])
def test_everybody_is_refused_on_a_bucket_that_prevents_public_access(world, path):
    make_bucket(world)
    world.ask("POST", "storage/v1/b/runs/managedFolders", {"name": "a/"})
    public = {"bindings": [bound("roles/storage.objectViewer", "allUsers")]}
    world.ask("PUT", path, public)
    world.ask("PATCH", "storage/v1/b/runs", {"iamConfiguration": {"publicAccessPrevention": "enforced"}})
    status, reason, text = world.refusal("PUT", path, public)
    assert (status, reason) == (412, "conditionNotMet")
    assert "public access prevention is enforced" in text


# Fields of accounts


@pytest.mark.parametrize("field", ["email", "name", "uniqueId", "disabled", "projectId", "display_name,email"])
def test_field_of_an_account_that_cannot_be_changed_is_refused(world, field):
    account(world, "worker-one")
    body = {"serviceAccount": {"email": "other@example.com", "displayName": "n"}, "updateMask": field}
    assert world.refusal("PATCH", f"{ACCOUNTS}/worker-one@{DOMAIN}", body)[:2] == (400, "INVALID_ARGUMENT")


def test_name_and_description_of_an_account_are_changed_by_the_mask(world):
    account(world, "worker-one")
    body = {"serviceAccount": {"displayName": "One", "description": "works"}, "updateMask": "display_name,description"}
    changed = world.ask("PATCH", f"{ACCOUNTS}/worker-one@{DOMAIN}", body)
    assert (changed["displayName"], changed["description"]) == ("One", "works")
