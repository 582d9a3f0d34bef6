"""Lists are in the requested order, and an unknown order is refused."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from support import discovery
from support.google_world import PROJECT, World
from tpubox.google.wire import list_order
from tpubox.google.wire.filter_fields import Field
from unit.tpubox.google.test_routes import routes

NETWORKS = f"compute/v1/projects/{PROJECT}/global/networks"
BOARDS = f"vertex_ai/v1/projects/{PROJECT}/locations/us-central1/tensorboards"
POLICIES = f"monitoring/v3/projects/{PROJECT}/alertPolicies"
TYPES = f"tpu/v2/projects/{PROJECT}/locations/us-central2-b/acceleratorTypes"


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with World(tmp_path, default_network=False) as made:
        yield made


def names(world: World, path: str, order: str, field: str = "items", by: str = "name") -> list[str]:
    return [one[by].rpartition("/")[2] for one in world.ask("GET", path, orderBy=order)[field]]


def test_networks_come_by_name_or_the_newest_first(world: World):
    for name in ("b-net", "c-net", "a-net"):
        world.ask("POST", NETWORKS, {"name": name, "autoCreateSubnetworks": False})
        world.pass_time(60)
    assert names(world, NETWORKS, "name") == ["a-net", "b-net", "c-net"]
    assert names(world, NETWORKS, "creationTimestamp desc") == ["a-net", "c-net", "b-net"]


@pytest.mark.parametrize("order", ["creationTimestamp", "name desc", "id", "name,id", " "])
def test_order_that_compute_engine_does_not_know_is_refused(world: World, order: str):
    status, word, text = world.refusal("GET", NETWORKS, orderBy=order)
    assert (status, word) == (400, "invalid")
    assert f"'{order}'" in text


def test_aggregated_list_is_sorted_in_each_place(world: World):
    world.network()
    for number, name in enumerate(("b", "c", "a")):
        network = {"network": f"projects/{PROJECT}/global/networks/net", "ipCidrRange": f"10.{10 + number}.0.0/20"}
        world.ask("POST", f"compute/v1/projects/{PROJECT}/regions/us-central2/subnetworks", {"name": name, **network})
        world.pass_time(60)
    asked = f"compute/v1/projects/{PROJECT}/aggregated/subnetworks"
    for order, found in {"name": "a b c subnet", "creationTimestamp desc": "a c b subnet"}.items():
        there = world.ask("GET", asked, orderBy=order)["items"]["regions/us-central2"]["subnetworks"]
        assert [one["name"] for one in there] == found.split()


@pytest.mark.parametrize(
    ("order", "found"),
    [
        ("display_name", "a b c"),
        ("displayName desc", "c b a"),
        ("create_time desc", "c a b"),
        ("create_time asc, display_name", "b a c"),
        ("labels.team, display_name", "b a c"),
        ("labels.team desc, display_name desc", "c a b"),
    ],
)
def test_tensorboards_come_in_the_order_of_their_fields(world: World, order: str, found: str):
    for name, labels in (("b", {}), ("a", {"team": "x"}), ("c", {"team": "y"})):
        world.ask("POST", BOARDS, {"displayName": name, "labels": labels})
        world.pass_time(60)
    assert names(world, BOARDS, order, "tensorboards", "displayName") == found.split()


def test_numbers_come_by_size_and_not_by_their_letters():
    by = [
        list_order.Key(Field(("size",), kind, many=False, keyed=False), falling=False) for kind in ("int64", "string")
    ]
    things = {"items": [{"size": size} for size in ("9", "10", "-1")]}  # an int64 is a string in JSON
    found = [[one["size"] for one in list_order.ordered(things, [key])["items"]] for key in by]
    assert found == [["-1", "9", "10"], ["-1", "10", "9"]]


def test_alert_policies_are_sorted_with_a_minus(world: World):
    for name in ("b", "a", "c"):
        query = {"query": "up == 0", "duration": "60s", "disableMetricValidation": True}
        conditions = [{"displayName": "c", "conditionPrometheusQueryLanguage": query}]
        world.ask("POST", POLICIES, {"displayName": name, "combiner": "OR", "conditions": conditions})
    by = ("alertPolicies", "displayName")
    assert names(world, POLICIES, "display_name", *by) == ["a", "b", "c"]
    assert names(world, POLICIES, "enabled,-display_name", *by) == ["c", "b", "a"]
    assert world.refusal("GET", POLICIES, orderBy="display_name desc")[0] == 400


def test_pages_keep_the_order_and_belong_to_it(world: World):
    whole = names(world, TYPES, "type desc", "acceleratorTypes")
    assert len(whole) > 2
    first = world.ask("GET", TYPES, orderBy="type desc", pageSize="2")
    rest = world.ask("GET", TYPES, orderBy="type desc", pageToken=first["nextPageToken"])
    assert [one["name"].rpartition("/")[2] for one in first["acceleratorTypes"] + rest["acceleratorTypes"]] == whole
    assert world.refusal("GET", TYPES, orderBy="type", pageToken=first["nextPageToken"])[0] == 400


def test_nonsense_is_refused_by_every_list_that_google_orders(world: World):
    asked = []
    for route, _ in routes():
        method, _, path = route.partition(" /")
        path = re.sub(r"\{\w+\}", "x", path.replace("{project}", PROJECT).replace("{location}", "-"))
        if path.partition("/")[0] in discovery.DOCUMENTS:
            found = discovery.documented(method, path) or {}
            if "orderBy" in found.get("parameters", {}):
                asked.append((method, path))
    assert len(asked) > 15
    assert {one: said for one in asked if (said := world.send(*one, orderBy="nowhere desc"))[0] != 400} == {}


def test_order_of_a_list_that_has_none_is_refused(world: World):
    path = f"container/v1/projects/{PROJECT}/locations/us-central2/clusters"
    assert world.refusal("GET", path, orderBy="name")[:2] == (400, "INVALID_ARGUMENT")
