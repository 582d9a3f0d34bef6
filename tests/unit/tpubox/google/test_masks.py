"""Update masks: every route with a mask refuses unknown fields."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from support import discovery
from support.google_world import PROJECT, World
from tpubox.google import APIS
from tpubox.google.wire.api import Api

BOARDS = f"vertex_ai/v1/projects/{PROJECT}/locations/us-central1/tensorboards"


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with World(tmp_path) as made:
        yield made


WITH_MASKS = ["artifact_registry", "compute", "firestore", "iam", "monitoring", "tpu", "vertex_ai"]


def with_masks(api: Api) -> Iterator[str]:
    """Yield the paths of all PATCH routes of an API whose method has a mask."""
    for route in api.routes.get("PATCH", []):
        words = re.sub(r"\(\?P<project>[^)]*\)", PROJECT, route.pattern.pattern)
        words = re.sub(r"\(\?P<location>[^)]*\)", "-", words)
        path = re.sub(r"\(\?P<\w+>[^)]*\)", "x", words).replace("\\", "")
        for version in api.versions:
            found = discovery.documented("PATCH", f"{api.name}/{version}/{path}")
            if found and "updateMask" in found["parameters"]:
                yield f"{api.name}/{version}/{path}"


@pytest.mark.parametrize("name", WITH_MASKS)
@pytest.mark.parametrize("mask", ["nonsense", "name.nonsense", "name,labels.a,nonsense"])
def test_mask_with_an_unknown_field_is_refused(world: World, name: str, mask: str):
    (api,) = (api for api in APIS if api.name == name)
    for path in with_masks(api):
        code, status, text = world.refusal("PATCH", path, {}, updateMask=mask)
        assert (code, status) == (400, "invalid" if name == "compute" else "INVALID_ARGUMENT"), path
        assert "mask" in text, path


def test_every_api_with_masks_is_among_them():
    assert {api.name for api in APIS if any(with_masks(api))} == set(WITH_MASKS)


def test_mask_in_a_body_is_looked_at_too(world: World):
    accounts = f"iam/v1/projects/{PROJECT}/serviceAccounts"
    email = world.ask("POST", accounts, {"accountId": "account"})["email"]
    change = {"serviceAccount": {"displayName": "new"}}
    assert world.refusal("PATCH", f"{accounts}/{email}", {**change, "updateMask": "nonsense"})[0] == 400
    assert world.ask("PATCH", f"{accounts}/{email}", {**change, "updateMask": "display_name"})["displayName"] == "new"


def test_known_fields_pass_in_both_ways_of_writing(world: World):
    world.ask("POST", BOARDS, {"displayName": "board"})
    world.pass_time(1000)
    [board] = world.ask("GET", BOARDS)["tensorboards"]
    for mask in ("displayName", "display_name"):
        world.ask("PATCH", f"vertex_ai/v1/{board['name']}", {"displayName": mask}, updateMask=mask)
        world.pass_time(1000)
        assert world.ask("GET", f"vertex_ai/v1/{board['name']}")["displayName"] == mask


REPOSITORY = f"artifact_registry/v1/projects/{PROJECT}/locations/us/repositories/images"
DATABASE = f"firestore/v1/projects/{PROJECT}/databases/jobs"


@pytest.fixture
def made(world: World) -> World:
    """Return the world with a repository, a database, and a board with an experiment."""
    world.ask("POST", REPOSITORY.rpartition("/")[0], {"format": "DOCKER", "name": "zzz"}, repositoryId="images")
    database = {"locationId": "nam5", "type": "FIRESTORE_NATIVE", "name": "zzz", "uid": "zzz"}
    world.ask("POST", DATABASE.rpartition("/")[0], database, databaseId="jobs")
    return world


@pytest.mark.parametrize(
    ("path", "field", "value"),
    [
        (REPOSITORY, "format", "MAVEN"),
        (REPOSITORY, "mode", "VIRTUAL_REPOSITORY"),
        (REPOSITORY, "kmsKeyName", "projects/p/locations/us/keyRings/r/cryptoKeys/k"),
        (DATABASE, "locationId", "eur3"),
        (DATABASE, "databaseEdition", "ENTERPRISE"),
    ],
)
def test_field_that_stays_as_it_was_made_cannot_be_changed(made: World, path: str, field: str, value: str):
    before = made.ask("GET", path)
    code, status, text = made.refusal("PATCH", path, {field: value}, updateMask=field)
    assert (code, status) == (400, "INVALID_ARGUMENT")
    assert field in text
    assert made.ask("GET", path) == before


def test_field_that_stays_may_be_sent_as_it_is(made: World):
    made.ask("PATCH", REPOSITORY, {"format": "DOCKER", "description": "new"}, updateMask="format,description")
    assert made.ask("GET", REPOSITORY)["description"] == "new"


@pytest.mark.parametrize(
    ("path", "field"),
    [
        (REPOSITORY, "name"),
        (REPOSITORY, "createTime"),
        (REPOSITORY, "sizeBytes"),
        (DATABASE, "name"),
        (DATABASE, "uid"),
    ],
)
def test_field_that_google_sets_itself_is_passed_over(made: World, path: str, field: str):
    before = made.ask("GET", path)
    made.ask("PATCH", path, {field: "1"}, updateMask=field)
    assert made.ask("GET", path)[field] == before[field] != "zzz"


def test_name_of_a_tensorboard_is_passed_over(world: World):
    world.ask("POST", BOARDS, {"displayName": "board"})
    [board] = world.ask("GET", BOARDS)["tensorboards"]
    world.ask("PATCH", f"vertex_ai/v1/{board['name']}", {"name": "zzz"}, updateMask="name")
    assert world.ask("GET", f"vertex_ai/v1/{board['name']}")["name"] == board["name"]
