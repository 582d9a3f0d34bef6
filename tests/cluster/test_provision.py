"""An environment created and deleted by Cloud Build's steps in a sandbox.

Uses real Terraform, gcloud and kubectl, and a real API server with JobSet and Kueue; Google's APIs are emulated. The
tests follow its life, in order.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from cluster.builds import DESTROY, GUIDE, GUIDE_PROVISION, PROVISION, ROOT, Builder, StepFailed
from support.patient_cluster import PatientCluster
from support.quick_provider import quicken
from support.waiting import until
from tpukit.core.errors import Transient
from tpukit.places.local import processes as pods

ASKED = {**GUIDE_PROVISION, "_NAMESPACE": "research"}
NAMES = {
    "project_id": "tpu-project",
    "region": "us-central2",
    "zone": "us-central2-b",
    "artifact_repository_bucket_name": "tpu-artifacts",
    "network_name": "tpu-network",
    "subnet_name": "tpu-subnet",
    "cluster_name": "tpu-cluster",
    "tpu_namespace": "research",
    "tpu_type": "v4-32",
    "num_tpu_pools": "2",
    "tf_state_bucket": "tpu-tf-state",
}
"""The same environment as values of a cluster file."""
PROJECT = "projects/tpu-project"
CLUSTER = f"{PROJECT}/locations/us-central2/clusters/tpu-cluster"
TPU_POOLS = {f"pool {CLUSTER}/nodePools/tpu-node-pool-{number}" for number in range(2)}


@dataclass(frozen=True)
class Environment:
    """The environment of the builds, seen through Google's APIs and through Kubernetes."""

    builder: Builder
    address: str  # of Google's APIs
    token: str
    kubeconfig: Path  # of the sandbox's administrator

    def google(self, path: str, body: bytes | None = None) -> Any:
        request = urllib.request.Request(f"{self.address}/{path}", body, {"Authorization": f"Bearer {self.token}"})
        with urllib.request.urlopen(request) as answer:
            return json.load(answer)

    def make_accounts(self) -> None:
        """Create accounts as `tpu cluster bootstrap` does, long before the first build."""
        for name in ("gke-sa", "cloud-tpu-sa"):
            made = self.google(f"iam/v1/{PROJECT}/serviceAccounts", json.dumps({"accountId": name}).encode())
            aged = {"kind": "account", "name": made["name"], "patch": {"_made": 0}}
            self.google("emulator/resources", json.dumps(aged).encode())

    def there(self) -> set[str]:
        """Return the cloud's resources, without Terraform's state and the accounts, which no build creates."""
        every = self.google("emulator/resources")
        return {one for one in every if "tpu-tf-state" not in one and not one.startswith("account ")}

    def documents(self) -> dict[str, Any]:
        """Return those resources with every field."""
        kinds = sorted({one.split()[0] for one in self.there()})
        return {
            kind: self.google(f"emulator/resources?kind={kind}") for kind in kinds if kind not in ("bucket", "object")
        }

    def kubernetes(self, *words: str) -> Any:
        """Run kubectl with the credentials that the build fetched. Retry, because a busy API server answers late."""

        def asked() -> str:
            try:
                return self.builder.tool("kubectl", "get", *words, "--output=json")
            except AssertionError as error:
                raise Transient(str(error)) from error

        return json.loads(until(asked, f"kubectl get {' '.join(words)}"))

    def addons(self) -> dict[str, str]:
        """Return the Available condition of each installed addon, read as the sandbox's administrator."""
        found = {}
        for one in PatientCluster(self.kubeconfig).list("Deployment"):
            conditions = {each["type"]: each["status"] for each in one.get("status", {}).get("conditions", [])}
            found[one["metadata"]["namespace"].removesuffix("-system")] = conditions.get("Available", "")
        return found

    def queues(self) -> list[Any]:
        """Return the queue objects, without managed fields and Kueue's counts."""
        found = self.kubernetes("clusterqueues,resourceflavors,localqueues,workloadpriorityclasses", "-A")["items"]
        for one in found:
            about = one["metadata"]
            one["metadata"] = {name: about[name] for name in ("name", "uid", "generation") if name in about}
            one.pop("status", None)
        return found

    def tpu(self, verb: str, *words: str) -> str:
        """Return the output of `tpu cluster`."""
        sets = [f"--set={name}={value}" for name, value in NAMES.items()]
        done = subprocess.run(
            [sys.executable, "-m", "tpukit", "cluster", verb, *sets, *words],
            env={**self.builder.environment, "PYTHONPATH": str(ROOT / "tools"), "TPUKIT_HOME": str(self.builder.home)},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def nodes(self) -> dict[str, list[dict[str, Any]]]:
        found: dict[str, list[dict[str, Any]]] = {}
        for node in self.kubernetes("nodes")["items"]:
            found.setdefault(node["metadata"]["labels"]["cloud.google.com/gke-nodepool"], []).append(node)
        return found

    def takes_jobs(self) -> bool:
        (queue,) = self.kubernetes("clusterqueues")["items"]
        conditions = queue.get("status", {}).get("conditions", [])
        return any((one["type"], one["status"]) == ("Active", "True") for one in conditions)

    def chips(self) -> dict[str, Any]:
        """Return the quota of each flavor that has chips."""
        (group,) = self.kubernetes("clusterqueues")["items"][0]["spec"]["resourceGroups"]
        amounts = {
            flavor["name"]: {one["name"]: one["nominalQuota"] for one in flavor["resources"]}
            for flavor in group["flavors"]
        }
        return {name: int(each["google.com/tpu"]) for name, each in amounts.items() if int(each["google.com/tpu"])}


def tpu(home: Path, *words: str) -> str:
    env = {**os.environ, "TPUKIT_HOME": str(home), "PYTHONPATH": str(ROOT / "tools")}
    done = subprocess.run([sys.executable, "-m", "tpukit", "sandbox", *words], env=env, capture_output=True, text=True)
    if done.returncode:
        pytest.fail(f"`tpu sandbox {words[0]}`: {done.stderr}")
    return done.stdout


@pytest.fixture(scope="module")
def environment(
    tmp_path_factory: pytest.TempPathFactory, terraform_environment: dict[str, str]
) -> Iterator[Environment]:
    home = tmp_path_factory.mktemp("provision")
    try:
        tpu(home, "up", "--name=provision", "--api=*")
        program = "import json, os; print(json.dumps(dict(os.environ)))"
        inside = json.loads(tpu(home, "shell", "--name=provision", "--", sys.executable, "-c", program))
        names = ("GOOGLE_", "CLOUDSDK_", "HTTP", "NO_PROXY", "SSL_CERT_FILE", "PATH")
        given = {name: value for name, value in inside.items() if name.startswith(names)}
        address = inside["GOOGLE_CONTAINER_CUSTOM_ENDPOINT"].removesuffix("/container/v1/")
        builder = Builder(home / "build", {**terraform_environment, **given})
        quicken(builder.workspace / "terraform")
        # The queues are tried 30 times: without a pause, all attempts end before a busy Kueue answers.
        (builder.programs / "sleep").write_text(f"#!/bin/sh\nexec {shutil.which('sleep')} 1\n")
        made = Environment(builder, address, inside["GOOGLE_OAUTH_ACCESS_TOKEN"], Path(inside["KUBECONFIG"]))
        made.make_accounts()
        yield made
        tpu(home, "down", "--name=provision")
    finally:
        pods.kill_strays(home)


def test_provision_makes_the_environment_and_installs_jobset_and_kueue(environment):
    assert environment.addons() == {}, "a fresh cluster has neither"
    calls = environment.builder.run(PROVISION, ASKED)
    release = (
        "kubectl apply --server-side --force-conflicts "
        "--filename=https://github.com/kubernetes-sigs/{0}/releases/download/{1}/manifests.yaml"
    )
    waited = "kubectl wait --namespace={0}-system --for=condition=Available --timeout=10m "
    told = [call for call in calls if re.match(r"terraform|kubectl (apply|wait)|gcloud container clusters get", call)]
    assert list(dict.fromkeys(told)) == [  # the queues are retried until Kueue's webhooks exist
        "terraform init -backend-config=bucket=tpu-tf-state "
        "-backend-config=prefix=gke-tpu-training-environment/tpu-cluster",
        "terraform plan -lock-timeout=5m -out=/workspace/environment.tfplan",
        "terraform show -json /workspace/environment.tfplan",
        "terraform apply -lock-timeout=5m /workspace/environment.tfplan",
        "terraform output -json",
        "gcloud container clusters get-credentials tpu-cluster --project=tpu-project "
        "--region=us-central2 --dns-endpoint",
        release.format("jobset", "v0.12.0"),
        waited.format("jobset") + "deployment/jobset-controller-manager",
        release.format("kueue", "v0.19.2"),
        "kubectl apply --server-side --force-conflicts --filename=kueue/controller.yaml",
        waited.format("kueue") + "deployment/kueue-controller-manager",
        "kubectl apply --server-side --force-conflicts --kustomize=/workspace/queues",
        "kubectl apply --server-side --force-conflicts --filename=/workspace/queues/quotas.yaml",
    ]
    until(lambda: environment.addons() == {"jobset": "True", "kueue": "True"}, "both to be available")
    made = {one for one in environment.there() if not one.startswith(("policy", "firewall", "tensorboard"))}
    assert made == {
        "bucket tpu-artifacts",
        f"cluster {CLUSTER}",
        f"network {PROJECT}/global/networks/tpu-network",
        f"pool {CLUSTER}/nodePools/cpu-pool",
        *TPU_POOLS,
        f"repository {PROJECT}/locations/us-central1/repositories/tpu-cluster",
        f"router {PROJECT}/regions/us-central2/routers/tpu-network-router",
        f"subnetwork {PROJECT}/regions/us-central2/subnetworks/tpu-subnet",
    }
    state = environment.google("emulator/resources?kind=bucket")["tpu-tf-state"]
    assert state["versioning"] == {"enabled": True}


def test_pools_are_nodes_with_the_labels_of_gke(environment):
    expected = {"cpu-pool": 3, "tpu-node-pool-0": 4, "tpu-node-pool-1": 4}
    until(lambda: {pool: len(hosts) for pool, hosts in environment.nodes().items()} == expected, "all nodes")
    nodes = environment.nodes()
    for host in nodes["tpu-node-pool-1"]:
        labels = host["metadata"]["labels"]
        assert labels["cloud.google.com/gke-tpu-accelerator"] == "tpu-v4-podslice"
        assert labels["cloud.google.com/gke-tpu-topology"] == "2x2x4"
        assert labels["MultisliceGroup"] == "multi-slice-group"
        assert labels["topology.kubernetes.io/zone"] == "us-central2-b"
        assert host["status"]["capacity"]["google.com/tpu"] == "4"
        assert [taint["key"] for taint in host["spec"]["taints"]] == ["google.com/tpu"]


def test_queues_are_over_what_the_pools_have(environment):
    until(environment.takes_jobs, "the queue to be active")
    (queue,) = environment.kubernetes("clusterqueues")["items"]
    assert environment.chips() == {"v4-2x2x4": 32}
    (local,) = environment.kubernetes("localqueues", "--namespace=research")["items"]
    assert local["spec"]["clusterQueue"] == queue["metadata"]["name"]
    account = environment.kubernetes("serviceaccount/cloud-tpu-sa", "--namespace=research")
    email = "cloud-tpu-sa@tpu-project.iam.gserviceaccount.com"
    assert account["metadata"]["annotations"]["iam.gke.io/gcp-service-account"] == email


def test_command_line_sees_the_same_environment_and_adds_nothing_to_it(environment):
    def ready() -> Any:
        found = json.loads(environment.tpu("status", "--json"))
        if problems := [part for part in found.values() if "problem" in part]:  # a busy API server answers late
            return print(problems)
        hosts = {name: (pool["ready"], pool["hosts"]) for name, pool in found["pools"].items()}
        return found if hosts == {"cpu-pool": (3, 3), "tpu-node-pool-0": (4, 4), "tpu-node-pool-1": (4, 4)} else None

    found = until(ready, "all hosts to be ready")
    assert found["resources"]["count"] > 15
    assert found["cluster"]["status"] == "RUNNING"
    assert found["addons"] == {"jobset": "v0.12.0", "kueue": "v0.19.2"}
    before = environment.queues()
    environment.tpu("credentials")
    environment.tpu("addons")
    assert environment.queues() == before


def test_provision_again_installs_what_nobody_noted_as_installed_and_changes_nothing_else(environment):
    def all_of_it() -> tuple[Any, ...]:
        return environment.there(), environment.documents(), environment.queues()

    before = all_of_it()
    mark = ("--namespace=kueue-system", "deployment/kueue-controller-manager", "tpukit.dev/installed-")
    environment.builder.tool("kubectl", "annotate", *mark)  # as after an interrupted build
    calls = environment.builder.run(PROVISION, ASKED)
    assert "Your infrastructure matches the configuration." in environment.builder.said["plan"]
    assert "JobSet v0.12.0 is there." in environment.builder.said["jobset"]
    assert [call for call in calls if "kueue/releases/download" in call]
    until(lambda: environment.addons() == {"jobset": "True", "kueue": "True"}, "both to be available")
    assert all_of_it() == before


def test_version_that_is_not_there_to_be_run_is_not_available_and_says_why(environment):
    """Use a release whose image cannot be pulled, such as the guide's old ones."""
    cluster, name = PatientCluster(environment.kubeconfig), "jobset-controller-manager"
    found = cluster.get("Deployment", name, "jobset-system")
    (container,) = found["spec"]["template"]["spec"]["containers"]
    good = container["image"]

    def change(image: str, replicas: int) -> None:
        template = {"spec": {"containers": [{"name": container["name"], "image": image}]}}
        change = {"spec": {"replicas": replicas, "template": template}}
        cluster.patch("Deployment", name, change, "jobset-system", way="strategic-merge")

    def reasons() -> set[str]:
        listed = cluster.list("Pod", "jobset-system")
        every = [one for pod in listed for one in pod.get("status", {}).get("containerStatuses", [])]
        return {one["state"].get("waiting", {}).get("reason", "") for one in every}

    change("registry.k8s.io/jobset/jobset:v0.2.3", 1)
    until(lambda: reasons() & {"ErrImagePull", "ImagePullBackOff"}, "the image that is gone to be named")
    until(lambda: environment.addons()["jobset"] == "False", "JobSet not to be available")
    change(good, 1)
    until(lambda: environment.addons()["jobset"] == "True", "JobSet to be available again")


@contextmanager
def job_on_a_slice(environment: Environment) -> Iterator[None]:
    """Run a pod of a job on the first slice."""
    cluster = PatientCluster(environment.kubeconfig)
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "pretrain-0", "namespace": "research", "labels": {"job-name": "pretrain"}},
        "spec": {
            "nodeSelector": {"cloud.google.com/gke-nodepool": "tpu-node-pool-0"},
            "tolerations": [{"operator": "Exists"}],
            "terminationGracePeriodSeconds": 1,
            "securityContext": {"runAsNonRoot": True, "runAsUser": 1000, "seccompProfile": {"type": "RuntimeDefault"}},
            "containers": [
                {
                    "name": "a",
                    "image": "train:1",
                    "command": ["sleep", "600"],
                    "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
                }
            ],
        },
    }
    cluster.create(pod)
    until(lambda: cluster.get("Pod", "pretrain-0", "research")["spec"].get("nodeName"), "the pod to have a node")
    try:
        yield
    finally:
        cluster.delete("Pod", "pretrain-0", "research")
        until(lambda: not cluster.list("Pod", "research"), "the pod to go")


def test_state_of_another_cluster_is_never_taken_for_the_one_asked_for(environment):
    before = environment.there()
    other = {**GUIDE, "_CLUSTER_NAME": "other", "_TF_STATE_PREFIX": "gke-tpu-training-environment/tpu-cluster"}
    with pytest.raises(StepFailed, match="is the state of cluster tpu-cluster, which would be deleted for other"):
        environment.builder.run(DESTROY, other)
    assert environment.there() == before


def test_state_from_before_each_cluster_had_its_own_is_named_and_not_forgotten(environment):
    own, older = ("gs://tpu-tf-state/gke-tpu-training-environment" + part for part in ("/tpu-cluster/", "/"))
    environment.builder.tool("gcloud", "storage", "mv", f"{own}default.tfstate", f"{older}default.tfstate")
    before = environment.there()
    with pytest.raises(StepFailed, match="the state of tpu-cluster is in") as held:
        environment.builder.run(PROVISION, ASKED)
    assert environment.there() == before
    line = re.search(r"gcloud (storage mv .*)", held.value.args[1])[1]
    environment.builder.tool("gcloud", *line.split())


def test_no_pools_removes_the_pools_alone(environment):
    before = environment.there()
    none = {**ASKED, "_NUM_TPU_POOLS": "0", "_NUM_OF_CHIPS": ""}
    with pytest.raises(StepFailed, match="delete or replace tpu-node-pool-0, tpu-node-pool-1") as held:
        environment.builder.run(PROVISION, none)
    assert held.value.args[0] == "guard"
    assert environment.there() == before
    with job_on_a_slice(environment), pytest.raises(StepFailed, match="tpu-node-pool-0 runs research/pretrain"):
        environment.builder.run(PROVISION, {**none, "_ALLOW_REPLACE": "true"})
    assert environment.there() == before
    environment.builder.run(PROVISION, {**none, "_ALLOW_REPLACE": "true"})
    assert before - environment.there() == TPU_POOLS
    assert environment.there() <= before
    until(lambda: set(environment.nodes()) == {"cpu-pool"}, "the nodes of the pools to go")
    assert environment.chips() == {}


def test_destroy_is_held_back_by_data(environment):
    before = environment.there()
    environment.google("upload/storage/v1/b/tpu-artifacts/o?uploadType=media&name=checkpoint", b"weights")
    with pytest.raises(StepFailed, match="gs://tpu-artifacts is not empty") as held:
        environment.builder.run(DESTROY, GUIDE)
    assert held.value.args[0] == "data"
    assert before < environment.there()


def test_destroy_leaves_nothing_but_what_others_have(environment):
    protect(environment.builder)
    gcloud(environment.builder, "networks", "create", "other", "--subnet-mode=custom")
    for network in ("tpu-network", "other"):  # GKE leaves such rules behind; rules of other networks stay
        rule = ("create", f"gke-{network}-all", f"--network={network}", "--allow=tcp:1")
        gcloud(environment.builder, "firewall-rules", *rule)
    environment.builder.run(DESTROY, {**GUIDE, "_FORCE_DESTROY": "true"})
    others = ("network/other", "firewall/gke-other-all")
    assert {re.sub(r" .*/", "/", one) for one in environment.there()} == set(others)
    gcloud(environment.builder, "firewall-rules", "delete", "gke-other-all", "--quiet")
    gcloud(environment.builder, "networks", "delete", "other", "--quiet")
    assert environment.there() == set()
    until(lambda: environment.nodes() == {}, "all nodes to go")


def protect(builder: Builder) -> None:
    """Enable deletion protection, as a user does against accidental deletion."""
    cluster = "-target=module.cluster.google_container_cluster.this"
    builder.tool("terraform", "apply", "-auto-approve", cluster, "-var=deletion_protection=true")


def gcloud(builder: Builder, *words: str) -> None:
    builder.tool("gcloud", "compute", *words, "--project=tpu-project")
