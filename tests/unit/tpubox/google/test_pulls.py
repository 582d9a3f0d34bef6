"""Image pulls of GKE nodes from Artifact Registry, and the account used for each."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.google_world import PROJECT, World, pool
from tpubox.google.artifacts import repositories as artifact_registry
from tpubox.google.artifacts.image_pulls import PERMISSION, pull
from tpukit.places.gke import failure

REPOSITORY = f"projects/{PROJECT}/locations/us/repositories/images"
IMAGES = f"us-docker.pkg.dev/{PROJECT}/images"
DIGEST = "sha256:" + "1" * 64
NODES = f"gke-sa@{PROJECT}.iam.gserviceaccount.com"


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with World(tmp_path) as made:
        parent, _, name = REPOSITORY.rpartition("/")
        made.ask("POST", f"artifact_registry/v1/{parent}", {"format": "DOCKER"}, repositoryId=name)
        artifact_registry.push(made.cloud, REPOSITORY, "train", "1", DIGEST)
        made.ask("POST", f"iam/v1/projects/{PROJECT}/serviceAccounts", {"accountId": "gke-sa"})
        yield made


def node(world: World) -> str:
    world.ask("POST", world.cluster(), pool(config={"serviceAccount": NODES}))
    world.pass_time(1000)
    (made,) = world.cloud.state.all("pool").values()
    return str(next(iter(made["_nodes"])))


def let_read(world: World, role: str = "roles/artifactregistry.reader") -> None:
    binding = {"role": role, "members": [f"serviceAccount:{NODES}"]}
    world.ask("POST", f"artifact_registry/v1/{REPOSITORY}:setIamPolicy", {"policy": {"bindings": [binding]}})


def refused(world: World, host: str, image: str) -> str:
    return str(pull(world.cloud, host, image)["refused"])


@pytest.mark.parametrize("name", ["train:1", f"train@{DIGEST}", f"train:1@{DIGEST}"])
def test_node_whose_account_may_read_gets_an_image_that_is_there(world, name):
    host = node(world)
    assert "403 Forbidden" in refused(world, host, f"{IMAGES}/{name}")
    let_read(world)
    world.pass_time(1000)
    assert refused(world, host, f"{IMAGES}/{name}") == ""


@pytest.mark.parametrize("name", ["train:2", "train", "other:1", "train@sha256:" + "2" * 64])
def test_image_that_nobody_pushed_is_not_found(world, name):
    host = node(world)
    let_read(world)
    world.pass_time(1000)
    assert refused(world, host, f"{IMAGES}/{name}").endswith("not found")


def test_role_that_reads_no_images_does_not_pull(world):
    host = node(world)
    let_read(world, "roles/artifactregistry.viewer")
    world.pass_time(1000)
    assert "failed to fetch oauth token" in refused(world, host, f"{IMAGES}/train:1")


def test_grant_reaches_nodes_as_late_as_programs(tmp_path):
    with World(tmp_path, arrival_seconds=60.0) as world:
        parent, _, name = REPOSITORY.rpartition("/")
        world.ask("POST", f"artifact_registry/v1/{parent}", {"format": "DOCKER"}, repositoryId=name)
        artifact_registry.push(world.cloud, REPOSITORY, "train", "1", DIGEST)
        world.ask("POST", f"iam/v1/projects/{PROJECT}/serviceAccounts", {"accountId": "gke-sa"})
        world.pass_time(1000)
        host = node(world)
        let_read(world)
        assert "403 Forbidden" in refused(world, host, f"{IMAGES}/train:1")
        world.pass_time(61)
        assert refused(world, host, f"{IMAGES}/train:1") == ""


def test_what_nodes_pull_is_in_the_record_as_their_account(world):
    host = node(world)
    let_read(world)
    world.pass_time(1000)
    refused(world, host, f"{IMAGES}/train:1")
    (told,) = world.cloud.requests(agent="^kubelet$")
    assert (told["principal"], told["permissions"], told["status"]) == (f"serviceAccount:{NODES}", [PERMISSION], 200)


@pytest.mark.parametrize("image", ["python:3.13", "us-docker.pkg.dev/somebody/images/train:1"])
def test_images_of_other_registries_and_of_projects_of_others_are_taken_to_be_there(world, image):
    assert refused(world, node(world), image) == ""


def test_image_in_a_repository_that_the_project_does_not_have_is_not_found_if_the_account_may_read_the_project(world):
    host, image = node(world), f"{IMAGES}s/train:1"
    assert "403 Forbidden" in refused(world, host, image)
    binding = {"role": "roles/artifactregistry.reader", "members": [f"serviceAccount:{NODES}"]}
    world.ask("POST", f"resource_manager/v1/projects/{PROJECT}:setIamPolicy", {"policy": {"bindings": [binding]}})
    world.pass_time(1000)
    assert refused(world, host, image).endswith(f"{image}: not found")
    assert refused(world, "gke-sandbox-cpu-0000", image).endswith(f"{image}: not found")


def test_machine_of_no_pool_reads_every_image_that_is_there(world):
    assert refused(world, "gke-sandbox-cpu-0000", f"{IMAGES}/train:1") == ""
    assert refused(world, "gke-sandbox-cpu-0000", f"{IMAGES}/train:2").endswith("not found")


def test_what_nodes_say_of_an_image_that_they_may_not_read_is_what_jobs_name_the_role_for(world):
    said = refused(world, node(world), f"{IMAGES}/train:1")
    state = {"waiting": {"reason": "ErrImagePull", "message": said}}
    status = {"containerStatuses": [{"name": "host", "image": f"{IMAGES}/train:1", "state": state}]}
    trouble = failure.image_trouble([{"metadata": {"name": "p", "labels": {}}, "status": status}])
    assert trouble.hopeless
    assert "roles/artifactregistry.reader" in trouble.said
