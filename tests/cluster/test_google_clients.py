"""Google's own Python clients against the emulator, with operations that take time."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

import pytest
from google.api_core import exceptions
from google.api_core.client_options import ClientOptions
from google.cloud import (
    artifactregistry_v1,
    common,  # noqa: F401 (operations of TPUs carry a message of it, which their client does not import)
    container_v1,
    resourcemanager_v3,
    service_usage_v1,
    storage,
    tpu_v2,
)
from google.iam.v1 import iam_policy_pb2
from google.oauth2.credentials import Credentials
from google.protobuf.field_mask_pb2 import FieldMask

from support.waiting import PATIENCE, until
from tpubox.google.compute import stock_and_quota
from tpubox.google.wire.server import Emulator
from tpubox.google.wire.settings import EVERY_API, Settings

PROJECT = "tpu-project"
ZONE = f"projects/{PROJECT}/locations/us-central2-b"
REGION = f"projects/{PROJECT}/locations/us-central2"


@pytest.fixture(scope="module")
def google(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Emulator]:
    settings = Settings(enabled=EVERY_API, seconds={"": 1.0})
    with Emulator(tmp_path_factory.mktemp("google"), settings) as emulator:
        yield emulator


def client(google: Emulator, kind: Any, prefix: str) -> Any:
    options = ClientOptions(api_endpoint=f"{google.address}/{prefix}")
    return kind(transport="rest", credentials=Credentials(token=google.token), client_options=options)


@pytest.fixture
def buckets(google: Emulator) -> storage.Client:
    options = ClientOptions(api_endpoint=google.address)
    return storage.Client(PROJECT, credentials=Credentials(token=google.token), client_options=options)


def test_storage_versioned_bucket_lists_what_was_replaced_and_goes_by_force_alone(buckets):
    bucket = buckets.bucket("versioned")
    bucket.versioning_enabled = True
    bucket.create()
    blob = bucket.blob("checkpoint")
    blob.upload_from_string("old")
    blob.upload_from_string("new")
    bucket.delete_blob("checkpoint")
    assert list(bucket.list_blobs()) == []
    assert len(list(bucket.list_blobs(versions=True))) == 2
    with pytest.raises(exceptions.Conflict):
        bucket.delete()
    bucket.delete(force=True)
    assert not buckets.bucket("versioned").exists()


def test_storage_large_object_is_uploaded_in_pieces_composed_and_read_in_part(buckets):
    bucket = buckets.create_bucket("pieces")
    content = bytes(range(256)) * 4096
    blob = bucket.blob("large", chunk_size=256 << 10)
    blob.upload_from_file(io.BytesIO(content), size=len(content))
    assert blob.download_as_bytes(start=1000, end=1999) == content[1000:2000]
    both = bucket.blob("both")
    both.compose([blob, blob])
    assert (both.md5_hash, both.component_count) == (None, 2)
    assert both.download_as_bytes(checksum="crc32c") == content * 2


def test_tpu_vm_is_made_labelled_and_deleted_by_operations_that_are_waited_for(google):
    vms = client(google, tpu_v2.TpuClient, "tpu")
    node = tpu_v2.Node(accelerator_type="v4-8", runtime_version="tpu-ubuntu2204-base", labels={"team": "a", "job": "b"})
    made = vms.create_node(parent=ZONE, node=node, node_id="one").result(timeout=PATIENCE)
    assert (made.state, made.name) == (tpu_v2.Node.State.READY, f"{ZONE}/nodes/one")
    changed = tpu_v2.Node(name=made.name, labels={"team": "a"})
    vms.update_node(node=changed, update_mask=FieldMask(paths=["labels"])).result(timeout=PATIENCE)
    assert dict(vms.get_node(name=made.name).labels) == {"team": "a"}
    vms.delete_node(name=made.name).result(timeout=PATIENCE)
    with pytest.raises(exceptions.NotFound):
        vms.get_node(name=made.name)


def test_tpu_vm_without_capacity_raises_what_the_client_calls_exhausted(google):
    stock_and_quota.limit_stock(google.cloud, "us-central2-b", "v4", 0)
    try:
        node = tpu_v2.Node(accelerator_type="v4-8", runtime_version="tpu-ubuntu2204-base")
        operation = client(google, tpu_v2.TpuClient, "tpu").create_node(parent=ZONE, node=node, node_id="none")
        with pytest.raises(exceptions.ResourceExhausted):
            operation.result(timeout=PATIENCE)
    finally:
        stock_and_quota.limit_stock(google.cloud, "us-central2-b", "v4", 1000)


def test_gke_operations_are_listed_for_all_locations(google):
    clusters = client(google, container_v1.ClusterManagerClient, "container")
    assert list(clusters.list_operations(parent=f"projects/{PROJECT}/locations/-").operations) == []
    with pytest.raises(exceptions.NotFound):
        clusters.get_cluster(name=f"{REGION}/clusters/none")


def test_artifact_registry_repository_is_made_changed_and_deleted(google):
    registry = client(google, artifactregistry_v1.ArtifactRegistryClient, "artifact_registry")
    repository = artifactregistry_v1.Repository(format_="DOCKER", labels={"a": "1", "b": "2"})
    made = registry.create_repository(parent=REGION, repository=repository, repository_id="images").result(
        timeout=PATIENCE
    )
    assert made.name == f"{REGION}/repositories/images"
    changed = artifactregistry_v1.Repository(name=made.name, labels={"a": "1"})
    registry.update_repository(repository=changed, update_mask=FieldMask(paths=["labels"]))
    assert dict(registry.get_repository(name=made.name).labels) == {"a": "1"}
    registry.delete_repository(name=made.name).result(timeout=PATIENCE)
    assert list(registry.list_repositories(parent=REGION)) == []


def test_services_are_enabled_and_disabled_each_with_its_own_answer(google):
    usage = client(google, service_usage_v1.ServiceUsageClient, "service_usage")
    name = f"projects/{PROJECT}/services/tpu.googleapis.com"
    disabled = usage.disable_service({"name": name}).result(timeout=PATIENCE)
    assert disabled.service.state is service_usage_v1.State.DISABLED
    enabled = usage.enable_service({"name": name}).result(timeout=PATIENCE)
    assert enabled.service.state is service_usage_v1.State.ENABLED
    batch = {"parent": f"projects/{PROJECT}", "service_ids": ["tpu.googleapis.com", "container.googleapis.com"]}
    assert len(usage.batch_enable_services(batch).result(timeout=PATIENCE).services) == 2
    until(lambda: usage.get_service({"name": name}).state is service_usage_v1.State.ENABLED, "the API to be on")


def test_project_is_shown_with_its_number_and_its_policy_changes_by_etag(google):
    projects = client(google, resourcemanager_v3.ProjectsClient, "resource_manager")
    shown = projects.get_project(name=f"projects/{PROJECT}")
    assert (shown.project_id, shown.state) == (PROJECT, resourcemanager_v3.Project.State.ACTIVE)
    assert shown.name.removeprefix("projects/").isdigit()
    resource = f"projects/{PROJECT}"
    policy = projects.get_iam_policy(iam_policy_pb2.GetIamPolicyRequest(resource=resource))
    policy.bindings.add(role="roles/viewer", members=["user:ada@example.com"])
    request = iam_policy_pb2.SetIamPolicyRequest(resource=resource, policy=policy)
    projects.set_iam_policy(request)
    with pytest.raises(exceptions.Conflict):  # changed meanwhile: the etag is outdated
        projects.set_iam_policy(request)


def test_permissions_that_one_has_are_tested_by_three_clients(google, buckets):
    resource = f"projects/{PROJECT}"
    asked = iam_policy_pb2.TestIamPermissionsRequest(resource=resource, permissions=["tpu.nodes.create"])
    projects = client(google, resourcemanager_v3.ProjectsClient, "resource_manager")
    assert projects.test_iam_permissions(asked).permissions == ["tpu.nodes.create"]
    repositories = client(google, artifactregistry_v1.ArtifactRegistryClient, "artifact_registry")
    asked = iam_policy_pb2.TestIamPermissionsRequest(
        resource=f"{resource}/locations/us/repositories/none", permissions=["artifactregistry.packages.create"]
    )
    assert not repositories.test_iam_permissions(asked).permissions, "nobody has any on what is not there"
    bucket = buckets.create_bucket("tested")
    both = ["storage.objects.get", "storage.objects.create"]
    assert bucket.test_iam_permissions(both) == both
    bucket.delete()


def test_storage_refuses_a_wrong_token(google):
    options = ClientOptions(api_endpoint=google.address)
    stranger = storage.Client(PROJECT, credentials=Credentials(token="wrong"), client_options=options)
    with pytest.raises(Exception, match=r"(?i)credential|401|refresh"):
        list(stranger.list_buckets())
