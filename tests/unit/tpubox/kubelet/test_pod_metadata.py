"""Pods on GKE nodes have a metadata server each, which knows their identity and gives it to no other pod."""

from __future__ import annotations

import json
import os
import re
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.agent_world import CPU, NODE, ZONE, World
from support.waiting import PATIENCE
from tpubox.google.artifacts import repositories as artifact_registry
from tpubox.google.iam import credentials, permissions
from tpubox.google.wire.server import Emulator
from tpubox.google.wire.settings import EVERY_API, Settings, number_of
from tpubox.kubelet import Pool
from tpubox.kubelet.emulator_door import EmulatorDoor
from tpubox.kubelet.pulled_images import PulledImages
from tpukit.places.local import processes as pods

CLUSTER = "projects/tpu-project/locations/us-central2/clusters/one"
HOST = "gke-one-cpu-0"
TEAM = "team-a@tpu-project.iam.gserviceaccount.com"
DEFAULT = "/computeMetadata/v1/instance/service-accounts/default"
VARIABLES = ("GCE_METADATA_HOST", "STORAGE_EMULATOR_HOST", "GOOGLE_OAUTH_ACCESS_TOKEN")
SHOW = (
    f"import os; print(*[os.environ.get(name, '-') for name in {VARIABLES}], flush=True); import time; time.sleep(60)"
)


@pytest.fixture(scope="module")
def google(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Emulator]:
    """Yield an emulator with a Workload Identity cluster, a pool, and an account for pods of default/trainer."""
    with Emulator(tmp_path_factory.mktemp("google"), Settings(enabled=EVERY_API, arrival_seconds=0.0)) as made:
        state = made.cloud.state
        state.put("cluster", CLUSTER, {"workloadIdentityConfig": {"workloadPool": "tpu-project.svc.id.goog"}})
        pool = {"name": "cpu", "config": {"machineType": "e2-standard-4"}, "_nodes": {HOST: ZONE}, "_holds": None}
        state.put("pool", f"{CLUSTER}/nodePools/cpu", {**pool, "_topology": None})
        account = f"projects/tpu-project/serviceAccounts/{TEAM}"
        state.put("account", account, {"name": account, "email": TEAM})
        members = ["serviceAccount:tpu-project.svc.id.goog[default/trainer]"]
        binding = {"role": "roles/iam.workloadIdentityUser", "members": members}
        state.put("policy", account, {"version": 1, "bindings": [binding]})
        yield made


def start(home: Path, google: Emulator, before: World | None = None) -> World:
    secret = home / "secret"
    secret.write_text("of the box")
    told = {"google": google.address, "token": google.token, "google_token": google.pods_token}
    return World(home, before.api if before else None, **told, hidden=(secret, home / "keys"), visible=(home,))


@pytest.fixture
def world(home: Path, google: Emulator) -> Iterator[World]:
    world = start(home, google)
    world.client.add_pool(CPU)
    world.client.add_pool(Pool("cpu", "e2-standard-4", {HOST: ZONE}, cluster=CLUSTER))
    annotations = {"iam.gke.io/gcp-service-account": TEAM}
    for name in ("trainer", "stranger"):
        world.api.put(
            "ServiceAccount", {"metadata": {"name": name, "namespace": "default", "annotations": annotations}}
        )
    yield world
    world.close()
    pods.kill_strays(home)


def variables(world: World, account: str = "trainer", node: str = HOST) -> dict[str, str]:
    world.pod("python", "-c", SHOW, node=node, spec={"serviceAccountName": account})
    shown = world.until(lambda: world.status().get("phase") == "Running" and world.log().split())
    return dict(zip(VARIABLES, shown, strict=True))


def ask(address: str, path: str, **headers: str) -> str:
    request = urllib.request.Request(f"http://{address}{path}", headers={"Metadata-Flavor": "Google", **headers})
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=PATIENCE) as answer:
        return str(answer.read().decode())


def test_annotated_pod_gets_a_token_of_its_account_and_nothing_of_the_owners(world: World, google: Emulator):
    env = variables(world)
    assert (env["STORAGE_EMULATOR_HOST"], env["GOOGLE_OAUTH_ACCESS_TOKEN"]) == ("-", "-")
    address = env["GCE_METADATA_HOST"]
    assert ask(address, f"{DEFAULT}/email") == TEAM
    assert ask(address, "/computeMetadata/v1/project/project-id") == "tpu-project"
    assert ask(address, "/computeMetadata/v1/instance/attributes/cluster-name") == "one"
    token = json.loads(ask(address, f"{DEFAULT}/token"))
    assert credentials.principal_of(google.cloud, token["access_token"]) == f"serviceAccount:{TEAM}"
    assert token["expires_in"] > 3000


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("instance/attributes/cluster-location", "us-central2"),
        ("instance/attributes/cluster-uid", "[0-9a-f]{64}"),
        ("instance/hostname", HOST),
        ("instance/id", "[0-9]{10,20}"),
        ("instance/zone", f"projects/[0-9]+/zones/{ZONE}"),
    ],
)
def test_pod_learns_where_it_is(world: World, path: str, said: str):
    address = variables(world)["GCE_METADATA_HOST"]
    assert re.fullmatch(said, ask(address, f"/computeMetadata/v1/{path}"))


def test_tokens_are_given_for_the_pods_own_account_by_name_and_for_no_other(world: World):
    address, accounts = variables(world)["GCE_METADATA_HOST"], DEFAULT.removesuffix("/default")
    assert "access_token" in ask(address, f"{accounts}/{TEAM}/token")
    for path in ("nobody@x/token", "nobody@x/identity?audience=a", "nobody@x/email"):
        with pytest.raises(urllib.error.HTTPError, match="404"):
            ask(address, f"{accounts}/{path}")


@pytest.mark.parametrize(
    ("path", "headers", "code"),
    [
        ("/identity", {}, 400),
        ("/token", {"Metadata-Flavor": "Other"}, 403),
        ("/token", {"X-Forwarded-For": "10.0.0.1"}, 403),
    ],
)
def test_request_that_google_refuses_is_refused(world: World, path: str, headers: dict[str, str], code: int):
    address = variables(world)["GCE_METADATA_HOST"]
    with pytest.raises(urllib.error.HTTPError, match=str(code)):
        ask(address, f"{DEFAULT}{path}", **headers)


def test_pod_that_the_account_does_not_let_be_it_is_refused_in_gkes_words(world: World):
    address = variables(world, "stranger")["GCE_METADATA_HOST"]
    with pytest.raises(urllib.error.HTTPError, match="403") as refused:
        ask(address, f"{DEFAULT}/token")
    assert "Unable to generate access token" in refused.value.read().decode()


def test_pod_on_a_node_that_no_cluster_made_is_the_owner(world: World, google: Emulator):
    env = variables(world, node=NODE)
    assert env == {
        "GCE_METADATA_HOST": "-",
        "STORAGE_EMULATOR_HOST": google.address,
        "GOOGLE_OAUTH_ACCESS_TOKEN": google.pods_token,
    }


def test_metadata_server_answers_after_the_agent_was_started_again_and_goes_with_its_pod(
    world: World, home: Path, google: Emulator
):
    address = variables(world)["GCE_METADATA_HOST"]
    world.stop()
    again = start(home, google, world)
    try:
        again.until(lambda: _answers(address))
        assert ask(address, f"{DEFAULT}/email") == TEAM
        again.api.delete("Pod", "p", "default", grace=0)
        again.until(lambda: not _answers(address))
    finally:
        again.close()


def test_metadata_server_of_a_pod_tells_other_users_and_web_pages_nothing(world: World, monkeypatch):
    address = variables(world)["GCE_METADATA_HOST"]
    for header in ({"Host": "rebound.example.com"}, {"Origin": "http://example.com"}, {"Sec-Fetch-Site": "cross-site"}):
        with pytest.raises(urllib.error.HTTPError, match="403"):
            ask(address, f"{DEFAULT}/token", **header)
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    with pytest.raises(OSError, match=r"(?i)closed|reset"):
        ask(address, f"{DEFAULT}/token")


def test_pod_reads_no_secret_of_the_sandbox(world: World, home: Path):
    """Needs a machine where processes can have their own mounts; the test fails elsewhere."""
    if not pods.can_mount(home / "agent" / "empty"):
        pytest.fail("this machine lets no process have mounts of its own: unprivileged user namespaces are off")
    world.shell(f"cat {home}/secret; ls -A {home}/keys; echo done", node=HOST)
    world.phase("Succeeded")
    assert world.log().split() == ["nothing", "done"]


def _answers(address: str) -> bool:
    try:
        return bool(ask(address, f"{DEFAULT}/email"))
    except OSError:
        return False


def test_pod_waits_for_an_image_that_its_nodes_may_not_pull_and_starts_once_they_may(world: World, google: Emulator):
    repository = "projects/tpu-project/locations/us/repositories/images"
    state, image = google.cloud.state, "us-docker.pkg.dev/tpu-project/images/train:1"
    state.put("repository", repository, {"name": repository})
    artifact_registry.push(google.cloud, repository, "train", "1", "sha256:" + "1" * 64)
    world.pod("true", node=HOST, image=image)
    waiting = world.until(lambda: world.status().get("containerStatuses") and world.container()["state"]["waiting"])
    assert waiting["reason"] in ("ErrImagePull", "ImagePullBackOff")
    assert "403 Forbidden" in waiting["message"]
    nodes = f"serviceAccount:{permissions.default_account('tpu-project')}"
    state.put("policy", repository, {"bindings": [{"role": "roles/artifactregistry.reader", "members": [nodes]}]})
    world.phase("Succeeded")


def test_pod_waits_while_nobody_knows_whether_its_image_is_there(world: World, home: Path):
    """The emulator restarts, and is unreachable for a moment."""
    world.agent.kubelet._driver._images = PulledImages(EmulatorDoor("http://127.0.0.1:1", "secret"))
    world.pod("true", node=HOST, image="us-docker.pkg.dev/tpu-project/images/train:1")
    waiting = world.until(lambda: world.status().get("containerStatuses") and world.container()["state"]["waiting"])
    assert "failed to do request" in waiting["message"]
    world.agent.kubelet._driver._images = PulledImages(EmulatorDoor("", ""))
    world.phase("Succeeded")


def test_pod_waits_for_a_bucket_that_it_may_not_read_and_is_read_only_until_it_may_write(
    world: World, google: Emulator
):
    state = google.cloud.state
    cluster = state.get("cluster", CLUSTER) or {}
    state.put("cluster", CLUSTER, {**cluster, "addonsConfig": {"gcsFuseCsiDriverConfig": {"enabled": True}}})
    state.put("bucket", "b", {"name": "b", "projectNumber": number_of("tpu-project")})
    write = ("/bin/sh", "-c", "echo saved > /data/file")
    told = {"node": HOST, "spec": {"serviceAccountName": "trainer"}}
    world.with_bucket(*write, name="reader", **told)
    (event,) = world.until(lambda: world.events("FailedMount"))
    assert (
        f'code = PermissionDenied desc = failed to get GCS bucket "b": googleapi: Error 403: {TEAM}' in event["message"]
    )
    world.until(lambda: world.status("reader").get("containerStatuses"))
    assert world.container("reader")["state"] == {"waiting": {"reason": "ContainerCreating"}}
    binding = {"role": "roles/storage.objectViewer", "members": [f"serviceAccount:{TEAM}"]}
    state.put("policy", "b/b", {"bindings": [binding]})
    world.phase("Failed", name="reader")
    assert "Permission denied" in world.log("reader")
    state.put("policy", "b/b", {"bindings": [{**binding, "role": "roles/storage.objectUser"}]})
    world.with_bucket(*write, name="writer", **told)
    world.phase("Succeeded", name="writer")


def test_pod_waits_for_a_bucket_while_nobody_knows_whether_it_may_read_it(world: World):
    """The emulator restarts, and is unreachable for a moment."""
    world.agent.kubelet._driver._buckets._google = EmulatorDoor("http://127.0.0.1:1", "secret")
    world.with_bucket("true", node=HOST)
    (event,) = world.until(lambda: world.events("FailedMount"))
    assert "code = Unavailable" in event["message"]
