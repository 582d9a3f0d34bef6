"""GKE's node pools through Google's own client, against the emulator."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import requests
from google.api_core.exceptions import from_http_response

from support.google_world import PROJECT, World
from support.waiting import until
from tpubox.google.wire.faults import Fault
from tpubox.google.wire.server import Emulator
from tpubox.google.wire.settings import EVERY_API, Settings
from tpukit import catalogue
from tpukit.core import fence
from tpukit.core.errors import Conflict, Denied, Invalid, LeaseLost, NoCapacity, NotFound, Transient, Unauthenticated
from tpukit.google import clients, gke
from tpukit.google.refusals import translated
from tpukit.provisioner import pool_names, pools
from tpukit.provisioner.needs import Choice, Need
from tpukit.provisioner.settings import DEFAULTS, Capacity

LOCATION, CLUSTER, ZONE = "us-central2", "one", "us-central2-b"
SHAPE = catalogue.find("v4-16")
NEED = Need("train-0123456789ab", "research", "train", "uid-1", "train-slice-0", "pod", "uid-2", 1000.0, "", ())


@pytest.fixture
def emulator(tmp_path):
    with World(tmp_path) as world:
        cluster = world.cluster().removesuffix("/nodePools")
        identity = {"desiredWorkloadIdentityConfig": {"workloadPool": f"{PROJECT}.svc.id.goog"}}
        world.ask("PUT", cluster, {"update": identity})
        world.ask("POST", f"iam/v1/projects/{PROJECT}/serviceAccounts", {"accountId": "tpu-nodes"})
    with Emulator(tmp_path, Settings(enabled=EVERY_API)) as running:
        yield running


@pytest.fixture
def client(emulator, monkeypatch):
    for name, value in emulator.environment().items():
        monkeypatch.setenv(name, value)
    return gke.Client(PROJECT, LOCATION, CLUSTER)


def body(**changes) -> dict:
    choice = Choice(SHAPE, 2, ZONE, changes.pop("capacity", Capacity("on-demand")))
    return {**pools.body(NEED.pool, replace(NEED, **changes), choice, 0, 2000.0)}


def test_gke_pool_that_is_made_is_listed_with_its_owner_and_shape(client):
    made = client.create_pool(body())
    assert (made.kind, made.target) == ("CREATE_NODE_POOL", NEED.pool)
    (pool,) = until(lambda: [one for one in client.pools() if one.status == "RUNNING"])
    assert pools.owner(pool) == pools.Owner("research", "train", "uid-1", "train-slice-0", 2000.0, 1000.0)
    choice = Choice(SHAPE, 2, ZONE, Capacity("on-demand"))
    assert pools.fits(pool, replace(NEED, choices=(choice,)))
    spot = replace(NEED, choices=(replace(choice, capacity=Capacity("spot")),))
    assert pools.fits(pool, spot)
    assert not pools.fits(pool, replace(spot, selects_capacity=True))
    assert not pools.fits(pool, replace(NEED, choices=(replace(choice, zone="us-central2-c"),), selects_zone=True))
    (operation,) = [one for one in client.operations() if one.target == NEED.pool]
    assert operation.done and not operation.error and operation.ended >= operation.started > 0


def test_gke_spot_pool_reads_as_spot(client, emulator):
    client.create_pool(body(capacity=Capacity("spot"), tolerated=(("cloud.google.com/gke-spot", "true"),)))
    (pool,) = client.pools()
    assert pool.spot
    assert pool.taints == (("cloud.google.com/gke-spot", "true", "NO_SCHEDULE"),)


def test_gke_pool_with_every_option_is_taken(client, emulator):
    options = replace(
        DEFAULTS,
        node_service_account=f"tpu-nodes@{PROJECT}.iam.gserviceaccount.com",
        secondary_boot_disk=f"projects/{PROJECT}/global/images/preloaded",
        network_tags=("tpu",),
        disk_kms_key=f"projects/{PROJECT}/locations/us-central2/keyRings/r/cryptoKeys/k",
    )
    client.create_pool(body(options=options, labels={"team": "research"}))
    (doc,) = emulator.cloud.state.all("pool").values()
    assert doc["config"]["secondaryBootDisks"][0]["mode"] == "CONTAINER_IMAGE_CACHE"
    assert doc["config"]["gcfsConfig"] == {"enabled": True}
    assert doc["config"]["bootDiskKmsKey"] == options.disk_kms_key
    assert doc["management"] == {"autoRepair": True, "autoUpgrade": False}
    assert doc["config"]["labels"][pool_names.MANAGED_BY] == "tpukit"


def test_gke_stock_out_is_an_operation_that_is_done_with_an_error_and_a_pool_in_error(client, emulator):
    emulator.cloud.faults.set(Fault("stockout"))
    client.create_pool(body())
    (pool,) = until(lambda: [one for one in client.pools() if one.status == "ERROR"])
    assert "GCE_STOCKOUT" in pool.message
    assert any("GCE_STOCKOUT" in one.error for one in client.operations() if one.target == NEED.pool)


def test_gke_refusals_are_errors_by_what_to_do_next(client, emulator):
    client.create_pool(body())
    with pytest.raises(Conflict):
        client.create_pool(body())
    with pytest.raises(NotFound):
        client.delete_pool("nothing", {})
    with pytest.raises(Invalid):
        client.create_pool({**body(), "name": "UPPER"})
    with pytest.raises(Invalid):
        client.create_pool({**body(), "noSuchField": 1})
    emulator.cloud.faults.set(Fault("quota"))
    with pytest.raises(NoCapacity):
        client.create_pool({**body(), "name": "another"})
    for status, error in ((429, Transient), (503, Transient), (403, Denied)):
        emulator.cloud.faults.set(Fault("refuse", match="DELETE", status=status, name="refusal"))
        with pytest.raises(error):
            client.delete_pool(NEED.pool, {})


def test_gke_that_does_not_answer_is_transient(client, emulator, monkeypatch):
    monkeypatch.setenv(gke.ENDPOINT, "http://127.0.0.1:1/container/v1/")
    with pytest.raises(Transient, match="got no response"):
        gke.Client(PROJECT, LOCATION, CLUSTER).pools()


def test_gke_wrong_token_is_unauthenticated(client, monkeypatch):
    monkeypatch.setenv(clients.TOKEN, "wrong")
    with pytest.raises(Unauthenticated):
        gke.Client(PROJECT, LOCATION, CLUSTER).pools()


def test_gke_emulator_without_a_token_is_refused_before_anything_is_sent(monkeypatch, client):
    monkeypatch.delenv(clients.TOKEN)
    with pytest.raises(Denied):
        gke.Client(PROJECT, LOCATION, CLUSTER)


@pytest.mark.parametrize(
    ("code", "message", "expected"),
    [
        (400, "Cluster is running incompatible operation operation-1.", Transient),
        (400, "Operation operation-1 is currently upgrading cluster c. Please wait and try again.", Transient),
        (
            429,
            'Too many operations: cluster "c" hits the concurrent operations quota 5, please try again later.',
            Transient,
        ),
        (429, "Quota limit 'TPUV6EPreemptiblePerProjectPerRegionForTPUAPI' has been exceeded.", NoCapacity),
        (403, 'Insufficient regional quota to satisfy request: resource "TPUS"', NoCapacity),
        (403, "Permission container.clusters.update denied", Denied),
        (500, "Internal", Transient),
    ],
)
def test_gke_refusal_of_google_in_its_own_words(code, message, expected):
    error = type("Refused", (Exception,), {"code": code, "message": message})()
    assert type(translated(error, "create")) is expected


def test_gke_calls_of_a_driver_that_lost_its_lease_are_not_sent(client, emulator):
    def lost():
        raise LeaseLost("another driver owns it")

    with fence.held(lost), pytest.raises(LeaseLost):
        client.create_pool(body())
    client.create_pool(body())
    with fence.held(lost), pytest.raises(LeaseLost):
        client.delete_pool(NEED.pool, {})
    assert [one["method"] for one in emulator.cloud.requests(agent="python-requests") if one["method"] != "GET"] == [
        "POST"
    ]


def test_gke_delete_of_a_pool_that_was_recreated_since_is_a_conflict(client, emulator):
    client.create_pool(body())
    (pool,) = until(lambda: [one for one in client.pools() if one.status == "RUNNING"])
    older = {**pool.labels, pool_names.CREATED: "1999"}
    with pytest.raises(Conflict, match="another node pool"):
        client.delete_pool(NEED.pool, older)
    assert [one.status for one in client.pools()] == ["RUNNING"]
    assert client.delete_pool(NEED.pool, pool.labels).kind == "DELETE_NODE_POOL"


def test_gke_delete_that_fails_is_sent_once(client, emulator):
    """Google's client retries deletes by itself, without a lease check in between."""
    client.create_pool(body())
    emulator.cloud.faults.set(Fault("refuse", match="DELETE", status=503, name="refusal"))
    with pytest.raises(Transient):
        client.delete_pool(NEED.pool, {})
    assert len(emulator.cloud.requests(agent="python-requests", method="DELETE")) == 1


@pytest.mark.parametrize(("word", "expected"), [("FAILED_PRECONDITION", Transient), ("INVALID_ARGUMENT", Invalid)])
def test_gke_failed_precondition_passes_by_itself_whatever_its_words(client, monkeypatch, word, expected):
    """The request is right but the moment is not, for example while the control plane is resized."""
    response = requests.Response()
    response.status_code, response.request = 400, requests.Request("POST", "https://gke.example").prepare()
    answer = {"error": {"code": 400, "message": "The control plane of c is unavailable.", "status": word}}
    response._content = json.dumps(answer).encode()

    def refused(*words, **named):
        raise from_http_response(response)

    monkeypatch.setattr(client._client, "create_node_pool", refused)
    with pytest.raises(expected):
        client.create_pool(body())


def test_gke_create_whose_answer_was_lost_was_done_and_asking_again_says_so(client, emulator):
    emulator.cloud.faults.set(Fault("lost", match="POST .*nodePools", times=1))
    with pytest.raises(Transient, match="got no response"):
        client.create_pool(body())
    assert [one.name for one in client.pools()] == [NEED.pool]
    with pytest.raises(Conflict):
        client.create_pool(body())


def test_gke_client_is_known_by_its_agent_in_the_record_of_calls(client, emulator):
    client.pools()
    client.operations()
    asked = [one["path"].rpartition("/")[2] for one in emulator.cloud.requests(agent="python-requests", method="GET")]
    assert asked == ["nodePools", "operations"]
