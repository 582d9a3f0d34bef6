"""Firewall rules of the emulator: defaults, refusals, and changes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.google_world import PROJECT, World

RULES = f"compute/v1/projects/{PROJECT}/global/firewalls"
NETWORK = f"projects/{PROJECT}/global/networks/net"
TCP = [{"IPProtocol": "tcp", "ports": ["22", "8000-9000"]}]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with World(tmp_path, default_network=False) as made:
        made.network()
        yield made


def rule(**fields: Any) -> dict[str, Any]:
    asked = {"name": "rule", "network": NETWORK, "allowed": TCP, **fields}
    return {name: value for name, value in asked.items() if value is not None}


def shown(world: World) -> Any:
    return world.ask("GET", f"{RULES}/rule")


def test_firewall_of_which_little_is_said_shows_what_google_chose(world):
    world.ask("POST", RULES, rule())
    chosen = {"priority": 1000, "direction": "INGRESS", "sourceRanges": ["0.0.0.0/0"], "disabled": False}
    told = shown(world)
    assert {name: told[name] for name in chosen} == chosen
    assert told["logConfig"] == {"enable": False}
    assert "destinationRanges" not in told


@pytest.mark.parametrize(
    ("said", "source", "destination"),
    [
        ({"sourceRanges": []}, ["0.0.0.0/0"], None),
        ({"sourceTags": ["a"]}, None, None),
        ({"sourceServiceAccounts": ["a@b"]}, None, None),
        ({"sourceRanges": ["10.0.0.0/8"]}, ["10.0.0.0/8"], None),
        ({"direction": "EGRESS"}, None, ["0.0.0.0/0"]),
        ({"direction": "EGRESS", "destinationRanges": ["10.0.0.0/8"]}, None, ["10.0.0.0/8"]),
    ],
)
def test_firewall_is_for_everybody_only_where_nothing_else_is_said(world, said, source, destination):
    world.ask("POST", RULES, rule(**said))
    assert (shown(world).get("sourceRanges"), shown(world).get("destinationRanges")) == (source, destination)


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"allowed": None}, "Exactly one of allowed and denied"),
        ({"allowed": []}, "Exactly one of allowed and denied"),
        ({"denied": TCP}, "Exactly one of allowed and denied"),
        ({"sourceRanges": ["banana"]}, "'resource.sourceRanges[0]': 'banana'"),
        ({"sourceRanges": ["10.0.0.0/8", "10.0.0.1/24"]}, "'resource.sourceRanges[1]': '10.0.0.1/24'"),
        ({"direction": "EGRESS", "destinationRanges": ["banana"]}, "'resource.destinationRanges[0]'"),
        ({"allowed": [{"IPProtocol": "banana"}]}, "'resource.allowed[0].IPProtocol': 'banana'"),
        ({"allowed": [{"IPProtocol": "256"}]}, "'resource.allowed[0].IPProtocol': '256'"),
        ({"allowed": [{"ports": ["1"]}]}, "Required field 'resource.allowed[0].IPProtocol' not specified"),
        ({"allowed": None, "denied": [{"IPProtocol": "banana"}]}, "'resource.denied[0].IPProtocol'"),
        ({"allowed": [{"IPProtocol": "tcp", "ports": ["banana"]}]}, "'resource.allowed[0].ports[0]': 'banana'"),
        ({"allowed": [{"IPProtocol": "tcp", "ports": ["1", "9-2"]}]}, "'resource.allowed[0].ports[1]': '9-2'"),
        ({"allowed": [{"IPProtocol": "tcp", "ports": ["65536"]}]}, "'resource.allowed[0].ports[0]': '65536'"),
        ({"priority": 99999999}, "'resource.priority': '99999999'"),
        ({"priority": -1}, "'resource.priority': '-1'"),
    ],
)
def test_firewall_that_google_would_not_take_is_refused(world, said, words):
    status, _, text = world.refusal("POST", RULES, rule(**said))
    assert status == 400
    assert words in text
    assert world.refusal("GET", f"{RULES}/rule")[0] == 404


@pytest.mark.parametrize(
    "said",
    [
        {"allowed": None, "denied": [{"IPProtocol": "all"}]},
        {"allowed": [{"IPProtocol": "TCP"}, {"IPProtocol": "58"}, {"IPProtocol": "icmp"}]},
        {"sourceRanges": ["fd00::/8", "10.0.0.1", "10.0.0.1/32"]},
        {"priority": 0},
        {"priority": 65535},
    ],
)
def test_firewall_at_the_edge_of_what_google_takes_is_made(world, said):
    world.ask("POST", RULES, rule(**said))
    assert shown(world)


def test_firewall_without_a_network_is_in_the_one_that_is_called_default(world):
    assert world.refusal("POST", RULES, rule(network=None))[0] == 404
    compute = f"compute/v1/projects/{PROJECT}"
    world.ask("POST", f"{compute}/global/networks", {"name": "default", "autoCreateSubnetworks": False})
    world.ask("POST", RULES, rule(network=None))
    assert shown(world)["network"].endswith(f"projects/{PROJECT}/global/networks/default")


def test_firewall_updated_loses_what_the_update_does_not_say(world):
    world.ask("POST", RULES, rule(targetTags=["a"], priority=7, sourceRanges=["10.0.0.0/8"]))
    before = shown(world)
    world.ask("PUT", f"{RULES}/rule", rule(description="new"))
    told = shown(world)
    assert "targetTags" not in told
    assert (told["priority"], told["sourceRanges"], told["description"]) == (1000, ["0.0.0.0/0"], "new")
    assert all(told[name] == before[name] for name in ("id", "name", "selfLink", "creationTimestamp", "network"))


def test_firewall_patched_keeps_what_the_patch_does_not_say(world):
    world.ask("POST", RULES, rule(targetTags=["a"], priority=7))
    world.ask("PATCH", f"{RULES}/rule", {"description": "new"})
    told = shown(world)
    assert (told["targetTags"], told["priority"], told["description"]) == (["a"], 7, "new")


@pytest.mark.parametrize(
    ("method", "said", "words"),
    [
        ("PATCH", {"name": "other"}, "'resource.name'"),
        ("PATCH", {"direction": "EGRESS"}, "'resource.direction'"),
        ("PATCH", {"network": f"projects/{PROJECT}/global/networks/other"}, "'resource.network'"),
        ("PATCH", {"denied": TCP}, "Exactly one of"),
        ("PATCH", {"sourceRanges": ["banana"]}, "banana"),
        ("PUT", {"name": "rule", "network": NETWORK}, "Exactly one of"),
        ("PUT", {"name": "other", "network": NETWORK, "allowed": TCP}, "'resource.name'"),
    ],
)
def test_firewall_changed_into_what_google_would_not_take_is_refused(world, method, said, words):
    world.ask("POST", RULES, rule())
    before = shown(world)
    status, _, text = world.refusal(method, f"{RULES}/rule", said)
    assert (status, words in text) == (400, True)
    assert shown(world) == before


def test_firewall_patched_as_terraform_does_with_all_it_knows_is_changed(world):
    world.ask("POST", RULES, rule())
    link = f"https://www.googleapis.com/compute/v1/{NETWORK}"
    world.ask("PATCH", f"{RULES}/rule", rule(network=link, allowed=[], denied=TCP, direction="INGRESS"))
    assert (shown(world)["denied"], shown(world)["network"]) == (TCP, link)
