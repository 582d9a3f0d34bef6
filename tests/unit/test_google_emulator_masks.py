"""Update masks name fields that there are: others are refused, by every route that has a mask."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tpukit.sandbox.google import APIS
from unit import discovery
from unit.google_world import PROJECT, World

BOARDS = f"vertex_ai/v1/projects/{PROJECT}/locations/us-central1/tensorboards"


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with World(tmp_path) as made:
        yield made


def with_masks() -> Iterator[str]:
    """Paths of all PATCH routes whose method has a mask."""
    for api in APIS:
        for route in api.routes.get("PATCH", []):
            words = re.sub(r"\(\?P<project>[^)]*\)", PROJECT, route.pattern.pattern)
            path = re.sub(r"\(\?P<\w+>[^)]*\)", "x", words).replace("\\", "")
            for version in api.versions:
                found = discovery.documented("PATCH", f"{api.name}/{version}/{path}")
                if found and "updateMask" in found["parameters"]:
                    yield f"{api.name}/{version}/{path}"


@pytest.mark.parametrize("path", list(with_masks()))
@pytest.mark.parametrize("mask", ["nonsense", "name.nonsense", "name,labels.a,nonsense"])
def test_mask_with_an_unknown_field_is_refused(world: World, path: str, mask: str):
    code, status, text = world.refusal("PATCH", path, {}, updateMask=mask)
    assert (code, status) == (400, "invalid" if path.startswith("compute/") else "INVALID_ARGUMENT")
    assert "mask" in text


def test_every_api_with_masks_is_among_them():
    tried = {path.partition("/")[0] for path in with_masks()}
    assert tried == {"artifact_registry", "compute", "firestore", "iam", "monitoring", "tpu", "vertex_ai"}


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
