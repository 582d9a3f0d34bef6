"""Unknown body fields and query parameters are refused or ignored as by Google, and never stored."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from support import discovery
from support.google_world import PROJECT, World
from tpubox.google import APIS
from tpubox.google.wire import query_parameters
from tpubox.google.wire.api import Api

BUCKET = "storage/v1/b/bucket"
LAX = ("compute", "storage")


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with World(tmp_path) as made:
        yield made


STRICT = [api for api in APIS if api.name in discovery.DOCUMENTS and api.name not in LAX]


def documented(api: Api) -> Iterator[tuple[str, str]]:
    """Yield method and path of every documented route of an API."""
    for method, routes in api.routes.items():
        for route in routes:
            rest = re.sub(r"\{\w+\+?\}", "x", route.path.replace("{project}", PROJECT))
            for version in api.versions:
                path = f"{api.name}/{version}/{rest}"
                if discovery.documented(method, path):
                    yield method, path


@pytest.mark.parametrize("api", STRICT, ids=lambda api: api.name)
def test_unknown_parameter_of_a_query_is_refused(world: World, api: Api):
    every = list(documented(api))
    assert every
    for method, path in every:
        code, status, text = world.refusal(method, path, nonsense="1")
        assert (code, status) == (400, "INVALID_ARGUMENT"), path
        assert text.startswith('Invalid JSON payload received. Unknown name "nonsense": Cannot bind query parameter.')


def test_parameters_are_those_of_the_documents():
    """The documents of the tests and those behind the file may differ in date, but share most."""
    table = json.loads(Path(query_parameters.__file__).with_name("parameters.json").read_text())
    for api, versions in table.items():
        for version, routes in versions.items():
            for route, names in routes.items():
                method, path = route.split(" ")
                rest = re.sub(r"\{\w+\+?\}", "x", path)
                found = discovery.documented(method, f"{api}/{version}/{rest}")
                assert found, f"{api} {version} {route}"
                known = {name for name, one in found.get("parameters", {}).items() if one["location"] == "query"}
                assert known <= set(names), f"{api} {version} {route}"


@pytest.mark.parametrize("name", ["alt", "$alt", "fields", "key", "prettyPrint", "quotaUser", "$.xgafv", "userProject"])
def test_parameters_of_every_api_are_taken(world: World, name: str):
    world.ask("GET", f"tpu/v2/projects/{PROJECT}/locations", **{name: "json"})


def test_parameters_are_taken_in_both_ways_of_writing(world: World):
    locations = f"tpu/v2/projects/{PROJECT}/locations"
    assert len(world.ask("GET", locations, page_size="2")["locations"]) == 2


def test_compute_engine_and_cloud_storage_pass_over_unknown_parameters(world: World):
    world.ask("GET", f"compute/v1/projects/{PROJECT}/zones", nonsense="1")
    world.ask("GET", "storage/v1/b", project=PROJECT, nonsense="1")


def test_cloud_storage_keeps_no_unknown_field(world: World):
    sent = {"name": "bucket", "nonsense": 1, "versioning": {"enabled": True, "nonsense": 1}}
    world.ask("POST", "storage/v1/b", sent, project=PROJECT)
    world.ask("PATCH", BUCKET, {"nonsense": 2, "labels": {"a": "b"}})
    bucket = world.ask("GET", BUCKET)
    assert "nonsense" not in bucket
    assert bucket["versioning"] == {"enabled": True}
    assert bucket["labels"] == {"a": "b"}
    upload = "upload/storage/v1/b/bucket/o"
    world.ask("POST", upload, b"content", uploadType="media", name="one")
    parts = b'--x\r\n\r\n{"name": "two", "nonsense": 1}\r\n--x\r\n\r\ncontent\r\n--x--'
    kind = {"content-type": "multipart/related; boundary=x"}
    assert world.send("POST", upload, parts, headers=kind, uploadType="multipart")[0] == 200
    world.ask("PATCH", f"{BUCKET}/o/one", {"nonsense": 1, "metadata": {"a": "b"}})
    world.ask("POST", f"{BUCKET}/o/one/copyTo/b/bucket/o/three", {"nonsense": 1})
    for name in ("one", "two", "three"):
        assert "nonsense" not in world.ask("GET", f"{BUCKET}/o/{name}")


@pytest.mark.parametrize(
    ("path", "named"),
    [
        (f"tpu/v2/projects/{PROJECT}/locations/us-central2-b/nodes/x:getGuestAttributes", "queryPath"),
        (f"tpu/v2alpha1/projects/{PROJECT}/locations/us-central2-b/nodes/x:performMaintenance", ""),
        (f"tpu/v2alpha1/projects/{PROJECT}/locations/us-central2-b/nodes/x:simulateMaintenanceEvent", ""),
        (f"iam_credentials/v1/projects/{PROJECT}/serviceAccounts/x:generateAccessToken", "lifetime"),
        ("oslogin/v1/users/x:importSshPublicKey", "key"),
    ],
)
def test_others_refuse_unknown_fields(world: World, path: str, named: str):
    body = {"nonsense": "1", **({named: "1"} if named else {})}
    code, _, text = world.refusal("POST", path, body)
    assert code == 400
    assert 'Unknown name "nonsense": Cannot find field.' in text


def test_fields_are_taken_in_both_ways_of_writing_and_told_in_one(world: World):
    """Map keys are the sender's own: https://protobuf.dev/programming-guides/json."""
    nodes = f"tpu/v2/projects/{PROJECT}/locations/us-central2-b/nodes"
    node = {
        "accelerator_type": "v4-8",
        "runtime_version": "tpu-ubuntu2204-base",
        "network_config": {"enable_external_ips": True},
        "data_disks": [{"source_disk": f"projects/{PROJECT}/zones/us-central2-b/disks/d", "mode": "READ_ONLY"}],
        "labels": {"my_label": "my_value"},
        "metadata": {"startup_script": "a_b"},
    }
    world.ask("POST", nodes, node, nodeId="vm")
    made = world.ask("GET", f"{nodes}/vm")
    assert (made["acceleratorType"], made["runtimeVersion"]) == ("v4-8", "tpu-ubuntu2204-base")
    assert made["networkConfig"]["enableExternalIps"] is True
    assert made["dataDisks"][0]["sourceDisk"].endswith("/d")
    assert (made["labels"], made["metadata"]) == ({"my_label": "my_value"}, {"startup_script": "a_b"})
    assert not [name for name in made if "_" in name]


def test_field_that_exists_in_neither_way_of_writing_is_named_as_it_was_sent(world: World):
    nodes = f"tpu/v2/projects/{PROJECT}/locations/us-central2-b/nodes"
    assert (
        'Unknown name "accelerator_tipe"' in world.refusal("POST", nodes, {"accelerator_tipe": "v4-8"}, nodeId="vm")[2]
    )


def test_compute_engine_and_cloud_storage_know_one_way_of_writing(world: World):
    world.ask("POST", "storage/v1/b", {"name": "bucket", "storage_class": "NEARLINE"}, project=PROJECT)
    assert world.ask("GET", BUCKET)["storageClass"] == "STANDARD"


def test_no_route_takes_a_body_unseen():
    unseen = [
        (api.name, one.path) for api in APIS for routes in api.routes.values() for one in routes if one.body == ""
    ]
    assert unseen == []
