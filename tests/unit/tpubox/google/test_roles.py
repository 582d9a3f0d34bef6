"""Custom roles of a project in the emulator, and the record of required permissions by caller."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.google_world import PROJECT, World, pool
from tpubox.google import APIS
from tpubox.google.iam import known_permissions, permissions
from tpukit.provisioner.deployment import PERMISSIONS
from unit.tpubox.google.test_identity import ACCOUNTS, PROJECT_POLICY, account, grant

ROLES = f"iam/v1/projects/{PROJECT}/roles"
NAME = f"projects/{PROJECT}/roles/tpuProvisioner"
OPERATIONS = f"container/v1/projects/{PROJECT}/locations/us-central2/operations"


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with World(tmp_path) as made:
        yield made


def make_role(world: World, *permissions: str, **fields: str) -> None:
    role = {"title": "t", "stage": "GA", "includedPermissions": list(permissions), **fields}
    world.ask("POST", ROLES, {"roleId": "tpuProvisioner", "role": role})


def test_custom_role_allows_the_permissions_that_it_lists_and_no_others(world):
    member, pools = account(world), world.cluster()
    make_role(world, "container.clusters.get")
    grant(world, NAME, member)
    world.ask("GET", pools, principal=member)
    assert world.refusal("POST", pools, pool(), principal=member)[0] == 403
    assert world.refusal("GET", OPERATIONS, principal=member)[0] == 403


def test_custom_role_of_the_provisioner_makes_lists_and_deletes_pools_but_no_cluster(world):
    member, nodes, pools = account(world), account(world, "nodes-account").partition(":")[2], world.cluster()
    make_role(world, *PERMISSIONS)
    grant(world, NAME, member)
    grant(world, "roles/iam.serviceAccountUser", member, on=f"{ACCOUNTS}/{nodes}")
    world.ask("POST", pools, pool(config={"serviceAccount": nodes}), principal=member)
    world.pass_time(1000)
    world.ask("GET", pools, principal=member)
    world.ask("GET", OPERATIONS, principal=member)
    world.ask("DELETE", f"{pools}/tpu-0", principal=member)
    world.pass_time(1000)
    assert world.refusal("DELETE", pools.rpartition("/")[0], principal=member)[0] == 403
    asked = [one for one in world.cloud.requests() if one["principal"] == member and one["status"] < 300]
    needed = {permission for one in asked for permission in one["permissions"]}
    assert needed == {*PERMISSIONS, "iam.serviceAccounts.actAs"}


def test_nodes_without_an_account_run_as_the_default_one_which_takes_a_grant_too(world):
    member, pools = account(world), world.cluster()
    grant(world, "roles/container.admin", member)
    status, _, text = world.refusal("POST", pools, pool(), principal=member)
    assert (status, 'service account "default"' in text) == (400, True)
    grant(world, "roles/iam.serviceAccountUser", member)
    world.ask("POST", pools, pool(), principal=member)


def test_role_that_is_not_there_cannot_be_granted(world):
    member = account(world)
    policy = {"policy": {"bindings": [{"role": NAME, "members": [member]}]}}
    assert (
        "does not exist in the resource's hierarchy"
        in world.refusal("POST", f"{PROJECT_POLICY}:setIamPolicy", policy)[2]
    )


def test_role_of_one_project_is_granted_on_what_is_in_it_and_on_nothing_of_another(tmp_path):
    with World(tmp_path, projects=(PROJECT, "other-project")) as world:
        make_role(world, "storage.objects.get")
        policy = {"bindings": [{"role": NAME, "members": ["user:ada@example.com"]}]}
        for project in (PROJECT, "other-project"):
            world.ask("POST", "storage/v1/b", {"name": f"of-{project}"}, project=project)
        world.ask("POST", f"{PROJECT_POLICY}:setIamPolicy", {"policy": policy})
        world.ask("PUT", f"storage/v1/b/of-{PROJECT}/iam", policy)
        other = "resource_manager/v1/projects/other-project:setIamPolicy"
        for refused in (
            world.refusal("POST", other, {"policy": policy}),
            world.refusal("PUT", "storage/v1/b/of-other-project/iam", policy),
        ):
            assert (refused[0], "does not exist in the resource's hierarchy" in refused[2]) == (400, True)


@pytest.mark.parametrize(
    "permission",
    [
        *("container.nodePools.create", "container", "container.clusters.*"),
        *("storage.objects.fly", "storage.wings.get", "iam.serviceAccounts.become"),
        *("resourcemanager.projects.list", "resourcemanager.folders.get", "resourcemanager.organizations.get"),
    ],
)
def test_role_with_a_permission_that_does_not_exist_is_refused(world, permission):
    body = {"roleId": "tpuProvisioner", "role": {"includedPermissions": [permission]}}
    assert world.refusal("POST", ROLES, body)[2] == f"Permission {permission} is not valid."


@pytest.mark.parametrize(
    "permission", ["storage.objects.update", "resourcemanager.projects.get", "run.services.get", "iam.denypolicies.get"]
)
def test_role_with_a_permission_that_exists_or_may_exist_is_made(world, permission):
    make_role(world, permission)
    assert world.ask("GET", f"{ROLES}/tpuProvisioner")["includedPermissions"] == [permission]


def test_permissions_that_requests_need_can_be_put_in_a_role(world):
    """A role can then be created from the record of calls."""
    for api in APIS:
        for method, routes in api.routes.items() if api.permissions else ():
            for route in routes:
                permission = permissions._permission(api.permissions, method, re.sub(r"[{}+]", "", route.path))
                assert known_permissions.is_valid(permission), route.path


def test_role_that_is_deleted_allows_nothing_keeps_its_name_and_can_be_had_back(world):
    member, pools = account(world), world.cluster()
    make_role(world, "container.clusters.get")
    grant(world, NAME, member)
    world.ask("DELETE", f"{ROLES}/tpuProvisioner")
    assert world.refusal("GET", pools, principal=member)[0] == 403
    assert world.ask("GET", ROLES) == {"roles": []}
    again = world.refusal("POST", ROLES, {"roleId": "tpuProvisioner", "role": {}})
    assert (again[1], "in a deleted state" in again[2]) == ("FAILED_PRECONDITION", True)
    assert not [one for one in world.cloud.inventory() if one.startswith("role ")]
    world.ask("POST", f"{ROLES}/tpuProvisioner:undelete", {})
    assert [one for one in world.cloud.inventory() if one.startswith("role ")]
    world.ask("GET", pools, principal=member)


def test_role_is_changed_by_its_mask_and_disabled_allows_nothing(world):
    member, pools = account(world), world.cluster()
    make_role(world, "container.clusters.list")
    grant(world, NAME, member)
    body = {"includedPermissions": ["container.clusters.get"], "title": "not in the mask"}
    changed = world.ask("PATCH", f"{ROLES}/tpuProvisioner", body, updateMask="includedPermissions")
    assert (changed["title"], changed["includedPermissions"]) == ("t", ["container.clusters.get"])
    world.ask("GET", pools, principal=member)
    stale = {"title": "later", "etag": "AAAAAA=="}
    assert world.refusal("PATCH", f"{ROLES}/tpuProvisioner", stale, updateMask="title")[1] == "ABORTED"
    world.ask("PATCH", f"{ROLES}/tpuProvisioner", {"stage": "DISABLED"}, updateMask="stage")
    assert world.refusal("GET", pools, principal=member)[0] == 403


def test_role_needs_permissions_of_its_own_to_be_made(world):
    member = account(world)
    answer = world.send("POST", ROLES, {"roleId": "tpuProvisioner", "role": {}}, principal=member)[1]
    assert answer["error"]["details"][0]["metadata"]["permission"] == "iam.roles.create"
