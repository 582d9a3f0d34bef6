"""A sandbox with a cluster in GKE, and provisioners that run against it as they would in a pod."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import yaml

from box import ROOT, ZONE, Box, until
from tpukit.errors import Conflict, NotFound
from tpukit.provisioner import names
from tpukit.sandbox import environment
from tpukit.sandbox.kwok_pools import LABEL
from unit.kube_server import kubeconfig

Doc = dict[str, Any]
PROJECT, LOCATION, CLUSTER = "tpu-project", "us-central2", "one"
SYSTEM, NAME, TEAM = "tpu-provisioner-system", "tpu-provisioner", "slices"
V4_16 = {
    "cloud.google.com/gke-tpu-accelerator": "tpu-v4-podslice",
    "cloud.google.com/gke-tpu-topology": "2x2x2",
}
_CLUSTERS = f"container/v1/projects/{PROJECT}/locations/{LOCATION}/clusters"
POOLS = f"{_CLUSTERS}/{CLUSTER}/nodePools"


class Provisioned:
    def __init__(self, box: Box, folder: Path, **config: str) -> None:
        self.box, self.cluster, self.folder = box, box.cluster, folder
        self._make_cluster()
        self._deploy({"removal-delay": "1", "minimum-age": "1", **config})
        with suppress(Conflict):
            self.cluster.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": TEAM}})
        self.kubeconfig = self._kubeconfig()

    def _make_cluster(self) -> None:
        network, compute = f"projects/{PROJECT}/global/networks/net", f"compute/v1/projects/{PROJECT}"
        self.box.ask("POST", f"{compute}/global/networks", {"name": "net", "autoCreateSubnetworks": False})
        pods = [{"rangeName": "pods", "ipCidrRange": "10.64.0.0/10"}]
        subnet = {"name": "subnet", "network": network, "ipCidrRange": "10.0.0.0/20", "secondaryIpRanges": pods}
        self.box.ask("POST", f"{compute}/regions/{LOCATION}/subnetworks", subnet)
        cluster = {
            "name": CLUSTER,
            "locations": [ZONE],
            "initialNodeCount": 1,
            "network": network,
            "subnetwork": f"projects/{PROJECT}/regions/{LOCATION}/subnetworks/subnet",
            "ipAllocationPolicy": {"useIpAliases": True, "clusterSecondaryRangeName": "pods"},
        }
        self.box.ask("POST", _CLUSTERS, {"cluster": cluster})
        until(lambda: self.box.ask("GET", f"{_CLUSTERS}/{CLUSTER}")["status"] == "RUNNING")
        self.box.ask("DELETE", f"{POOLS}/default-pool")
        until(lambda: not self.pools())

    def _deploy(self, config: Mapping[str, str]) -> None:
        """What `kubectl apply -k` would, but for the Deployment: its pods are processes of the tests."""
        folder = ROOT / "deploy" / "example-project" / "example-cluster"
        rendered = subprocess.run(["kubectl", "kustomize", folder], capture_output=True, text=True, check=True).stdout
        for document in yaml.safe_load_all(rendered):
            if document["kind"] == "ConfigMap":
                where = {"project": PROJECT, "location": LOCATION, "cluster": CLUSTER, "zones": ZONE}
                document["data"] |= {**where, **config}
            if document["kind"] != "Deployment":
                self.cluster.apply(document)

    def _kubeconfig(self) -> Path:
        """Of its own service account, with no more than deploy/base gives it."""
        asked = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 7200}}
        meta = {"metadata": {"name": NAME, "namespace": SYSTEM}}
        path = f"/api/v1/namespaces/{SYSTEM}/serviceaccounts/{NAME}/token"
        token = self.cluster.call("POST", path, body={**asked, **meta})["status"]["token"]
        authority = self.box.place.certificates("cluster") / "ca.crt"
        self.folder.mkdir(exist_ok=True)
        where = {"server": self.cluster.server, "certificate-authority": str(authority)}
        clusters = [{"name": "main", "cluster": where}]
        return kubeconfig(self.folder, self.cluster.server, {"token": token}, clusters=clusters)

    def configure(self, **data: str) -> None:
        change = {"data": {key.replace("_", "-"): value for key, value in data.items()}}
        self.cluster.patch("ConfigMap", NAME, change, SYSTEM)

    def environment(self) -> dict[str, str]:
        return {
            **os.environ,
            **environment.variables(self.box.place),
            "KUBECONFIG": str(self.kubeconfig),
            "TPUKIT_HOME": str(self.folder),
            "PYTHONPATH": f"{ROOT / 'tools'}{os.pathsep}{ROOT / 'tests'}",
        }

    def start(self, *words: str, point: int = 0, http: bool = False) -> subprocess.Popen[str]:
        """One that runs until it is stopped; with `point`, until it is killed at its nth fault point."""
        program = [str(ROOT / "tests" / "fault_points.py"), str(point)] if point else ["-m", "tpukit"]
        options = ["--log", "json", *([] if http else ["--no-http"])]
        argv = [sys.executable, *program, "provisioner", "run", *options, *words]
        with (self.folder / "provisioner.log").open("a") as log:
            return subprocess.Popen(argv, env=self.environment(), stdout=log, stderr=log, text=True)

    @contextmanager
    def running(self, *words: str, http: bool = False) -> Iterator[subprocess.Popen[str]]:
        process = self.start(*words, http=http)
        try:
            yield process
            assert process.poll() is None, self.log()[-3000:]
        finally:
            stop(process)

    def log(self) -> str:
        return (self.folder / "provisioner.log").read_text()

    def tpu(self, *words: str) -> str:
        argv = [sys.executable, "-m", "tpukit", "provisioner", *words]
        done = subprocess.run(
            argv,
            env={**self.environment(), "KUBECONFIG": str(self.box.place.kubeconfig)},
            capture_output=True,
            text=True,
        )
        assert not done.returncode, done.stderr
        return done.stdout

    def pools(self, jobset: str = "") -> list[Doc]:
        listed = self.box.ask("GET", POOLS).get("nodePools", [])
        return [one for one in listed if not jobset or one["config"].get("labels", {}).get(names.JOBSET) == jobset]

    def created(self) -> Counter[str]:
        """Creates that GKE took, by pool: as it recorded them."""
        operations = self.box.ask("GET", f"container/v1/projects/{PROJECT}/locations/{LOCATION}/operations")
        creates = [one for one in operations["operations"] if one["operationType"] == "CREATE_NODE_POOL"]
        return Counter(one["targetLink"].rpartition("/")[2] for one in creates)

    def send(self, name: str, seconds: int = 3600, **changes: Any) -> None:
        self.cluster.create(jobset(name, seconds, **changes))

    def hosts(self, name: str, phase: str = "Running") -> int:
        labels = f"jobset.sigs.k8s.io/jobset-name={name}"
        return sum(1 for pod in self.cluster.list("Pod", TEAM, labels=labels) if pod["status"].get("phase") == phase)

    def delete(self, name: str) -> None:
        self.cluster.delete("JobSet", name, TEAM)

    def fail(self, name: str) -> None:
        """One of its hosts ends with an error."""
        pod = self.cluster.list("Pod", TEAM, labels=f"jobset.sigs.k8s.io/jobset-name={name}")[0]
        self.cluster.patch("Pod", pod["metadata"]["name"], {"status": {"phase": "Failed"}}, TEAM, part="status")

    def ended(self, name: str) -> str:
        try:
            conditions = self.cluster.get("JobSet", name, TEAM).get("status", {}).get("conditions", [])
        except NotFound:
            return "Deleted"
        return next((one["type"] for one in conditions if one["status"] == "True"), "")

    def events(self, reason: str) -> list[str]:
        return [one["message"] for one in self.cluster.list("Event", TEAM) if one["reason"] == reason]


def jobset(
    name: str,
    seconds: int = 3600,
    *,
    slices: int = 1,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    hosts: int = 2,
    chips: int = 4,
    selector: Mapping[str, str] = V4_16,
    suspend: bool = False,
) -> Doc:
    """Slices whose hosts sleep; on pools that kwok simulates."""
    pod = {
        "restartPolicy": "Never",
        "securityContext": {"runAsNonRoot": True, "runAsUser": 65532, "seccompProfile": {"type": "RuntimeDefault"}},
        "nodeSelector": {**selector, LABEL[0]: LABEL[1]},
        "tolerations": [{"key": "google.com/tpu", "operator": "Exists", "effect": "NoSchedule"}],
        "containers": [
            {
                "name": "host",
                "image": "image:1",
                "command": ["sleep", str(seconds)],
                "resources": {"limits": {"google.com/tpu": chips}},
                "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
            }
        ],
    }
    job = {"parallelism": hosts, "completions": hosts, "backoffLimit": 0, "template": {"spec": pod}}
    exclusive = {"alpha.jobset.sigs.k8s.io/exclusive-topology": "cloud.google.com/gke-nodepool"}
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {
            "name": name,
            "namespace": TEAM,
            "labels": dict(labels or {}),
            "annotations": {**exclusive, **(annotations or {})},
        },
        "spec": {
            "suspend": suspend,
            "replicatedJobs": [{"name": "slice", "replicas": slices, "template": {"spec": job}}],
        },
    }


def stop(process: subprocess.Popen[str], number: int = signal.SIGTERM) -> None:
    process.send_signal(number)
    try:
        process.wait(20)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def lines(log: str) -> list[Doc]:
    return [json.loads(line) for line in log.splitlines() if line.startswith("{")]
