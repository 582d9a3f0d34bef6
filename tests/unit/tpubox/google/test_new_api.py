"""A new API is named once, in its `Api`, and everything that README.md promises of it follows."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from importlib import resources
from pathlib import Path

import pytest

from support import discovery
from support.google_world import PROJECT, World
from support.waiting import PATIENCE
from tpubox.google import APIS
from tpubox.google.wire import request_fields, request_parameters
from tpubox.google.wire.api import Api, Call
from tpubox.google.wire.cloud import Cloud
from tpubox.google.wire.server import Emulator
from tpubox.google.wire.settings import Settings
from tpubox.google.wire.state import Doc
from unit.tpubox.google.test_routes import routes

TOPICS = "projects/{project}/topics"
READER = f"serviceAccount:reader@{PROJECT}.iam.gserviceaccount.com"


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch) -> Api:
    """Register Pub/Sub, which has a Google document and is not in the sandbox."""
    api = Api(
        "pubsub", service="pubsub.googleapis.com", document="pubsub", title="Cloud Pub/Sub API", permissions="pubsub"
    )

    @api.on("GET", TOPICS)
    def _listed(cloud: Cloud, call: Call) -> Doc:
        return {"topics": [{"name": f"projects/{call['project']}/topics/news"}]}

    @api.on("PUT", TOPICS + "/{topic}", body="Topic")
    def _create(cloud: Cloud, call: Call) -> Doc:
        return call.body

    monkeypatch.setitem(discovery.DOCUMENTS, api.name, api.document)
    return api


@pytest.fixture
def world(toy: Api, tmp_path: Path) -> Iterator[World]:
    with World(tmp_path, apis=(*APIS, toy), enabled=("serviceusage",)) as made:
        yield made


def test_new_api_is_served_where_the_variables_of_its_clients_lead(toy: Api, tmp_path: Path):
    with Emulator(tmp_path, Settings(enabled=("pubsub",)), apis=(*APIS, toy)) as google:
        told = google.environment()
        assert told["CLOUDSDK_API_ENDPOINT_OVERRIDES_PUBSUB"] == f"{google.address}/pubsub/"
        endpoint = told["GOOGLE_PUBSUB_CUSTOM_ENDPOINT"]
        shown = {"Authorization": f"Bearer {google.token}"}
        asked = urllib.request.Request(f"{endpoint}projects/{PROJECT}/topics", headers=shown)
        with urllib.request.urlopen(asked, timeout=PATIENCE) as answer:
            assert json.loads(answer.read()) == {"topics": [{"name": f"projects/{PROJECT}/topics/news"}]}


def test_new_api_is_off_until_a_project_enables_it(world: World):
    topics = f"pubsub/v1/projects/{PROJECT}/topics"
    assert "Cloud Pub/Sub API has not been used in project" in world.refusal("GET", topics)[2]
    world.ask("POST", f"service_usage/v1/projects/{PROJECT}/services/pubsub.googleapis.com:enable")
    assert world.ask("GET", topics)["topics"]


def test_new_api_asks_for_its_permissions(world: World):
    world.ask("POST", f"service_usage/v1/projects/{PROJECT}/services/pubsub.googleapis.com:enable")
    code, _, text = world.refusal("GET", f"pubsub/v1/projects/{PROJECT}/topics", principal=READER)
    assert code == 403
    assert "pubsub.topics.list" in text


def test_new_api_is_in_the_table_of_routes(toy: Api):
    assert dict(routes([toy])) == {
        "GET /pubsub/v1/projects/{project}/topics": "pubsub v1: `pubsub.projects.topics.list`",
        "PUT /pubsub/v1/projects/{project}/topics/{topic}": "pubsub v1: `pubsub.projects.topics.create`",
    }


def test_new_apis_messages_and_parameters_are_read_from_its_document(toy: Api, tmp_path: Path):
    file = tmp_path / "pubsub" / "v1" / "pubsub-api.json"
    file.parent.mkdir(parents=True)
    carried = resources.files("googleapiclient.discovery_cache.documents").joinpath("pubsub.v1.json")
    file.write_bytes(carried.read_bytes())
    assert request_fields.gather(tmp_path, [toy])["pubsub"]["Topic"]["name"] == "string"
    lists = request_parameters.gather(tmp_path, [toy])["pubsub"]["v1"][f"GET {TOPICS}"]
    assert lists == ["pageSize", "pageToken"]
