"""Google's API client (google-api-python-client), built from discovery documents, against the emulator.

Also GKE's own client in a network that the API client created.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from google.api_core import exceptions
from google.api_core.client_options import ClientOptions
from google.cloud import container_v1
from google.oauth2.credentials import Credentials
from googleapiclient.discovery import build
from googleapiclient.errors import HttpError

from support.waiting import until
from tpubox.google.wire.server import Emulator
from tpubox.google.wire.settings import EVERY_API, Hooks, Log, Settings

PROJECT = "tpu-project"
PARENT = f"projects/{PROJECT}"
REGION = "us-central2"
LOCATION = f"{PARENT}/locations/{REGION}"
VERTEX = f"{PARENT}/locations/us-central1"  # not in every region


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("pods") / "log"
    file.write_text("".join(f"2026-01-31T12:00:0{at}.000000000Z stdout F step {at}\n" for at in range(5)))
    return file


@pytest.fixture(scope="module")
def google(tmp_path_factory: pytest.TempPathFactory, printed: Path) -> Iterator[Emulator]:
    log = Log("research", "train-0", "main", "run-0", {"team": "a"}, "gke-one-tpu-0000", "us-central2-b", (printed,))
    # An answer shows an operation as of its writing, so operations that a test must see in progress take longer.
    seconds = {"": 1.0, "CREATE_CLUSTER": 5.0}
    settings = Settings(enabled=EVERY_API, seconds=seconds, arrival_seconds=0.0)
    with Emulator(tmp_path_factory.mktemp("google"), settings, hooks=Hooks(logs=lambda: [log])) as emulator:
        yield emulator


@pytest.fixture
def made(google: Emulator) -> Iterator[Any]:
    """Yield a factory of API clients: made(name, version, the path of the API in the emulator, the token)."""
    clients = []

    def make(name: str, version: str, path: str, token: str = "") -> Any:
        options = ClientOptions(api_endpoint=f"{google.address}/{path}/")
        shown = Credentials(token=token or google.token)
        clients.append(build(name, version, credentials=shown, client_options=options, static_discovery=True))
        return clients[-1]

    yield make
    for client in clients:
        client.close()


def status(refused: pytest.ExceptionInfo[HttpError]) -> int:
    return int(refused.value.resp.status)


def test_gke_cluster_and_pool_are_made_changed_and_deleted_by_operations_that_are_waited_for(google, made):
    compute = made("compute", "v1", "compute/v1")
    network = {"name": "net", "autoCreateSubnetworks": False}
    operation = compute.networks().insert(project=PROJECT, body=network).execute()
    waited = compute.globalOperations().wait(project=PROJECT, operation=operation["name"])
    until(lambda: waited.execute()["status"] == "DONE", "the network")
    subnet = {"name": "subnet", "network": f"{PARENT}/global/networks/net", "ipCidrRange": "10.0.0.0/20"}
    subnet |= {"secondaryIpRanges": [{"rangeName": "pods", "ipCidrRange": "10.64.0.0/14"}]}
    operation = compute.subnetworks().insert(project=PROJECT, region=REGION, body=subnet).execute()
    waiting = compute.regionOperations().wait(project=PROJECT, region=REGION, operation=operation["name"])
    until(lambda: waiting.execute()["status"] == "DONE", "the subnet")

    clusters = container_v1.ClusterManagerClient(
        transport="rest",
        credentials=Credentials(token=google.token),
        client_options=ClientOptions(api_endpoint=f"{google.address}/container"),
    )
    done = container_v1.Operation.Status.DONE

    def wait(operation: container_v1.Operation) -> None:
        name = f"{LOCATION}/operations/{operation.name}"
        until(lambda: clusters.get_operation(name=name).status is done, operation.operation_type.name)

    wanted = container_v1.Cluster(
        name="one",
        locations=["us-central2-b"],
        network=f"{PARENT}/global/networks/net",
        subnetwork=f"{PARENT}/regions/{REGION}/subnetworks/subnet",
        ip_allocation_policy={"use_ip_aliases": True, "cluster_secondary_range_name": "pods"},
        initial_node_count=1,
    )
    cluster = f"{LOCATION}/clusters/one"
    operation = clusters.create_cluster(parent=LOCATION, cluster=wanted)
    assert operation.status is container_v1.Operation.Status.RUNNING
    with pytest.raises(exceptions.Conflict):
        clusters.create_cluster(parent=LOCATION, cluster=wanted)
    wait(operation)
    assert clusters.get_cluster(name=cluster).status is container_v1.Cluster.Status.RUNNING

    pool = container_v1.NodePool(
        name="tpu",
        initial_node_count=4,
        placement_policy={"type_": "COMPACT", "tpu_topology": "2x2x4"},
        config={"machine_type": "ct4p-hightpu-4t", "disk_type": "pd-balanced"},
    )
    wait(clusters.create_node_pool(parent=cluster, node_pool=pool))
    management = {"auto_repair": True, "auto_upgrade": True}
    wait(clusters.set_node_pool_management({"name": f"{cluster}/nodePools/tpu", "management": management}))
    found = clusters.get_node_pool(name=f"{cluster}/nodePools/tpu")
    assert (found.status, found.management.auto_repair) == (container_v1.NodePool.Status.RUNNING, True)
    labels = container_v1.SetLabelsRequest(name=cluster, resource_labels={"team": "a"})
    wait(clusters.set_labels(labels))
    assert dict(clusters.get_cluster(name=cluster).resource_labels) == {"team": "a"}

    wait(clusters.delete_node_pool(name=f"{cluster}/nodePools/tpu"))
    assert [one.name for one in clusters.list_node_pools(parent=cluster).node_pools] == ["default-pool"]
    wait(clusters.delete_cluster(name=cluster))
    assert not clusters.list_clusters(parent=f"{PARENT}/locations/-").clusters
    types = [one.operation_type.name for one in clusters.list_operations(parent=LOCATION).operations]
    assert (types[0], types[-1]) == ("CREATE_CLUSTER", "DELETE_CLUSTER")


def test_tensorboard_is_made_written_to_read_and_deleted(made):
    boards = made("aiplatform", "v1", "vertex_ai").projects().locations().tensorboards()
    operations = made("aiplatform", "v1", "vertex_ai").projects().locations().operations()

    def wait(operation: Any) -> Any:
        until(lambda: operations.get(name=operation["name"]).execute().get("done"), "the operation")
        ended = operations.get(name=operation["name"]).execute()
        assert "error" not in ended
        return ended["response"]

    made_board = wait(boards.create(parent=VERTEX, body={"displayName": "runs", "labels": {"team": "a"}}).execute())
    name = made_board["name"]
    wait(boards.patch(name=name, updateMask="displayName", body={"displayName": "trainings"}).execute())
    assert boards.get(name=name).execute()["displayName"] == "trainings"
    assert [one["name"] for one in boards.list(parent=VERTEX).execute()["tensorboards"]] == [name]

    experiments = boards.experiments()
    experiment = experiments.create(parent=name, tensorboardExperimentId="one", body={}).execute()["name"]
    run = (
        experiments.runs().create(parent=experiment, tensorboardRunId="r", body={"displayName": "r"}).execute()["name"]
    )
    series = experiments.runs().timeSeries()
    body = {"displayName": "loss", "valueType": "SCALAR"}
    loss = series.create(parent=run, body=body).execute()["name"]
    values = [
        {"step": str(step), "wallTime": f"2026-01-31T12:00:0{step}Z", "scalar": {"value": 1 / step}} for step in (1, 2)
    ]
    data = [{"tensorboardTimeSeriesId": loss.rpartition("/")[2], "valueType": "SCALAR", "values": values}]
    experiments.runs().write(tensorboardRun=run, body={"tensorboardRun": run, "timeSeriesData": data}).execute()
    read = series.read(tensorboardTimeSeries=loss).execute()["timeSeriesData"]["values"]
    assert [one["scalar"]["value"] for one in read] == [1.0, 0.5]

    wait(boards.delete(name=name).execute())
    with pytest.raises(HttpError) as refused:
        boards.get(name=name).execute()
    assert status(refused) == 404


def test_log_entries_are_listed_page_by_page_as_the_client_goes_on(made):
    entries = made("logging", "v2", "logging").entries()
    asked = {"resourceNames": [PARENT], "filter": 'resource.type="k8s_container" AND textPayload:"step"', "pageSize": 2}
    texts, request = [], entries.list(body={**asked, "orderBy": "timestamp desc"})
    while request is not None:
        answer = request.execute()
        texts += [one["textPayload"] for one in answer.get("entries", [])]
        request = entries.list_next(request, answer)
    assert texts == [f"step {at}" for at in (4, 3, 2, 1, 0)]
    with pytest.raises(HttpError) as refused:
        entries.list(body={**asked, "filter": "resource.type="}).execute()
    assert status(refused) == 400


def test_service_account_gets_a_role_by_the_policy_of_another_and_has_its_permissions_alone(google, made):
    projects = made("iam", "v1", "iam").projects()
    accounts = projects.serviceAccounts()
    emails = {}
    for name in ("trainer", "target"):
        account = accounts.create(name=PARENT, body={"accountId": f"{name}-1", "serviceAccount": {}}).execute()
        emails[name] = account["email"]
    with pytest.raises(HttpError) as refused:
        accounts.create(name=PARENT, body={"accountId": "trainer-1"}).execute()
    assert status(refused) == 409
    target = f"{PARENT}/serviceAccounts/{emails['target']}"
    patch = {"serviceAccount": {"displayName": "Target"}, "updateMask": "displayName"}
    assert accounts.patch(name=target, body=patch).execute()["displayName"] == "Target"
    listed, request = [], accounts.list(name=PARENT, pageSize=1)
    while request is not None:
        answer = request.execute()
        listed += [one["email"] for one in answer["accounts"]]
        request = accounts.list_next(request, answer)
    assert sorted(listed) == sorted(emails.values())

    permissions = ["iam.serviceAccounts.get", "iam.serviceAccounts.delete"]
    role = {"title": "Looks", "includedPermissions": permissions[:1], "stage": "GA"}
    named = projects.roles().create(parent=PARENT, body={"roleId": "looks", "role": role}).execute()["name"]
    assert projects.roles().get(name=named).execute()["includedPermissions"] == permissions[:1]

    policy = accounts.getIamPolicy(resource=target).execute()
    policy["bindings"] = [{"role": named, "members": [f"serviceAccount:{emails['trainer']}"]}]
    accounts.setIamPolicy(resource=target, body={"policy": policy}).execute()
    with pytest.raises(HttpError) as refused:  # changed meanwhile: the etag is outdated
        accounts.setIamPolicy(resource=target, body={"policy": policy}).execute()
    assert status(refused) == 409

    trainer = made("iam", "v1", "iam", google.token_of(emails["trainer"])).projects().serviceAccounts()
    held = trainer.testIamPermissions(resource=target, body={"permissions": permissions}).execute()
    assert held == {"permissions": permissions[:1]}
    assert trainer.get(name=target).execute()["email"] == emails["target"]
    with pytest.raises(HttpError) as refused:
        trainer.delete(name=target).execute()
    assert status(refused) == 403

    projects.roles().delete(name=named).execute()
    assert projects.roles().get(name=named).execute()["deleted"] is True
    for email in emails.values():
        accounts.delete(name=f"{PARENT}/serviceAccounts/{email}").execute()
    with pytest.raises(HttpError) as refused:
        accounts.get(name=target).execute()
    assert status(refused) == 404
