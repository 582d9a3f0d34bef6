"""Earlier differences between a sandbox and Google: several clusters, identities of pods, a suspended machine."""

from __future__ import annotations

import json
import os
import re
import signal
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from support.box import ZONE, Box, sandbox, until
from tpukit.places.local import processes as pods

PROJECT = "projects/tpu-project"
SUSPENDED = 50.0
"""Seconds. Nodes are lost after 20, and leaders after 15."""
CLUSTERS = f"container/v1/{PROJECT}/locations/us-central2/clusters"


@pytest.fixture(scope="module")
def box(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Box]:
    with sandbox(tmp_path_factory.mktemp("google"), "google") as made:
        network, compute = f"{PROJECT}/global/networks/net", f"compute/v1/{PROJECT}"
        made.ask("POST", f"{compute}/global/networks", {"name": "net", "autoCreateSubnetworks": False})
        subnet = {"name": "subnet", "ipCidrRange": "10.0.0.0/16", "network": network}
        made.ask("POST", f"{compute}/regions/us-central2/subnetworks", subnet)
        yield made


def make_cluster(box: Box, name: str, nodes: int = 1, **fields: Any) -> None:
    wanted: dict[str, Any] = {"name": name, "initialNodeCount": nodes, "locations": [ZONE], **fields}
    box.ask(
        "POST",
        CLUSTERS,
        {"cluster": {**wanted, "releaseChannel": {"channel": "UNSPECIFIED"}, "network": "net", "subnetwork": "subnet"}},
    )
    until(lambda: box.ask("GET", f"{CLUSTERS}/{name}")["status"] == "RUNNING", f"cluster {name}")


def nodes(box: Box) -> list[str]:
    """Return the cluster, taken from its name, of each node of a pool called default-pool."""
    found = box.cluster.list("Node", labels="cloud.google.com/gke-nodepool=default-pool")
    return sorted(node["metadata"]["name"].split("-")[1] for node in found)


def test_two_clusters_with_pools_of_one_name_have_nodes_of_their_own_and_one_is_deleted_alone(box: Box):
    make_cluster(box, "aa", 1)
    make_cluster(box, "bb", 2)
    assert nodes(box) == ["aa", "bb", "bb"]
    box.ask("DELETE", f"{CLUSTERS}/aa")
    until(lambda: "aa" not in nodes(box), "the nodes of aa to go")
    assert nodes(box) == ["bb", "bb"]
    assert box.ask("GET", f"{CLUSTERS}/bb")["currentNodeCount"] == 2
    box.ask("DELETE", f"{CLUSTERS}/bb")
    until(lambda: nodes(box) == [], "the nodes of bb to go")


def test_answer_of_a_box_that_google_could_not_give_fails_the_test(box: Box, check_answers: Callable[[], None]):
    network = f"{PROJECT}/global/networks/net"
    change = {"kind": "network", "name": network}
    box.ask("POST", "emulator/resources", {**change, "patch": {"mtu": "wide"}})
    box.ask("GET", f"compute/v1/{network}")
    with pytest.raises(AssertionError, match=rf'GET compute/v1/{network}: Network\.mtu is "wide", no integer'):
        check_answers()
    box.ask("POST", "emulator/resources", {**change, "patch": {"mtu": None}})


TEAMS = ("team-a", "team-b")
WORKLOAD_POOL = "tpu-project.svc.id.goog"
READ = """
import google.auth
from google.auth.transport.requests import Request
from google.cloud import storage

credentials, project = google.auth.default(scopes=["https://www.googleapis.com/auth/cloud-platform"])
credentials.refresh(Request())
bucket = storage.Client().bucket("shared")
for name in ("team-a/mine", "team-b/mine"):
    try:
        bucket.blob(name).upload_from_string("x")
        print("wrote", name)
    except Exception as error:
        print(type(error).__name__, name)
print(project, credentials.service_account_email)
"""
SECRETS = "cd {0}; cat token kubeconfig google/token google/pods-token; ls identities certificates; echo end"


def email(team: str) -> str:
    return f"{team}-pods@tpu-project.iam.gserviceaccount.com"


@pytest.fixture(scope="module")
def teams(box: Box) -> None:
    """Create two teams on one cluster, each with an account that may write below its own prefix of one bucket."""
    addons = {"gcsFuseCsiDriverConfig": {"enabled": True}}
    make_cluster(box, "shared", workloadIdentityConfig={"workloadPool": WORKLOAD_POOL}, addonsConfig=addons)
    uniform = {"uniformBucketLevelAccess": {"enabled": True}}  # required for conditions
    box.ask("POST", "storage/v1/b?project=tpu-project", {"name": "shared", "iamConfiguration": uniform})
    accounts, bindings = f"iam/v1/{PROJECT}/serviceAccounts", []
    for team in TEAMS:
        box.ask("POST", accounts, {"accountId": email(team).partition("@")[0]})
        member = f"serviceAccount:{WORKLOAD_POOL}[{team}/trainer]"
        policy = {"bindings": [{"role": "roles/iam.workloadIdentityUser", "members": [member]}]}
        box.ask("POST", f"{accounts}/{email(team)}:setIamPolicy", {"policy": policy})
        own = f'resource.name.startsWith("projects/_/buckets/shared/objects/{team}/")'
        binding = {"role": "roles/storage.objectAdmin", "members": [f"serviceAccount:{email(team)}"]}
        bindings.append({**binding, "condition": {"title": "own", "expression": own}})
        box.cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": team}})
        annotations = {"iam.gke.io/gcp-service-account": email(team)}
        meta = {"name": "trainer", "namespace": team, "annotations": annotations}
        box.cluster.apply({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta})
        until(
            lambda team=team: len(box.cluster.list("ServiceAccount", team)) == 2, "the account that each namespace has"
        )
    # New accounts and grants take effect after some time.
    until(lambda: box.google("PUT", "storage/v1/b/shared/iam", {"version": 3, "bindings": bindings})[0] == 200)


def printed(box: Box, name: str, team: str, account: str, *command: str) -> list[str]:
    """Return the output of a team's pod after it has ended."""
    container = {"name": "main", "image": "image", "command": list(command)}
    spec = {"restartPolicy": "Never", "serviceAccountName": account, "containers": [container]}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": team}, "spec": spec}
    box.cluster.apply(pod)
    until(lambda: box.cluster.get("Pod", name, team)["status"].get("phase") in ("Succeeded", "Failed"), name)
    return box.logs(box.cluster.get("Pod", name, team)).splitlines()


@pytest.mark.parametrize(("own", "other"), [TEAMS, TEAMS[::-1]])
def test_pod_of_a_team_writes_below_its_own_prefix_of_the_bucket_and_not_below_the_others(box: Box, teams, own, other):
    numbers = iter(range(100))

    def wrote() -> list[str]:
        said = printed(box, f"writer-{next(numbers)}", own, "trainer", "python", "-c", READ)
        return said if f"wrote {own}/mine" in said else []

    said = until(wrote, "the grants to arrive")
    assert f"Forbidden {other}/mine" in said
    assert said[-1] == f"tpu-project {email(own)}"


def test_pod_without_an_annotation_is_nobody_who_was_granted_anything(box: Box, teams):
    said = printed(box, "plain", "team-a", "default", "python", "-c", READ)
    assert said == ["Forbidden team-a/mine", "Forbidden team-b/mine", f"tpu-project {WORKLOAD_POOL}"]


def test_pod_without_a_grant_does_not_get_the_bucket_as_a_folder_and_an_event_says_why(box: Box, teams):
    container = {"name": "main", "image": "image", "command": ["true"]}
    csi = {"driver": "gcsfuse.csi.storage.gke.io", "volumeAttributes": {"bucketName": "shared"}}
    spec = {"restartPolicy": "Never", "containers": [container], "volumes": [{"name": "v", "csi": csi}]}
    metadata = {"name": "mounts", "namespace": "team-a", "annotations": {"gke-gcsfuse/volumes": "true"}}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
    box.cluster.apply(pod)

    def said() -> str:
        failed = [one for one in box.cluster.list("Event", "team-a") if one["reason"] == "FailedMount"]
        return next((one["message"] for one in failed if one["involvedObject"]["name"] == "mounts"), "")

    assert "code = PermissionDenied desc = failed to get GCS bucket" in until(said, "an event")
    (state,) = until(lambda: box.cluster.get("Pod", "mounts", "team-a")["status"].get("containerStatuses"), "a status")
    assert state["state"] == {"waiting": {"reason": "ContainerCreating"}}
    box.cluster.delete("Pod", "mounts", "team-a")


def test_pod_reads_nothing_of_what_opens_the_box(box: Box, teams):
    """Expect missing files where the sandbox lies in /tmp, because pods have their own, and empty files elsewhere."""
    said = printed(box, "curious", "team-a", "default", "sh", "-c", SECRETS.format(box.place.path))
    assert box.place.token not in "".join(said)
    assert said.pop() == "end"
    assert all(re.search("No such file or directory$|can't cd|^$|^nothing$|:$", line) for line in said), said


def test_box_that_stood_still_for_longer_than_a_node_may_be_silent_is_well_again(box: Box, teams):
    """Stop every process for longer than leases and elections allow, as on a suspended laptop."""
    names = {node["metadata"]["name"] for node in box.cluster.list("Node")}
    assert names
    components = json.loads(box.tpu("status", "--json"))["components"]
    stopped = pods.strays(box.place.path)
    assert {int(one["pid"]) for one in components} <= set(stopped)
    for pid in stopped:
        os.kill(pid, signal.SIGSTOP)
    time.sleep(SUSPENDED)
    for pid in stopped:
        os.kill(pid, signal.SIGCONT)

    def ready() -> bool:
        found = box.cluster.list("Node")
        return all(condition(node) == "True" for node in found) and {one["metadata"]["name"] for one in found} == names

    until(ready, "every node to be ready")
    assert printed(box, "after", "team-a", "default", "echo", "well") == ["well"]
    make_cluster(box, "later")


def condition(node: dict[str, Any]) -> str:
    """Return the status of a node's Ready condition."""
    return next((one["status"] for one in node["status"]["conditions"] if one["type"] == "Ready"), "")
