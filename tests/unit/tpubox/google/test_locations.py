"""Unknown locations are refused by every API of the emulator that has locations, with the same message."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.google_world import PROJECT, World

DATABASES = f"firestore/v1/projects/{PROJECT}/databases"
VM = {"acceleratorType": "v4-8", "runtimeVersion": "tpu-ubuntu2204-base"}


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with World(tmp_path) as made:
        yield made


def place(api: str, location: str, rest: str) -> str:
    return f"{api}/projects/{PROJECT}/locations/{location}/{rest}"


@pytest.mark.parametrize(
    ("method", "path", "location", "body", "query"),
    [
        ("POST", "artifact_registry/v1", "mars", {"format": "DOCKER"}, {"repositoryId": "images"}),
        ("GET", "artifact_registry/v1", "us-central-1", None, {}),
        ("POST", "vertex_ai/v1", "mars-north1", {"displayName": "board"}, {}),
        ("GET", "vertex_ai/v1", "us", None, {}),
        ("POST", "tpu/v2", "us-central9-b", VM, {"nodeId": "vm"}),
        ("GET", "tpu/v2", "us-central2", None, {}),
    ],
)
def test_place_that_does_not_exist_is_refused(
    world: World, method: str, path: str, location: str, body: Any, query: dict[str, str]
):
    kind = {"artifact_registry/v1": "repositories", "vertex_ai/v1": "tensorboards", "tpu/v2": "nodes"}[path]
    status, answer = world.send(method, place(path, location, kind), body, **query)
    error = answer["error"]
    assert (status, error["status"]) == (403, "PERMISSION_DENIED")
    assert error["message"] == f"Permission denied on 'locations/{location}' (or it may not exist)."
    assert error["details"][0]["reason"] == "LOCATION_POLICY_VIOLATED"


@pytest.mark.parametrize("location", ["us", "europe", "asia", "europe-west4", "us-central2"])
def test_repositories_are_made_in_regions_and_multi_regions(world: World, location: str):
    world.ask("POST", place("artifact_registry/v1", location, "repositories"), {"format": "DOCKER"}, repositoryId="a")


@pytest.mark.parametrize("location", ["nam5", "nam7", "eur3", "us-east4"])
def test_databases_are_made_in_regions_and_multi_regions(world: World, location: str):
    world.ask("POST", DATABASES, {"locationId": location, "type": "FIRESTORE_NATIVE"}, databaseId="jobs")


@pytest.mark.parametrize("location", ["mars", "us", "us-central1-a"])
def test_database_in_no_such_place_is_refused(world: World, location: str):
    body = {"locationId": location, "type": "FIRESTORE_NATIVE"}
    status, _, text = world.refusal("POST", DATABASES, body, databaseId="jobs")
    assert (status, text) == (403, f"Permission denied on 'locations/{location}' (or it may not exist).")


def test_lists_of_all_places_are_answered(world: World):
    world.ask("POST", place("tpu/v2", "us-central2-b", "nodes"), VM, nodeId="vm")
    assert len(world.ask("GET", place("tpu/v2", "-", "nodes"))["nodes"]) == 1
