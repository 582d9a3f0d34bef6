"""Lists are paged with the sizes in Google's documents, and the pages together are the whole list."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from support import discovery
from support.google_world import PROJECT, World
from tpubox.google import APIS
from tpubox.google.wire.api import Api

ZONE = f"tpu/v2/projects/{PROJECT}/locations/us-central2-b"
BOARDS = f"vertex_ai/v1/projects/{PROJECT}/locations/us-central1/tensorboards"
NETWORKS = f"compute/v1/projects/{PROJECT}/global/networks"
ACCOUNTS = f"iam/v1/projects/{PROJECT}/serviceAccounts"
SERVICES = f"service_usage/v1/projects/{PROJECT}/services"


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with World(tmp_path, default_network=False) as made:
        yield made


def pages(world: World, path: str, field: str, size: str = "", **query: str) -> list[list[Any]]:
    parameter = {"maxResults" if path.startswith(("compute", "storage")) else "pageSize": size} if size else {}
    found, token = [], {}
    while True:
        answer = world.ask("GET", path, **query, **parameter, **token)
        found.append(list(answer.get(field, [])))
        if "nextPageToken" not in answer:
            return found
        token = {"pageToken": answer["nextPageToken"]}


def make_networks(world: World, count: int) -> None:
    for number in range(count):
        world.ask("POST", NETWORKS, {"name": f"net-{number}", "autoCreateSubnetworks": False})


@pytest.mark.parametrize(
    ("path", "field"),
    [
        (f"{ZONE}/acceleratorTypes", "acceleratorTypes"),
        (f"{ZONE}/runtimeVersions", "runtimeVersions"),
        (f"tpu/v2/projects/{PROJECT}/locations", "locations"),
        (SERVICES, "services"),
        (f"compute/v1/projects/{PROJECT}/zones", "items"),
        (f"compute/v1/projects/{PROJECT}/regions", "items"),
        (f"compute/v1/projects/{PROJECT}/aggregated/subnetworks", "items"),
    ],
)
def test_pages_of_three_hold_every_thing_once(world: World, path: str, field: str):
    whole = pages(world, path, field)
    assert len(whole) == 1
    parts = pages(world, path, field, "3")
    assert {len(part) for part in parts[:-1]} == {3}
    assert [one for part in parts for one in part] == whole[0]


def test_accounts_come_by_twenty_unless_told_and_by_a_hundred_at_most(world: World):
    for number in range(25):
        world.ask("POST", ACCOUNTS, {"accountId": f"account-{number}"})
    assert [len(part) for part in pages(world, ACCOUNTS, "accounts")] == [20, 5]
    assert [len(part) for part in pages(world, ACCOUNTS, "accounts", "5000")] == [25]


def test_buckets_networks_and_tensorboards_come_in_pages(world: World):
    make_networks(world, 3)
    for number in range(3):
        world.ask("POST", "storage/v1/b", {"name": f"bucket-{number}"}, project=PROJECT)
        world.ask("POST", BOARDS, {"displayName": f"board {number}"})
    assert [len(part) for part in pages(world, NETWORKS, "items", "2")] == [2, 1]
    assert [len(part) for part in pages(world, "storage/v1/b", "items", "2", project=PROJECT)] == [2, 1]
    assert [len(part) for part in pages(world, BOARDS, "tensorboards", "2")] == [2, 1]


def test_token_of_another_list_or_of_nobody_is_refused(world: World):
    make_networks(world, 2)
    token = world.ask("GET", NETWORKS, maxResults="1")["nextPageToken"]
    firewalls = NETWORKS.replace("networks", "firewalls")
    assert world.refusal("GET", firewalls, pageToken=token)[0] == 400
    assert world.refusal("GET", NETWORKS, pageToken="guess")[0] == 400
    assert world.refusal("GET", NETWORKS, maxResults="many")[0] == 400


def test_aggregated_list_has_every_region_with_what_is_there_or_a_warning(world: World):
    world.network()
    items = world.ask("GET", f"compute/v1/projects/{PROJECT}/aggregated/subnetworks")["items"]
    assert [one["name"] for one in items["regions/us-central2"]["subnetworks"]] == ["subnet"]
    assert items["regions/us-east1"]["warning"]["code"] == "NO_RESULTS_ON_PAGE"


def lists(api: Api) -> Iterator[tuple[str, str]]:
    """Yield method and path of every list of an API that Google's documents page, except the list of objects."""
    for method, routes in api.routes.items():
        for route in routes:
            rest = re.sub(r"\{\w+\+?\}", "x", route.path.replace("{project}", PROJECT).replace("{location}", "-"))
            for version in api.versions:
                found = discovery.documented(method, f"{api.name}/{version}/{rest}")
                if found and "pageToken" in found["parameters"] and route.path != "b/{bucket}/o":
                    yield method, f"{api.name}/{version}/{rest}"


def example(path: str, method: str) -> tuple[str, Any]:
    """Return the field with an answer's items, and five valid items."""
    name, version = path.split("/")[:2]
    found = discovery.documented(method, path)
    schemas = (discovery._document(discovery.DOCUMENTS[name], version) or {})["schemas"]
    assert found is not None
    for field, what in schemas[found["response"]["$ref"]]["properties"].items():
        if "$ref" in what.get("items", {}):
            words = schemas[what["items"]["$ref"]]["properties"].items()
            word = next(key for key, one in words if one.get("type") == "string" and not {"enum", "format"} & set(one))
            return field, [{word: str(number)} for number in range(5)]
        if field == "items" and "additionalProperties" in what:
            return field, {f"regions/{number}": {} for number in range(5)}
    raise AssertionError(f"{path} lists nothing")


@pytest.mark.parametrize("api", [api for api in APIS if api.name in discovery.DOCUMENTS], ids=lambda api: api.name)
def test_every_list_comes_in_pages(world: World, monkeypatch: pytest.MonkeyPatch, api: Api):
    for method, path in lists(api):
        with monkeypatch.context() as patched:
            comes_in_pages(world, patched, api, method, path)


def comes_in_pages(world: World, monkeypatch: pytest.MonkeyPatch, api: Api, method: str, path: str) -> None:
    name, version = path.split("/")[:2]
    field, things = example(path, method)
    route, _ = api.find(method, path.removeprefix(f"{name}/{version}/")) or (None, None)
    assert route is not None
    answering = replace(route, handler=lambda cloud, call: {field: things}, lists=None)
    monkeypatch.setitem(api.routes, method, [answering])
    found: list[Any] = []
    token: dict[str, str] = {}
    size = "maxResults" if "maxResults" in (discovery.documented(method, path) or {})["parameters"] else "pageSize"
    while True:
        answer = world.ask(method, path, **{size: "2"}, **token)
        assert len(answer[field]) <= 2
        found += answer[field]
        if "nextPageToken" not in answer:
            break
        token = {"pageToken": answer["nextPageToken"]}
    assert found == list(things)
    assert world.refusal(method, path, pageToken="guess")[0] == 400
    assert world.refusal(method, path, **{size: "-1"})[0] == 400


def test_objects_and_prefixes_count_alike_on_a_page(world: World):
    world.ask("POST", "storage/v1/b", {"name": "bucket"}, project=PROJECT)
    for name in ("a/1", "a/2", "b", "c/1", "d"):
        world.ask("POST", "upload/storage/v1/b/bucket/o", b"", uploadType="media", name=name)
    found, token = [], {}
    for _ in range(2):
        answer = world.ask("GET", "storage/v1/b/bucket/o", delimiter="/", maxResults="2", **token)
        found.append((answer.get("prefixes", []), [one["name"] for one in answer["items"]]))
        token = {"pageToken": answer.get("nextPageToken", "")}
    assert found == [(["a/"], ["b"]), (["c/"], ["d"])]
    assert token == {"pageToken": ""}
    assert world.refusal("GET", "storage/v1/b/bucket/o", pageToken="guess")[0] == 400
