"""Held permissions according to testIamPermissions: those that policies allow, once grants have arrived."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.google_world import PROJECT, World
from unit.tpubox.google.test_identity import ACCOUNTS, PROJECT_POLICY, account, bind, grant

REPOSITORIES = f"artifact_registry/v1/projects/{PROJECT}/locations/us/repositories"
ACT_AS = "iam.serviceAccounts.actAs"


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with World(tmp_path) as made:
        yield made


def held(world: World, path: str, *permissions: str, principal: str = "", separator: str = ":") -> list[str]:
    asked = {"permissions": list(permissions)}
    answer = world.ask("POST", f"{path}{separator}testIamPermissions", asked, principal=principal)
    return list(answer.get("permissions", []))


def held_in_storage(world: World, path: str, *permissions: str, principal: str = "") -> list[str]:
    asked = ",".join(permissions)  # the server's form of a repeated parameter
    answer = world.ask("GET", f"{path}/iam/testPermissions", permissions=asked, principal=principal)
    assert answer["kind"] == "storage#testIamPermissionsResponse"
    return list(answer.get("permissions", []))


def test_held_permissions_on_a_project_are_those_of_its_roles(world):
    member = account(world)
    asked = ("container.clusters.create", "container.clusters.get", "storage.buckets.create")
    assert held(world, PROJECT_POLICY, *asked, principal=member) == []
    grant(world, "roles/container.clusterViewer", member)
    assert held(world, PROJECT_POLICY, *asked, principal=member) == ["container.clusters.get"]
    assert held(world, PROJECT_POLICY, *asked) == list(asked), "the owner has all"


def test_held_permissions_come_when_the_grant_has_arrived(tmp_path):
    with World(tmp_path, arrival_seconds=10.0) as world:
        member = account(world)
        world.clock.sleep(10.0)
        grant(world, "roles/tpu.admin", member)
        assert held(world, PROJECT_POLICY, "tpu.nodes.create", principal=member) == []
        world.clock.sleep(10.0)
        assert held(world, PROJECT_POLICY, "tpu.nodes.create", principal=member) == ["tpu.nodes.create"]


def test_held_permissions_on_an_account_are_of_its_own_policy_and_of_the_projects(world):
    member, other = account(world), account(world, "nodes-account").partition(":")[2]
    first, second = f"{ACCOUNTS}/{other}", f"{ACCOUNTS}/{account(world, 'another').partition(':')[2]}"
    grant(world, "roles/iam.serviceAccountUser", member, on=first)
    assert held(world, first, ACT_AS, principal=member) == [ACT_AS]
    assert held(world, second, ACT_AS, principal=member) == []
    grant(world, "roles/iam.serviceAccountUser", member)
    assert held(world, second, ACT_AS, principal=member) == [ACT_AS]


def test_held_permissions_on_a_repository_and_on_a_subnet_are_of_their_own_policies(world):
    member = account(world)
    world.ask("POST", REPOSITORIES, {"format": "DOCKER"}, repositoryId="images")
    world.pass_time(60)
    upload, binding = "artifactregistry.packages.create", "roles/artifactregistry.writer"
    policy = {"policy": {"bindings": [{"role": binding, "members": [member]}]}}
    world.ask("POST", f"{REPOSITORIES}/images:setIamPolicy", policy)
    assert held(world, f"{REPOSITORIES}/images", upload, principal=member) == [upload]
    world.network()
    subnet = f"compute/v1/projects/{PROJECT}/regions/us-central2/subnetworks/subnet"
    use = "compute.subnetworks.use"
    policy = {"policy": {"bindings": [{"role": "roles/compute.networkAdmin", "members": [member]}]}}
    assert held(world, subnet, use, principal=member, separator="/") == []
    world.ask("POST", f"{subnet}/setIamPolicy", policy)
    assert held(world, subnet, use, principal=member, separator="/") == [use]


def test_held_permissions_in_storage_end_where_the_managed_folder_does(world):
    member = account(world)
    uniform = {"uniformBucketLevelAccess": {"enabled": True}}
    bucket = {"name": "data", "location": "US", "iamConfiguration": uniform}
    world.ask("POST", "storage/v1/b", bucket, project=PROJECT)
    for team in ("red/", "blue/"):
        world.ask("POST", "storage/v1/b/data/managedFolders", {"name": team})
    asked = ("storage.objects.create", "storage.buckets.delete")
    bind(world, "storage/v1/b/data/managedFolders/red%2F", "roles/storage.objectUser", member)
    red, blue = (f"storage/v1/b/data/managedFolders/{team}%2F" for team in ("red", "blue"))
    assert held_in_storage(world, red, *asked, principal=member) == ["storage.objects.create"]
    assert held_in_storage(world, blue, *asked, principal=member) == []
    assert held_in_storage(world, "storage/v1/b/data", *asked, principal=member) == []
    bind(world, "storage/v1/b/data", "roles/storage.admin", member)
    assert held_in_storage(world, "storage/v1/b/data", *asked, principal=member) == list(asked)
    assert world.refusal("GET", "storage/v1/b/nothing/iam/testPermissions", permissions="storage.objects.get")[0] == 404


def test_held_permissions_on_what_is_not_there_are_none(world):
    assert held(world, f"{ACCOUNTS}/nobody@{PROJECT}.iam.gserviceaccount.com", ACT_AS) == []
    assert held(world, f"{REPOSITORIES}/nothing", "artifactregistry.packages.create") == []


def test_held_permissions_of_a_service_that_nobody_knows_are_none(world):
    member = account(world)
    grant(world, "roles/owner", member)
    for principal in ("", member):
        asked = ("foo.bar.baz", "tpu.nodes.create")
        assert held(world, PROJECT_POLICY, *asked, principal=principal) == ["tpu.nodes.create"]


@pytest.mark.parametrize("permission", ["storage.objects.fly", "resourcemanager.projects.list"])
def test_held_permissions_that_do_not_exist_or_are_of_an_organization_are_refused(world, permission):
    status, _, text = world.refusal("POST", f"{PROJECT_POLICY}:testIamPermissions", {"permissions": [permission]})
    assert (status, text) == (400, f"Permission {permission} is not valid for this resource.")


@pytest.mark.parametrize("permission", ["*", "storage.*", "storage.buckets.*", "storage", ""])
def test_held_permissions_with_wildcards_or_without_a_shape_are_refused(world, permission):
    status, word, text = world.refusal("POST", f"{PROJECT_POLICY}:testIamPermissions", {"permissions": [permission]})
    assert (status, word) == (400, "INVALID_ARGUMENT")
    assert permission in text
