"""The guide's way with kubectl alone, as typed, in a sandbox: credentials, JobSet, Kueue, queues, jobs of one slice and
of two."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from box import ROOT, Box, sandbox, until

PROJECT, REGION, ZONE = "tpu-project", "us-central2", "us-central2-b"
CLUSTERS = f"container/v1/projects/{PROJECT}/locations/{REGION}/clusters"
NAMESPACE = "mine"


class Person:
    """Somebody with a copy of the files and a shell in which gcloud talks to the sandbox."""

    def __init__(self, box: Box, folder: Path) -> None:
        self.box, self.folder = box, folder
        for name in ("kueue", "examples"):
            shutil.copytree(ROOT / name, folder / name)
        program = "import json, os; print(json.dumps(dict(os.environ)))"
        env = {**os.environ, "TPUKIT_HOME": str(box.home), "PYTHONPATH": str(ROOT / "tools")}
        shell = [sys.executable, "-m", "tpukit", "sandbox", "shell", "--name", box.name]
        printed = subprocess.run([*shell, "--", sys.executable, "-c", program], env=env, capture_output=True, text=True)
        assert printed.returncode == 0, printed.stderr
        self.environment = {**json.loads(printed.stdout), "CLOUDSDK_CORE_DISABLE_PROMPTS": "1"}

    def types(self, line: str) -> str:
        done = subprocess.run(
            shlex.split(line), cwd=self.folder, env=self.environment, capture_output=True, text=True, timeout=600
        )
        assert done.returncode == 0, f"{line}: {done.stderr}"
        return done.stdout

    def edits(self, path: str, what: str, into: str) -> None:
        file = self.folder / path
        text = re.sub(what, into, file.read_text(), flags=re.MULTILINE | re.DOTALL)
        assert text != file.read_text()
        file.write_text(text)

    def condition(self, name: str) -> str:
        """The condition that a JobSet ended with; empty while it runs."""
        jobset = json.loads(self.types(f"kubectl get jobset {name} --namespace={NAMESPACE} --output=json"))
        true = [one["type"] for one in jobset.get("status", {}).get("conditions", []) if one["status"] == "True"]
        return next((kind for kind in true if kind in ("Completed", "Failed")), "")


def block(folder: str, begin: str) -> str:
    """Of a README, the block that begins so."""
    found = re.search(rf"^{begin} .*?(?=^```)", (ROOT / folder / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    assert found
    return found[0]


@pytest.fixture(scope="module")
def person(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Person]:
    """A cluster with two v4-32 slices, as Terraform leaves one: no address but its DNS name, and nothing installed."""
    with sandbox(tmp_path_factory.mktemp("guide"), "guide", addons=False) as box:
        compute = f"compute/v1/projects/{PROJECT}"
        network, subnet = (
            f"projects/{PROJECT}/global/networks/net",
            f"projects/{PROJECT}/regions/{REGION}/subnetworks/sub",
        )
        box.ask("POST", f"{compute}/global/networks", {"name": "net", "autoCreateSubnetworks": False})
        ranges = [{"rangeName": "pods", "ipCidrRange": "10.64.0.0/14"}]
        wanted = {"name": "sub", "network": network, "ipCidrRange": "10.0.0.0/20", "secondaryIpRanges": ranges}
        box.ask("POST", f"{compute}/regions/{REGION}/subnetworks", wanted)
        cluster = {
            "name": "tpu-cluster",
            "locations": [ZONE],
            "initialNodeCount": 1,
            "network": network,
            "subnetwork": subnet,
            "ipAllocationPolicy": {"useIpAliases": True, "clusterSecondaryRangeName": "pods"},
            "controlPlaneEndpointsConfig": {
                "dnsEndpointConfig": {"allowExternalTraffic": True},
                "ipEndpointsConfig": {"enabled": False},
            },
        }
        box.ask("POST", CLUSTERS, {"cluster": cluster})
        for number in range(2):
            pool = {
                "name": f"tpu-node-pool-{number}",
                "initialNodeCount": 4,
                "placementPolicy": {"type": "COMPACT", "tpuTopology": "2x2x4"},
                "config": {"machineType": "ct4p-hightpu-4t", "diskType": "pd-balanced"},
            }
            box.ask("POST", f"{CLUSTERS}/tpu-cluster/nodePools", {"nodePool": pool})
        yield Person(box, tmp_path_factory.mktemp("person"))


def test_services_are_enabled_by_the_block_of_the_readme(person):
    person.types(f"gcloud config set project {PROJECT}")
    person.types(block("terraform", "gcloud services enable").replace("\\\n", " "))


def test_credentials_by_region_reach_a_cluster_that_has_a_dns_name_alone_and_leave_the_sandboxs_own(person):
    own = person.box.place.kubeconfig.read_bytes()
    person.types(f"gcloud container clusters get-credentials tpu-cluster --region={REGION} --project={PROJECT}")
    nodes = json.loads(person.types("kubectl get nodes --selector=cloud.google.com/gke-tpu-topology=2x2x4 -o json"))
    assert len(nodes["items"]) == 8
    assert person.types("kubectl config current-context").startswith("gke_")
    assert person.box.place.kubeconfig.read_bytes() == own, "the sandbox lives by it"


def test_jobset_kueue_and_queues_come_by_the_lines_of_their_readmes_in_the_namespace_that_was_set(person):
    person.edits(
        "kueue/local_queue.yaml", r'(kind: LocalQueue.*?)namespace: "tpu-training"', rf"\1namespace: {NAMESPACE}"
    )
    for folder in ("jobset", "kueue"):
        for line in block(folder, "kubectl apply --server-side").splitlines():
            person.types(line)
    queue = json.loads(person.types(f"kubectl get localqueue {NAMESPACE} --namespace={NAMESPACE} --output=json"))
    assert queue["spec"]["clusterQueue"] == "tpu"
    person.types(f"kubectl get serviceaccount cloud-tpu-sa --namespace={NAMESPACE}")
    assert "tpu-training" not in person.types("kubectl get namespaces")
    assert "unchanged" in person.types("kubectl apply -k kueue")


@pytest.mark.parametrize(("name", "hosts"), [("single-slice", 4), ("multislice", 8)])
def test_job_sent_with_kubectl_runs_to_its_end(person, name, hosts):
    person.edits(f"examples/kubectl/{name}/kustomization.yaml", "^namespace: .*?$", f"namespace: {NAMESPACE}")
    person.types(f"kubectl apply -k examples/kubectl/{name}")
    assert until(lambda: person.condition(f"hello-{name}"), f"hello-{name} to end", seconds=600) == "Completed"
    said = person.types(
        f"kubectl logs --namespace={NAMESPACE} --max-log-requests=8 "
        f"--selector=jobset.sigs.k8s.io/jobset-name=hello-{name}"
    )
    assert len(set(re.findall(rf"host (\d) of {hosts}, slice \d of {hosts // 4}: {hosts * 4} chips", said))) == hosts
    person.types(f"kubectl delete -k examples/kubectl/{name}")
