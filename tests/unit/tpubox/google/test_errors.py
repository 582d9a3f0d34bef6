"""Errors have the shape of their API, so that clients of both shapes can parse them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from google.api_core import exceptions

from support.google_world import PROJECT, World
from tpukit.core.errors import NotFound
from tpukit.google import refusals


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with World(tmp_path) as made:
        yield made


@pytest.mark.parametrize(
    "path", ["storage/v1/b/none", f"compute/v1/projects/{PROJECT}/global/networks/none", "storage/v1/b/none/o/x"]
)
def test_compute_engine_and_cloud_storage_give_reasons(world: World, path: str):
    status, answer = world.send("GET", path)
    message = answer["error"]["message"]
    inner = {"message": message, "domain": "global", "reason": "notFound"}
    assert (status, answer) == (404, {"error": {"code": 404, "message": message, "errors": [inner]}})


@pytest.mark.parametrize(
    "path",
    [
        f"tpu/v2/projects/{PROJECT}/locations/us-central2-b/nodes/none",
        f"monitoring/v3/projects/{PROJECT}/alertPolicies/none",
    ],
)
def test_others_give_a_word(world: World, path: str):
    status, answer = world.send("GET", path)
    message = answer["error"]["message"]
    assert (status, answer) == (404, {"error": {"code": 404, "message": message, "status": "NOT_FOUND"}})


@pytest.mark.parametrize(
    "path",
    [
        f"container/v1/projects/{PROJECT}/locations/us-central2/clusters/none",
        f"iam/v1/projects/{PROJECT}/serviceAccounts/none",
    ],
)
def test_gke_and_iam_give_a_word_and_reasons(world: World, path: str):
    status, answer = world.send("GET", path)
    message = answer["error"]["message"]
    inner = {"message": message, "domain": "global", "reason": "notFound"}
    error = {"code": 404, "message": message, "errors": [inner], "status": "NOT_FOUND"}
    assert (status, answer) == (404, {"error": error})


@pytest.mark.parametrize("path", ["storage/v1/b/none", f"iam/v1/projects/{PROJECT}/serviceAccounts/none"])
def test_googles_client_and_tpukit_read_both(world: World, path: str):
    status, answer = world.send("GET", path)
    request = SimpleNamespace(method="GET", url=path)
    response = SimpleNamespace(status_code=status, json=lambda: answer, request=request, headers={})
    error = exceptions.from_http_response(response)
    assert isinstance(error, exceptions.NotFound)
    found = refusals.translated(error, "asked")
    assert isinstance(found, NotFound)
    assert answer["error"]["message"] in str(found)
