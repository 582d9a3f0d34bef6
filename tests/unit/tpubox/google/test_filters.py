"""Filters of lists: each list applies its filter and refuses one that it cannot parse."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support import discovery
from support.google_world import PROJECT, World, pool
from tpubox.google.artifacts import repositories as artifact_registry
from tpubox.google.wire import list_filter, routing
from tpubox.google.wire.refusal import Refused
from unit.tpubox.google.test_routes import routes

COMPUTE = f"compute/v1/projects/{PROJECT}"
NETWORKS, ZONES = f"{COMPUTE}/global/networks", f"{COMPUTE}/zones"
TPU = f"tpu/v2/projects/{PROJECT}/locations"
REPOSITORIES = f"artifact_registry/v1/projects/{PROJECT}/locations/us-central1/repositories"
FULL = REPOSITORIES.removeprefix("artifact_registry/v1/")
BOARDS = f"vertex_ai/v1/projects/{PROJECT}/locations/us-central1/tensorboards"
BY = ("alertPolicies", "displayName")
POLICIES = f"monitoring/v3/projects/{PROJECT}/alertPolicies"
SERVICES = f"service_usage/v1/projects/{PROJECT}/services"


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with World(tmp_path, default_network=False) as made:
        yield made


def names(world: World, path: str, filter_: str, field: str = "items", by: str = "name") -> list[str]:
    return [one[by].rpartition("/")[2] for one in world.ask("GET", path, filter=filter_).get(field, [])]


def every_route() -> Iterator[tuple[str, str, set[str]]]:
    """Yield method and path of each route, and its filter parameters according to Google's documents."""
    for route, _ in routes():
        method, _, path = route.partition(" /")
        asked = re.sub(r"\{\w+\}", "x", path.replace("{project}", PROJECT).replace("{location}", "-"))
        if asked.partition("/")[0] in discovery.DOCUMENTS:
            found = discovery.documented(method, asked) or {}
            yield method, asked, {"filter", "query"} & found.get("parameters", {}).keys()


def test_routes_say_that_they_list_where_google_takes_a_filter(world: World):
    for method, path, parameters in every_route():
        api, rest = routing.api_of(world.cloud, path)
        found = api.find(method, rest)
        assert found
        assert (found[0].lists is not None) == bool(parameters), f"{method} {path}"


@pytest.mark.parametrize("nonsense", ["((", "name = ", 'nowhere = "x"', "name ~~ x"])
def test_filter_that_says_nothing_is_refused_by_every_list_that_has_one(world: World, nonsense: str):
    said = {
        f"{method} {path}": world.send(method, path, **dict.fromkeys(parameters, nonsense))
        for method, path, parameters in every_route()
        if parameters
    }
    assert len(said) > 25
    assert {asked: answer for asked, (status, answer) in said.items() if status != 400} == {}


@pytest.mark.parametrize(
    "path",
    [
        f"{TPU}/us-central2-b/nodes",
        f"iam/v1/projects/{PROJECT}/serviceAccounts",
        f"container/v1/projects/{PROJECT}/locations/us-central2/clusters",
        f"{REPOSITORIES}/images/dockerImages",
    ],
)
def test_filter_of_a_list_that_has_none_is_refused(world: World, path: str):
    assert world.refusal("GET", path, filter="name:x")[:2] == (400, "INVALID_ARGUMENT")


@pytest.fixture
def networks(world: World) -> World:
    first = {"autoCreateSubnetworks": False, "mtu": 1460, "routingConfig": {"routingMode": "GLOBAL"}}
    world.ask("POST", NETWORKS, {"name": "first-net", **first, "description": "one of two"})
    world.pass_time(60)
    world.ask("POST", NETWORKS, {"name": "second-net", "autoCreateSubnetworks": True, "mtu": 8896})
    return world


@pytest.mark.parametrize(
    ("filter_", "found"),
    [
        ("name = first-net", "first"),
        ('name="first-net"', "first"),
        ("name = 'first-net'", "first"),
        ("name != first-net", "second"),
        ("name = first*", "first"),
        ("name = *-net", "first second"),
        ("name = first", ""),
        ("name:first-net", "first"),
        ('description = "one of two"', "first"),
        ("description:*", "first"),
        ("NOT description:*", "second"),
        ("-description:*", "second"),
        ("-(description:*)", "second"),
        ("routingConfig.routingMode = GLOBAL", "first"),
        ("routing_config.routing_mode = GLOBAL", "first"),
        ("routingConfig:routingMode", "first second"),
        ("autoCreateSubnetworks = true", "second"),
        ("autoCreateSubnetworks != true", "first"),
        ("enableUlaInternalIpv6 = false", "first second"),
        ("mtu > 1460", "second"),
        ("mtu >= 1460 AND mtu < 8896", "first"),
        ("(mtu = 1460) (autoCreateSubnetworks = false)", "first"),
        ("(mtu = 1460) OR (mtu = 8896)", "first second"),
        ("mtu = (1460 OR 1500)", "first"),
        # OR binds before AND, unlike in most languages.
        ("name = second-net AND mtu = 1460 OR mtu = 8896", "second"),
        ('creationTimestamp > "2000-01-01T00:00:00+01:00"', "first second"),
        ('creationTimestamp < "2000-01-01"', ""),
        ("name eq first-net", "first"),
        ("name eq first", ""),
        ("name eq .*-net", "first second"),
        ("name ne .*d-net", "first"),
        ("name eq 'first.*'", "first"),
        ('name eq ".*\\bfirst\\-net\\b.*"', "first"),
        ('(name eq ".*(^first).*")(selfLink eq ".*(/first-net$).*")', "first"),
        ('((name eq ".*net") (mtu eq 1460)) (autoCreateSubnetworks eq false)', "first"),
        ("(selfLink eq https://www.googleapis.com/compute/v1/.*/(first|third)-net)", "first"),
        ("routingConfig.routingMode eq GLOBAL", "first"),
        ("description eq .+", "first"),
        ("enableUlaInternalIpv6 eq false", "first second"),
    ],
)
def test_filter_of_compute_engine_chooses(networks: World, filter_: str, found: str):
    assert names(networks, NETWORKS, filter_) == [f"{name}-net" for name in found.split()]


@pytest.mark.parametrize(
    "filter_",
    [
        "first-net",
        "colour = red",
        "labels.team = x",
        "name.first = x",
        "routingConfig = GLOBAL",
        "routingConfig.routingMode = LOCAL",
        "routingConfig.routingMode > GLOBAL",
        "autoCreateSubnetworks = maybe",
        "autoCreateSubnetworks > false",
        "mtu = large",
        "subnetworks = x",
        "peerings.name = x",
        "peerings[0].name = x",
        'creationTimestamp > "yesterday"',
        "name = a AND",
        "name = a) OR (name = b",
        "name =~ a",
        "name ~ a",
        "name eq *first*",
        "name eq (?=first).*",
        "name eq first-net AND mtu eq 1460",
        "(name eq first-net) AND (mtu eq 1460)",
        "(name eq first-net) (mtu = 1460)",
        "(name eq first-net) mtu eq 1460",
        "(name eq first-net",
        "colour eq red",
        "subnetworks eq x",
        "routingConfig eq x",
        'name eq "first" net',
        "(" * 500 + "name eq x" + ")" * 500,
        "(" * 500 + "name = x" + ")" * 500,
    ],
)
def test_filter_of_compute_engine_that_is_wrong_is_refused_in_its_words(networks: World, filter_: str):
    status, word, text = networks.refusal("GET", NETWORKS, filter=filter_)
    assert (status, word) == (400, "invalid")
    assert text == f"Invalid value for field 'filter': '{filter_}'. Invalid list filter expression."


def test_long_numbers_are_compared_to_the_last_digit(networks: World):
    numbers = [one["id"] for one in networks.ask("GET", NETWORKS)["items"]]
    assert names(networks, NETWORKS, f"id = {numbers[0]}") == ["first-net"]
    assert names(networks, NETWORKS, f"id > {numbers[0]}") == ["second-net"]


def test_zones_are_chosen_by_region_as_the_terraform_provider_asks(world: World):
    region = f"https://www.googleapis.com/compute/v1/projects/{PROJECT}/regions/us-central2"
    assert names(world, ZONES, f"(region eq {region}) (status eq UP)") == ["us-central2-b"]
    assert names(world, f"{COMPUTE}/regions", "name = us-central2") == ["us-central2"]


def test_pages_are_of_what_the_filter_leaves(world: World):
    zones = names(world, ZONES, "name = us-*")
    assert len(zones) > 2
    first = world.ask("GET", ZONES, filter="name = us-*", maxResults="2")
    rest = world.ask("GET", ZONES, filter="name = us-*", pageToken=first["nextPageToken"])
    assert [one["name"] for one in first["items"] + rest["items"]] == zones
    assert world.refusal("GET", ZONES, filter="name = eu*", pageToken=first["nextPageToken"])[0] == 400


def test_aggregated_list_has_a_warning_where_the_filter_leaves_nothing(world: World):
    world.network()
    subnetworks = f"{COMPUTE}/aggregated/subnetworks"
    found = world.ask("GET", subnetworks, filter="secondaryIpRanges.rangeName:pods")["items"]
    assert [one["name"] for one in found["regions/us-central2"]["subnetworks"]] == ["subnet"]
    none = world.ask("GET", subnetworks, filter="name = other")["items"]
    assert none.keys() == found.keys()
    assert {one["warning"]["code"] for one in none.values()} == {"NO_RESULTS_ON_PAGE"}


def test_groups_and_their_instances_are_chosen(world: World):
    pools = world.cluster()
    world.ask("POST", pools, pool())
    zone = f"{COMPUTE}/zones/us-central2-b"
    (name,) = names(world, f"{zone}/instanceGroups", "size = 4")
    assert names(world, f"{zone}/instanceGroupManagers", "targetSize = 4 AND status.isStable = true") == [name]
    assert names(world, f"{zone}/instanceGroupManagers", "targetSize > 4") == []
    listed = f"{zone}/instanceGroupManagers/{name}/listManagedInstances"
    assert len(world.ask("POST", listed, filter="instanceStatus = RUNNING")["managedInstances"]) == 4
    assert world.ask("POST", listed, filter="instanceStatus = STOPPED")["managedInstances"] == []


@pytest.mark.parametrize(
    ("filter_", "found"),
    [
        (f'name="{FULL}/images"', "images"),
        (f'name="{FULL}/IMAGES"', "images"),
        (f'name="{FULL}/im*"', "images"),
        (f'name="{FULL}/*es*"', "images wheels-es"),
        (f'name="{FULL}/none"', ""),
    ],
)
def test_repositories_are_chosen_by_name_whatever_its_case(world: World, filter_: str, found: str):
    for name in ("images", "wheels-es"):
        world.ask("POST", REPOSITORIES, {"format": "DOCKER", "labels": {"a": "b"}}, repositoryId=name)
    assert names(world, REPOSITORIES, filter_, "repositories") == found.split()
    assert world.refusal("GET", REPOSITORIES, filter="labels.a = b")[0] == 400


def test_tags_are_chosen_by_name_and_by_version(world: World):
    world.ask("POST", REPOSITORIES, {"format": "DOCKER"}, repositoryId="images")
    for tag, digest in (("1", "sha256:aa"), ("2", "sha256:bb")):
        artifact_registry.push(world.cloud, f"{FULL}/images", "train", tag, digest)
    tags, package = f"{REPOSITORIES}/images/packages/train/tags", f"{FULL}/images/packages/train"
    assert names(world, tags, f'name="{package}/tags/1"', "tags") == ["1"]
    assert names(world, tags, f'version="{package}/versions/sha256:bb"', "tags") == ["2"]
    assert names(world, tags, f'name="{package}/tags/3"', "tags") == []


@pytest.mark.parametrize(
    ("filter_", "found"),
    [
        ('display_name="one"', "one"),
        ('displayName = "one"', "one"),
        ('display_name:"o*"', "one"),
        ("labels.team = research", "one"),
        ("labels.team:*", "one two"),
        ("labels:spare", "two"),
        ('labels."team" != research', "two three"),
        ("NOT labels.team = research", "two three"),
        ("labels.team:* AND display_name != one", "two"),
        ('create_time > "2000-01-01T00:00:00Z" -labels:team', "three"),
        ("isDefault = true", ""),
    ],
)
def test_tensorboards_are_chosen_by_name_and_label(world: World, filter_: str, found: str):
    for name, labels in (("one", {"team": "research"}), ("two", {"team": "ops", "spare": ""}), ("three", {})):
        world.ask("POST", BOARDS, {"displayName": name, "labels": labels})
    assert names(world, BOARDS, filter_, "tensorboards", "displayName") == found.split()


@pytest.mark.parametrize("filter_", ['title = "one"', 'display_name = "open', "labels = x", 'starts_with("x")'])
def test_filter_of_tensorboards_that_is_wrong_is_refused(world: World, filter_: str):
    assert world.refusal("GET", BOARDS, filter=filter_)[:2] == (400, "INVALID_ARGUMENT")


def test_what_is_in_a_tensorboard_is_chosen(world: World):
    board = f"vertex_ai/v1/{world.ask('POST', BOARDS, {'displayName': 'b'})['response']['name']}"
    for name in ("one", "two"):
        labels = {"labels": {"kind": name}}
        world.ask("POST", f"{board}/experiments", {"displayName": name, **labels}, tensorboardExperimentId=name)
        world.ask("POST", f"{board}/experiments/one/runs", {"displayName": name}, tensorboardRunId=name)
    assert names(world, f"{board}/experiments", "labels.kind = one", "tensorboardExperiments") == ["one"]
    assert names(world, f"{board}/experiments/one/runs", 'display_name = "two"', "tensorboardRuns") == ["two"]


def test_policies_are_chosen_and_counted(world: World):
    query = {"query": "up == 0", "duration": "60s", "disableMetricValidation": True}
    condition = {"displayName": "c", "conditionPrometheusQueryLanguage": query}
    for name, team in (("one", "research"), ("two", "ops")):
        wanted = {"displayName": name, "combiner": "OR", "conditions": [condition], "userLabels": {"team": team}}
        world.ask("POST", POLICIES, wanted)
    assert world.ask("GET", POLICIES)["totalSize"] == 2
    chosen = world.ask("GET", POLICIES, filter="user_labels.team = ops")
    assert ([one["displayName"] for one in chosen["alertPolicies"]], chosen["totalSize"]) == (["two"], 1)
    assert names(world, POLICIES, 'display_name = "one" AND enabled = true', "alertPolicies", "displayName") == ["one"]
    assert names(world, POLICIES, "conditions.display_name:c", "alertPolicies", "displayName") == ["one", "two"]
    assert names(world, POLICIES, 'display_name = "three"', "alertPolicies") == []
    for called, found in (
        ('display_name = starts_with("o")', ["one"]),
        ('display_name = ends_with("o")', ["two"]),
        ('display_name != has_substring("w")', ["one"]),
        (
            'display_name = has_substring("o") AND user_labels.team = ops',
            names(world, POLICIES, "user_labels.team = ops", *BY),
        ),
        ('display_name = monitoring.regex.full_match("t.*|three")', ["two"]),
    ):
        assert names(world, POLICIES, called, *BY) == found, called
    for wrong in (
        'display_name > starts_with("o")',
        'enabled = starts_with("t")',
        "display_name = starts_with(o)",
        'display_name = like("o")',
        'display_name = monitoring.regex.full_match("(")',
    ):
        assert world.refusal("GET", POLICIES, filter=wrong)[0] == 400, wrong


def test_what_cloud_tpu_has_is_chosen(world: World):
    zone = f"{TPU}/us-central2-b"
    assert names(world, TPU, "locationId = us-central2-b", "locations") == ["us-central2-b"]
    assert names(world, f"{zone}/acceleratorTypes", "type = v4-8", "acceleratorTypes") == ["v4-8"]
    assert "v4-8" in names(world, f"{zone}/acceleratorTypes", "accelerator_configs.type:V4", "acceleratorTypes")
    assert names(world, f"{zone}/acceleratorTypes", "accelerator_configs.type:V6E", "acceleratorTypes") == []
    versions = names(world, f"{zone}/runtimeVersions", "version:v2-alpha*", "runtimeVersions")
    assert versions == ["v2-alpha-tpuv5", "v2-alpha-tpuv5-lite", "v2-alpha-tpuv6e"]


@pytest.mark.parametrize(
    ("filter_", "count"),
    [
        ("done = true", 1),
        ("done = false", 0),
        ("metadata.verb = create", 1),
        ("metadata.verb = delete", 0),
        ('metadata.createTime > "2000-01-01"', 1),
        ('metadata.create_time < "2000-01-01"', 0),
        ("metadata.target:*", 1),
        ("error:*", 0),
    ],
)
def test_operations_are_chosen(world: World, filter_: str, count: int):
    world.network()
    network = {"network": "net", "subnetwork": "subnet"}
    node = {"acceleratorType": "v4-8", "runtimeVersion": "tpu-ubuntu2204-base", "networkConfig": network}
    world.ask("POST", f"{TPU}/us-central2-b/nodes", node, nodeId="vm")
    world.pass_time(3600)
    found: list[Any] = world.ask("GET", f"{TPU}/us-central2-b/operations", filter=filter_)["operations"]
    assert len(found) == count


def test_services_are_chosen_by_state_alone(tmp_path: Path):
    with World(tmp_path, enabled=("serviceusage", "compute")) as world:
        on, off = (names(world, SERVICES, f"state:{state}", "services") for state in ("ENABLED", "DISABLED"))
        assert on == ["compute.googleapis.com", "serviceusage.googleapis.com"]
        assert "tpu.googleapis.com" in off
        for wrong in ("ENABLED", "state:ON", "state=ENABLED", "state:ENABLED AND state:DISABLED"):
            assert world.refusal("GET", SERVICES, filter=wrong)[:2] == (400, "INVALID_ARGUMENT")


@given(
    st.text(alphabet="ab =\"'()-:\\.*ANDORTnamemtu14eq<>!~\n", max_size=40),
    st.sampled_from(["", "name eq ", "(mtu = "]),
)
@settings(max_examples=300, deadline=None)
def test_any_text_is_a_filter_or_refused(text: str, beginning: str):
    try:
        list_filter.parse("compute", "Network", beginning + text).holds({"name": "a", "mtu": 1})
    except Refused as refused:
        assert refused.code == 400
