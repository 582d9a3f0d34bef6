"""The Google identity of a pod on a GKE node."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.google_world import PROJECT, World, pool
from tpubox.google.iam import credentials
from tpubox.google.iam.pod_identity import identify
from tpubox.google.wire.settings import number_of
from tpukit.core.errors import Invalid

IDENTITIES = f"{PROJECT}.svc.id.goog"
TEAM_A, TEAM_B = (f"{name}@{PROJECT}.iam.gserviceaccount.com" for name in ("team-a", "team-b"))


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with World(tmp_path) as made:
        yield made


def node(world: World, *, identities: bool = True, **config: Any) -> str:
    pools = world.cluster()
    if identities:
        change = {"desiredWorkloadIdentityConfig": {"workloadPool": IDENTITIES}}
        world.ask("PUT", pools.removesuffix("/nodePools"), {"update": change})
        world.pass_time(1000)
    world.ask("POST", pools, pool(config=config))
    world.pass_time(1000)
    (made,) = world.cloud.state.all("pool").values()
    return str(next(iter(made["_nodes"])))


def make_account(world: World, email: str, *members: str) -> None:
    """Create a Google service account that these members may use."""
    accounts = f"iam/v1/projects/{PROJECT}/serviceAccounts"
    world.ask("POST", accounts, {"accountId": email.partition("@")[0]})
    binding = {"role": "roles/iam.workloadIdentityUser", "members": list(members)}
    world.ask("POST", f"{accounts}/{email}:setIamPolicy", {"policy": {"bindings": [binding]}})


def principal(world: World, found: dict[str, Any]) -> str | None:
    return credentials.principal_of(world.cloud, found["token"])


def test_annotated_pod_is_the_account_that_lets_it_and_no_other(world: World):
    host = node(world)
    make_account(world, TEAM_A, f"serviceAccount:{IDENTITIES}[team-a/trainer]")
    make_account(world, TEAM_B, f"serviceAccount:{IDENTITIES}[team-b/trainer]")
    found = identify(world.cloud, host, "team-a", "trainer", TEAM_A)
    assert principal(world, found) == f"serviceAccount:{TEAM_A}"
    assert (found["project"], found["cluster"], found["location"]) == (PROJECT, "one", "us-central2")
    for namespace, account, annotated in (
        ("team-a", "trainer", TEAM_B),
        ("team-a", "other", TEAM_A),
        ("team-a", "trainer", f"nobody@{PROJECT}.iam.gserviceaccount.com"),
    ):
        refused = identify(world.cloud, host, namespace, account, annotated)
        assert "token" not in refused
        assert "IAM returned 403 Forbidden" in refused["refused"]
        assert refused["email"] == annotated


@pytest.mark.parametrize(
    "member",
    [
        f"serviceAccount:{IDENTITIES}[team-a/trainer]",
        f"principal://iam.googleapis.com/projects/{number_of(PROJECT)}/locations/global/workloadIdentityPools/"
        f"{IDENTITIES}/subject/ns/team-a/sa/trainer",
    ],
)
def test_pod_without_annotation_is_itself_with_the_roles_that_it_was_granted(world: World, member: str):
    host = node(world)
    found = identify(world.cloud, host, "team-a", "trainer")
    assert found["email"] == IDENTITIES
    who = principal(world, found)
    clusters = f"container/v1/projects/{PROJECT}/locations/us-central2/clusters"
    assert world.send("GET", clusters, principal=who or "")[0] == 403
    policy = {"bindings": [{"role": "roles/container.clusterViewer", "members": [member]}]}
    world.ask("POST", f"resource_manager/v1/projects/{PROJECT}:setIamPolicy", {"policy": policy})
    assert world.send("GET", clusters, principal=who or "")[0] == 200
    other = identify(world.cloud, host, "team-b", "trainer")
    assert world.send("GET", clusters, principal=principal(world, other) or "")[0] == 403


def test_pod_without_workload_identity_is_the_account_of_its_node_whatever_is_annotated(world: World):
    host = node(world, identities=False)
    found = identify(world.cloud, host, "team-a", "trainer", TEAM_A)
    assert principal(world, found) == f"serviceAccount:{number_of(PROJECT)}-compute@developer.gserviceaccount.com"


def test_pod_of_a_pool_that_shows_its_nodes_account_is_that_account(world: World):
    host = node(world, workloadMetadataConfig={"mode": "GCE_METADATA"})
    found = identify(world.cloud, host, "team-a", "trainer", TEAM_A)
    assert found["email"].endswith("-compute@developer.gserviceaccount.com")


def test_node_that_no_pool_has_is_an_error_that_names_it(world: World):
    with pytest.raises(Invalid, match="node nowhere"):
        identify(world.cloud, "nowhere", "team-a", "trainer")
