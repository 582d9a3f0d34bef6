"""Buckets mounted as folders in pods on GKE nodes, and the account used for each."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.google_world import PROJECT, World, pool
from tpubox.google.storage.bucket_mounts import AGENT, mount

IDENTITIES = f"{PROJECT}.svc.id.goog"
TRAINER = f"serviceAccount:{IDENTITIES}[team-a/trainer]"
TEAM = f"team-a@{PROJECT}.iam.gserviceaccount.com"
CHANGES = {
    "identity": {"desiredWorkloadIdentityConfig": {"workloadPool": IDENTITIES}},
    "driver": {"desiredAddonsConfig": {"gcsFuseCsiDriverConfig": {"enabled": True}}},
}


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with World(tmp_path) as made:
        made.ask("POST", "storage/v1/b", {"name": "my-runs"}, project=PROJECT)
        yield made


def node(world: World, *changes: str) -> str:
    pools = world.cluster()
    for change in changes:
        world.ask("PUT", pools.removesuffix("/nodePools"), {"update": CHANGES[change]})
        world.pass_time(1000)
    world.ask("POST", pools, pool())
    world.pass_time(1000)
    (made,) = world.cloud.state.all("pool").values()
    return str(next(iter(made["_nodes"])))


def grant(world: World, role: str, member: str = TRAINER) -> None:
    policy = {"bindings": [{"role": f"roles/{role}", "members": [member]}]}
    world.ask("PUT", "storage/v1/b/my-runs/iam", policy)


def mounted(world: World, host: str, bucket: str = "my-runs", **told: Any) -> dict[str, Any]:
    return mount(world.cloud, host, "team-a", "trainer", bucket, **told)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (["identity"], "driver name gcsfuse.csi.storage.gke.io not found in the list of registered CSI drivers"),
        (["driver"], "code = FailedPrecondition desc = Workload Identity Federation is not enabled on node"),
    ],
)
def test_cluster_without_the_driver_or_workload_identity_mounts_nothing(world, changes, said):
    assert said in mounted(world, node(world, *changes))["refused"]


def test_pod_without_a_grant_is_refused_and_the_record_shows_what_it_lacked(world):
    host = node(world, "identity", "driver")
    refused = mounted(world, host)["refused"]
    assert refused.startswith('rpc error: code = PermissionDenied desc = failed to get GCS bucket "my-runs": ')
    assert "Permission 'storage.objects.list' denied" in refused
    (call,) = world.cloud.requests(agent=AGENT)
    assert (call["principal"], call["permissions"], call["status"]) == (TRAINER, ["storage.objects.list"], 403)


@pytest.mark.parametrize(("role", "writable"), [("storage.objectViewer", False), ("storage.objectUser", True)])
def test_pod_that_may_read_gets_it_and_writes_where_it_may(world, role, writable):
    host = node(world, "identity", "driver")
    grant(world, role)
    assert mounted(world, host) == {"refused": "", "writable": writable}


def test_annotated_pod_is_asked_for_the_grants_of_its_account(world):
    host = node(world, "identity", "driver")
    accounts = f"iam/v1/projects/{PROJECT}/serviceAccounts"
    world.ask("POST", accounts, {"accountId": "team-a"})
    assert "code = Unauthenticated" in mounted(world, host, annotated=TEAM)["refused"]
    user = {"role": "roles/iam.workloadIdentityUser", "members": [TRAINER]}
    world.ask("POST", f"{accounts}/{TEAM}:setIamPolicy", {"policy": {"bindings": [user]}})
    assert (
        f"Error 403: {TEAM} does not have storage.objects.list access"
        in mounted(world, host, annotated=TEAM)["refused"]
    )
    grant(world, "storage.objectUser", f"serviceAccount:{TEAM}")
    assert mounted(world, host, annotated=TEAM)["refused"] == ""


def test_bucket_that_is_not_there_is_not_found(world):
    host = node(world, "identity", "driver")
    assert "code = NotFound" in mounted(world, host, "others")["refused"]


def test_pod_with_a_grant_on_a_folder_gets_that_one_where_the_driver_does_not_look_at_the_bucket(world):
    host = node(world, "identity", "driver")
    world.ask("PATCH", "storage/v1/b/my-runs", {"iamConfiguration": {"uniformBucketLevelAccess": {"enabled": True}}})
    folders = "storage/v1/b/my-runs/managedFolders"
    world.ask("POST", folders, {"name": "teams/a/"})
    policy = {"bindings": [{"role": "roles/storage.objectUser", "members": [TRAINER]}]}
    world.ask("PUT", f"{folders}/teams%2Fa%2F/iam", policy)
    assert "storage.objects.list" in mounted(world, host, folder="teams/a/")["refused"]
    assert mounted(world, host, folder="teams/a/", listed="teams/a/") == {"refused": "", "writable": True}
