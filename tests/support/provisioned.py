"""A sandbox with a GKE cluster, and provisioners that run against it as in a pod."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from support.box import ROOT, ZONE, Box, until
from support.kube_server import kubeconfig
from support.waiting import PATIENCE
from tpubox.box import environment as box_environment
from tpubox.kubelet.simulated_hosts import LABEL
from tpukit.core.errors import Conflict, NotFound
from tpukit.provisioner import pool_names

Doc = dict[str, Any]
PROJECT, LOCATION, CLUSTER = "tpu-project", "us-central2", "one"
SYSTEM, NAME, TEAM = "tpu-provisioner-system", "tpu-provisioner", "slices"
ACTOR, NODES = (f"{name}@{PROJECT}.iam.gserviceaccount.com" for name in (NAME, "tpu-nodes"))
"""Google accounts of the provisioner and of the nodes of its pools."""
V4_16 = {
    "cloud.google.com/gke-tpu-accelerator": "tpu-v4-podslice",
    "cloud.google.com/gke-tpu-topology": "2x2x2",
}
_CLUSTERS = f"container/v1/projects/{PROJECT}/locations/{LOCATION}/clusters"
POOLS = f"{_CLUSTERS}/{CLUSTER}/nodePools"
_ADDRESS = re.compile(r"http://127\.0\.0\.1:\d+")
"""URL of health and metrics in a provisioner's log."""


def make_cluster(box: Box) -> str:
    """Create a cluster without pools and return the path of its pools."""
    network, compute = f"projects/{PROJECT}/global/networks/net", f"compute/v1/projects/{PROJECT}"
    box.ask("POST", f"{compute}/global/networks", {"name": "net", "autoCreateSubnetworks": False})
    pods = [{"rangeName": "pods", "ipCidrRange": "10.64.0.0/10"}]
    subnet = {"name": "subnet", "network": network, "ipCidrRange": "10.0.0.0/20", "secondaryIpRanges": pods}
    box.ask("POST", f"{compute}/regions/{LOCATION}/subnetworks", subnet)
    cluster = {
        "name": CLUSTER,
        "locations": [ZONE],
        "initialNodeCount": 1,
        "network": network,
        "subnetwork": f"projects/{PROJECT}/regions/{LOCATION}/subnetworks/subnet",
        "ipAllocationPolicy": {"useIpAliases": True, "clusterSecondaryRangeName": "pods"},
        # Required for pools with the GKE metadata server, which the provisioner requests.
        "workloadIdentityConfig": {"workloadPool": f"{PROJECT}.svc.id.goog"},
    }
    box.ask("POST", _CLUSTERS, {"cluster": {**cluster, "releaseChannel": {"channel": "UNSPECIFIED"}}})
    until(lambda: box.ask("GET", f"{_CLUSTERS}/{CLUSTER}")["status"] == "RUNNING")
    box.ask("DELETE", f"{POOLS}/default-pool")
    until(lambda: not box.ask("GET", POOLS).get("nodePools"))
    return POOLS


class Provisioned:
    def __init__(self, box: Box, folder: Path, **config: str) -> None:
        self.box, self.cluster, self.folder = box, box.cluster, folder
        self.typed: list[str] = []
        self.asked: set[tuple[str, str]] = set()  # verbs and resources of provisioners' requests to the API server
        folder.mkdir(exist_ok=True)
        make_cluster(box)
        self._install()
        self.configure(**{"removal-delay": "1", "minimum-age": "1", **config})
        with suppress(Conflict):
            self.cluster.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": TEAM}})
        self.kubeconfig = self._kubeconfig()
        # Otherwise each pool is refused once and created half a minute later.
        until(self._may_act_as_nodes, "the grants to arrive")

    def _install(self) -> None:
        """Install as in deploy/README.md: run init and the commands that it prints, except for the image.

        The pods of its Deployment are processes of the tests.
        """
        accounts = f"iam/v1/projects/{PROJECT}/serviceAccounts"
        self.box.ask("POST", accounts, {"accountId": NODES.partition("@")[0], "serviceAccount": {}})
        words = ("init", PROJECT, CLUSTER, "--location", LOCATION, "--zones", ZONE, "--node-service-account", NODES)
        done = self._tpu(*words, "--folder", str(self.folder / "deploy"))
        lines = [line.strip() for line in done.stderr.splitlines() if line.startswith("  ")]
        self.image_line, *rest = lines
        for line in rest:
            # Google knows an account some time after its creation.
            until(lambda: self.type(line), f"`{line}` to be taken")  # noqa: B023
        self.cluster.patch("Deployment", NAME, {"spec": {"replicas": 0}}, SYSTEM)

    def type(self, line: str) -> bool:
        """Run a command line at the top of the checkout, and return whether it succeeded."""
        tpu = self.folder / "bin" / "tpu"
        tpu.parent.mkdir(exist_ok=True)
        tpu.write_text(f'#!/bin/sh\nexec {sys.executable} -m tpukit "$@"\n')
        tpu.chmod(0o755)
        env = self._as_person()
        env["PATH"] = f"{tpu.parent}{os.pathsep}{env['PATH']}"
        done = subprocess.run(["bash", "-euc", line], env=env, cwd=ROOT, capture_output=True, text=True)
        self.typed.append(f"$ {line}\n{done.stdout}{done.stderr}")
        return done.returncode == 0

    def _as_person(self) -> dict[str, str]:
        env = {**os.environ, **box_environment.variables(self.box.place), "TPUKIT_HOME": str(self.folder)}
        return {**env, "KUBECONFIG": str(self.box.place.kubeconfig), "PYTHONPATH": str(ROOT / "tools")}

    def _kubeconfig(self) -> Path:
        """Return a kubeconfig of the provisioner's service account, with only the permissions from deploy/base."""
        asked = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 7200}}
        meta = {"metadata": {"name": NAME, "namespace": SYSTEM}}
        path = f"/api/v1/namespaces/{SYSTEM}/serviceaccounts/{NAME}/token"
        token = self.cluster.call("POST", path, body={**asked, **meta})["status"]["token"]
        authority = self.box.place.certificates("cluster") / "ca.crt"
        where = {"server": self.cluster.server, "certificate-authority": str(authority)}
        clusters = [{"name": "main", "cluster": where}]
        return kubeconfig(self.folder, self.cluster.server, {"token": token}, clusters=clusters)

    def configure(self, **data: str) -> None:
        change = {"data": {key.replace("_", "-"): value for key, value in data.items()}}
        self.cluster.patch("ConfigMap", NAME, change, SYSTEM)

    def environment(self) -> dict[str, str]:
        """Return the environment of its pod: its Kubernetes service account, and the Google account behind it."""
        return {
            **self._as_person(),
            "KUBECONFIG": str(self.kubeconfig),
            "GOOGLE_OAUTH_ACCESS_TOKEN": self._google_token(),
            "PYTHONPATH": f"{ROOT / 'tools'}{os.pathsep}{ROOT / 'tests'}",
        }

    def _google_token(self) -> str:
        path = f"iam_credentials/v1/projects/-/serviceAccounts/{ACTOR}:generateAccessToken"
        scopes = ["https://www.googleapis.com/auth/cloud-platform"]
        return str(self.box.ask("POST", path, {"scope": scopes})["accessToken"])

    def _may_act_as_nodes(self) -> bool:
        """Return whether the last of its grants is effective."""
        path = f"iam/v1/projects/{PROJECT}/serviceAccounts/{NODES}:testIamPermissions"
        asked = {"permissions": ["iam.serviceAccounts.actAs"]}
        status, answer = self.box.google("POST", path, asked, token=self._google_token())
        assert status == 200, answer
        return bool(answer.get("permissions"))

    def start(self, *words: str, point: str = "") -> subprocess.Popen[str]:
        """Start a provisioner that runs until it is stopped, or is killed at the fault point `point`."""
        program = [str(ROOT / "tests" / "support" / "fault_points.py"), point] if point else ["-m", "tpukit"]
        argv = [sys.executable, *program, "provisioner", "run", "--log", "json", "--port", "0", *words]
        with (self.folder / "provisioner.log").open("a") as log:
            return subprocess.Popen(argv, env=self.environment(), stdout=log, stderr=log, text=True)

    @contextmanager
    def running(self, *words: str) -> Iterator[subprocess.Popen[str]]:
        """Run a provisioner, and record its requests to the API server when it is stopped."""
        before = len(self.log())
        process = self.start(*words)
        try:
            yield process
            assert process.poll() is None, self.log()[-3000:]
            address = until(lambda: _ADDRESS.search(self.log(), before), self.log)
            assert address
            self.asked |= _requests(address[0])
        finally:
            stop(process)

    def log(self) -> str:
        path = self.folder / "provisioner.log"
        return path.read_text() if path.exists() else ""

    def tpu(self, *words: str) -> str:
        return self._tpu(*words).stdout

    def _tpu(self, *words: str) -> subprocess.CompletedProcess[str]:
        argv = [sys.executable, "-m", "tpukit", "provisioner", *words]
        done = subprocess.run(argv, env=self._as_person(), capture_output=True, text=True)
        assert not done.returncode, done.stderr
        return done

    def pools(self, jobset: str = "") -> list[Doc]:
        listed = self.box.ask("GET", POOLS).get("nodePools", [])
        return [one for one in listed if not jobset or one["config"].get("labels", {}).get(pool_names.JOBSET) == jobset]

    def created(self) -> Counter[str]:
        """Return the pools that GKE created according to its operations, with counts."""
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
        """Fail one of the hosts of a job."""
        pod = self.cluster.list("Pod", TEAM, labels=f"jobset.sigs.k8s.io/jobset-name={name}")[0]
        self.cluster.patch("Pod", pod["metadata"]["name"], {"status": {"phase": "Failed"}}, TEAM, part="status")

    def ended(self, name: str) -> str:
        try:
            conditions = self.cluster.get("JobSet", name, TEAM).get("status", {}).get("conditions", [])
        except NotFound:
            return "Deleted"
        return next((one["type"] for one in conditions if one["status"] == "True"), "")

    def clear(self) -> None:
        """Remove the leftovers of a failed test, which would fail the next ones."""
        for one in self.cluster.list("JobSet", TEAM):
            self.delete(one["metadata"]["name"])
        for pool in self.pools():
            self.box.google("DELETE", f"{POOLS}/{pool['name']}")  # refused if it is already being deleted
        self.box.ask("DELETE", "emulator/faults")
        until(lambda: not self.pools(), "node pools to be gone")

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
    """Return a JobSet whose hosts sleep, on pools that kwok simulates."""
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
        process.wait(PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _requests(address: str) -> set[tuple[str, str]]:
    """Return verbs and resources from the metrics."""
    with urllib.request.urlopen(f"{address}/metrics", timeout=30) as answer:
        text = answer.read().decode()
    return set(re.findall(r'tpukit_api_requests_total\{verb="(\w+)",resource="([\w/]+)"\}', text))


def lines(log: str) -> list[Doc]:
    return [json.loads(line) for line in log.splitlines() if line.startswith("{")]
