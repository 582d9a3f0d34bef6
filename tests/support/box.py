"""A sandbox for the tests of one file: its command and its APIs."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from support import waiting
from support.patient_cluster import PatientCluster
from tpubox.box import binaries
from tpubox.box.emulator import agent
from tpubox.box.folder import read
from tpubox.kubelet import Pool, of_slice
from tpukit import catalogue
from tpukit.cluster import bootstrap
from tpukit.core.errors import Transient
from tpukit.jobs import plan, render
from tpukit.jobs.plan import Plan
from tpukit.jobs.spec import JobSpec, Settings
from tpukit.places.local import processes as pods

ROOT = Path(__file__).resolve().parents[2]
TEAM = "research"
ZONE = "us-central2-b"
SETTINGS = Settings.from_json({"artifacts": "gs://my-artifacts", "team": TEAM})
V4_16 = catalogue.find("v4-16")
STEPS = """
import os, sys, time
import jax, jax.numpy as jnp
from tpukit import host as tpu
host = tpu.start()
total = jax.jit(lambda x: x.sum())
mesh = host.mesh()
sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(("data", "fsdp")))
numbers = jax.make_array_from_callback((16,), sharding, lambda index: jnp.ones(16)[index])
print("began", os.getpid(), "attempt", host.world.attempt, flush=True)
for step in range(int(sys.argv[1])):
    assert total(numbers) == 16
    host.report(step=step)
    if host.leaving(step):
        host.leave()
    time.sleep(0.1)
print("ended", flush=True)
host.close()
"""
"""Program for 16 chips that trains nothing but behaves like a training program."""
ENDLESS_FIRST = STEPS.replace("int(sys.argv[1])", "int(sys.argv[1]) if host.world.attempt else 10**9")
"""The same program, whose first attempt never ends by itself."""
_AWAY = re.compile("failed calling webhook|connection refused|etcdserver: request timed out|TLS handshake timeout")
Doc = dict[str, Any]
until = partial(waiting.until, every=0.2)
"""Wait with a longer interval, because each check is a request to the API server."""


class Box:
    def __init__(self, home: Path, name: str, *words: str, addons: bool = True) -> None:
        self.home, self.name = home, name
        self.tpu("up", *words, "--api=*", *(["--addons"] if addons else []), "--seconds=0")
        self.place = read(home / "data" / "sandbox" / name)
        self.cluster = PatientCluster(self.place.kubeconfig)
        self.agent = agent(self.place)

    def tpu(self, *words: str) -> str:
        """Run `tpu sandbox` and return its standard output."""
        env = {**os.environ, "TPUKIT_HOME": str(self.home), "PYTHONPATH": str(ROOT / "tools")}
        argv = [sys.executable, "-m", "tpukit", "sandbox", *words, "--name", self.name]
        done = subprocess.run(argv, env=env, capture_output=True, text=True)
        assert not done.returncode, f"`tpu sandbox {' '.join(words)}`: {done.stderr}"
        return done.stdout

    def agent_pid(self) -> int:
        status = json.loads(self.tpu("status", "--json"))
        return next(int(one["pid"]) for one in status["components"] if one["name"] == "agent")

    def google(self, method: str, path: str, body: object = None, *, token: str = "") -> tuple[int, Any]:
        """Return status and answer of one of Google's APIs, or of the emulator's own API.

        Bytes are sent as they are. Without a token the request comes from the owner.
        """
        content = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        headers = {"Authorization": f"Bearer {token or self.place.token}", "Content-Type": "application/json"}
        address = f"http://127.0.0.1:{self.place.ports['google']}/{path}"
        request = urllib.request.Request(address, content, headers, method=method)
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(request, timeout=120) as answer:
                return answer.status, json.loads(answer.read() or b"null")
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.loads(error.read() or b"null")

    def ask(self, method: str, path: str, body: object = None) -> Any:
        """Call google() and require success. If the request starts an operation, wait until it has ended."""
        status, answer = self.google(method, path, body)
        assert status < 300, f"{method} {path}: {answer}"
        if method != "GET" and (operation := _under_way(path, answer)):
            until(lambda: not _under_way(path, self.ask("GET", operation)), f"{operation} to end")
            return self.ask("GET", operation)
        return answer

    def kubectl(self, *words: str) -> str:
        """Run kubectl, retrying while the API server is unavailable."""

        def said() -> tuple[str]:
            done = subprocess.run(self.kubectl_line(*words), capture_output=True, text=True)
            if done.returncode and _AWAY.search(done.stderr):
                raise Transient(done.stderr)
            assert not done.returncode, f"`kubectl {' '.join(words)}`: {done.stderr}"
            return (done.stdout,)

        return until(said, f"kubectl {' '.join(words)}")[0]

    def kubectl_line(self, *words: str) -> list[str]:
        """Return a command for the sandbox's own kubectl.

        Older versions lose output of quick `exec` commands (kubernetes issue 131189).
        """
        program = binaries.ensure().program("kubectl")
        return [program, "--kubeconfig", str(self.place.kubeconfig), "-n", TEAM, *words]

    def furnish(self) -> None:
        """Add two spot slices and a CPU node to the agent, and a queue for them."""
        for name in ("tpu-0", "tpu-1"):
            self.agent.add_pool(of_slice(name, V4_16, ZONE, capacity="spot"))
        self.agent.add_pool(Pool("cpu", "e2-standard-8", {"cpu-0": ZONE}, labels=dict([render.node_labels.CPU_POOL])))
        self.add_queue(2)

    def add_queue(self, slices: int, capacity: str = "spot") -> None:
        """Create a queue with this number of slices, and a team that uses it."""
        for document in render.queues({render.PoolKind(V4_16, capacity): slices}, [TEAM], cpus=8, memory_gb=32):
            self.cluster.apply(document)
        account = {"metadata": {"name": SETTINGS.service_account, "namespace": TEAM}}
        self.cluster.apply({"apiVersion": "v1", "kind": "ServiceAccount", **account})

    def let_images_be_built(self, project: str, location: str, repository: str) -> None:
        """Create what `tpu cluster up` creates for image builds: an account, a source bucket, a target repository."""
        email = f"{bootstrap.IMAGE_ACCOUNT}@{project}.iam.gserviceaccount.com"
        self.ask("POST", f"iam/v1/projects/{project}/serviceAccounts", {"accountId": bootstrap.IMAGE_ACCOUNT})
        source = bootstrap.source_bucket(project)
        self.ask("POST", f"storage/v1/b?project={project}", {"name": source, "location": "US"})
        repositories = f"artifact_registry/v1/projects/{project}/locations/{location}/repositories"
        self.ask("POST", f"{repositories}?repositoryId={repository}", {"format": "DOCKER"})
        for role, method, policy in (
            ("roles/storage.objectViewer", "PUT", f"storage/v1/b/{source}/iam"),
            ("roles/artifactregistry.writer", "POST", f"{repositories}/{repository}:setIamPolicy"),
        ):
            bindings = {"bindings": [{"role": role, "members": [f"serviceAccount:{email}"]}]}
            body = bindings if method == "PUT" else {"policy": bindings}
            until(partial(self._taken, method, policy, body), f"{email} to be known")
        pushing = f"{repositories}/{repository}:testIamPermissions", "artifactregistry.repositories.uploadArtifacts"
        until(partial(self._may, email, *pushing), f"{email} to be allowed to push, the last of its grants")

    def _taken(self, method: str, path: str, body: Doc) -> bool:
        """Return whether Google knows the account already, which takes some time after its creation."""
        status, answer = self.google(method, path, body)
        assert status < 300 or "does not exist" in str(answer), answer
        return status < 300

    def _may(self, email: str, path: str, permission: str) -> bool:
        """Return whether the grant is effective already, which takes some time."""
        scopes = {"scope": ["https://www.googleapis.com/auth/cloud-platform"]}
        token = self.ask("POST", f"iam_credentials/v1/projects/-/serviceAccounts/{email}:generateAccessToken", scopes)
        status, answer = self.google("POST", path, {"permissions": [permission]}, token=token["accessToken"])
        assert status == 200, answer
        return bool(answer.get("permissions"))

    def send(self, name: str, *command: str, settings: Settings = SETTINGS, **fields: Any) -> Plan:
        spec = {"name": name, "tpu": V4_16.name, "slices": 2, "command": list(command), "image": "image:1", **fields}
        made = plan.make(JobSpec.from_json({"capacity": "spot", "rule": "pre", **spec}), settings, "gke")
        for document in render.documents(made):
            self.cluster.apply(document)
        return made

    def status(self, made: Plan) -> Doc:
        found: Doc = self.cluster.get("JobSet", made.id, made.team).get("status", {})
        return found

    def ended(self, made: Plan) -> str:
        """Return the condition with which the job ended, after waiting for it."""

        def how() -> str:
            true = [one["type"] for one in self.status(made).get("conditions", []) if one["status"] == "True"]
            return next((kind for kind in true if kind in ("Completed", "Failed")), "")

        return str(until(how, f"{made.id} to end"))

    def pods(self, made: Plan) -> list[Doc]:
        return self.cluster.list("Pod", made.team, labels=f"jobset.sigs.k8s.io/jobset-name={made.id}")

    def running(self, made: Plan, attempt: int = 0) -> list[Doc]:
        key = "jobset.sigs.k8s.io/restart-attempt"
        found = [pod for pod in self.pods(made) if pod["metadata"]["labels"].get(key) == str(attempt)]
        return [pod for pod in found if pod["status"].get("phase") == "Running"]

    def logs(self, pod: Doc) -> str:
        name, namespace = pod["metadata"]["name"], pod["metadata"]["namespace"]
        (text,) = until(lambda: ("".join(f"{line}\n" for line in self.cluster.logs(name, namespace)),), f"{name}'s log")
        return text


@contextmanager
def sandbox(home: Path, name: str, *words: str, addons: bool = True) -> Iterator[Box]:
    """Start a sandbox and stop it afterwards. Processes that had to be killed fail the test."""
    try:
        box = Box(home, name, *words, addons=addons)
        yield box
        box.tpu("down")
    finally:
        left = pods.kill_strays(home)
    assert not left, "processes outlived the sandbox"


def _under_way(path: str, answer: Any) -> str:
    """Return the path of an unfinished operation, or "" for any other answer."""
    if not isinstance(answer, dict) or answer.get("done") or answer.get("status") == "DONE":
        return ""
    api = "/".join(path.split("/")[:2])
    if "operationType" in answer:  # Compute Engine and GKE
        return f"{api}/projects/{answer['selfLink'].partition('/projects/')[2]}"
    name = str(answer.get("name", ""))
    return f"{api}/{name}" if "operations/" in name else ""
