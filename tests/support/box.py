"""A sandbox for the tests of one file: the command, and the doors that it has."""

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
"""A program for 16 chips that trains nothing, and behaves as one that does."""
ENDLESS_FIRST = STEPS.replace("int(sys.argv[1])", "int(sys.argv[1]) if host.world.attempt else 10**9")
"""The same; its first attempt ends only by what happens to it, however late that is."""
_AWAY = re.compile("failed calling webhook|connection refused|etcdserver: request timed out|TLS handshake timeout")
Doc = dict[str, Any]
until = partial(waiting.until, every=0.2)
"""Each time it looks it asks the API server."""


class Box:
    def __init__(self, home: Path, name: str, *words: str, addons: bool = True) -> None:
        self.home, self.name = home, name
        self.tpu("up", *words, "--api=*", *(["--addons"] if addons else []), "--seconds=0")
        self.place = read(home / "data" / "sandbox" / name)
        self.cluster = PatientCluster(self.place.kubeconfig)
        self.agent = agent(self.place)

    def tpu(self, *words: str) -> str:
        """`tpu sandbox`; its standard output."""
        env = {**os.environ, "TPUKIT_HOME": str(self.home), "PYTHONPATH": str(ROOT / "tools")}
        argv = [sys.executable, "-m", "tpukit", "sandbox", *words, "--name", self.name]
        done = subprocess.run(argv, env=env, capture_output=True, text=True)
        assert not done.returncode, f"`tpu sandbox {' '.join(words)}`: {done.stderr}"
        return done.stdout

    def agent_pid(self) -> int:
        status = json.loads(self.tpu("status", "--json"))
        return next(int(one["pid"]) for one in status["components"] if one["name"] == "agent")

    def google(self, method: str, path: str, body: object = None, *, token: str = "") -> tuple[int, Any]:
        """Status and answer of one of Google's APIs, or of the emulator's own door. Bytes are sent as they are. Without
        a token it is the owner who asks."""
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
        """As google(), where no refusal is expected. An operation that it begins has ended."""
        status, answer = self.google(method, path, body)
        assert status < 300, f"{method} {path}: {answer}"
        if method != "GET" and (operation := _under_way(path, answer)):
            until(lambda: not _under_way(path, self.ask("GET", operation)), f"{operation} to end")
            return self.ask("GET", operation)
        return answer

    def kubectl(self, *words: str) -> str:
        """Patiently as the cluster."""

        def said() -> tuple[str]:
            done = subprocess.run(self.kubectl_line(*words), capture_output=True, text=True)
            if done.returncode and _AWAY.search(done.stderr):
                raise Transient(done.stderr)
            assert not done.returncode, f"`kubectl {' '.join(words)}`: {done.stderr}"
            return (done.stdout,)

        return until(said, f"kubectl {' '.join(words)}")[0]

    def kubectl_line(self, *words: str) -> list[str]:
        """With the sandbox's own: older ones lose what a quick command prints to `exec` (kubernetes issue 131189)."""
        program = binaries.ensure().program("kubectl")
        return [program, "--kubeconfig", str(self.place.kubeconfig), "-n", TEAM, *words]

    def furnish(self) -> None:
        """Two spot slices and a CPU node of the agent's own, and a queue over them."""
        for name in ("tpu-0", "tpu-1"):
            self.agent.add_pool(of_slice(name, V4_16, ZONE, capacity="spot"))
        self.agent.add_pool(Pool("cpu", "e2-standard-8", {"cpu-0": ZONE}, labels=dict([render.node_labels.CPU_POOL])))
        self.add_queue(2)

    def add_queue(self, slices: int, capacity: str = "spot") -> None:
        """A queue over so many slices, and a team that sends to it."""
        for document in render.queues({render.PoolKind(V4_16, capacity): slices}, [TEAM], cpus=8, memory_gb=32):
            self.cluster.apply(document)
        account = {"metadata": {"name": SETTINGS.service_account, "namespace": TEAM}}
        self.cluster.apply({"apiVersion": "v1", "kind": "ServiceAccount", **account})

    def let_images_be_built(self, project: str, location: str, repository: str) -> None:
        """What `tpu cluster up` makes for that: an account, a bucket for source, a repository that it may push to."""
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
        """Google knows an account some time after it was made."""
        status, answer = self.google(method, path, body)
        assert status < 300 or "does not exist" in str(answer), answer
        return status < 300

    def _may(self, email: str, path: str, permission: str) -> bool:
        """A grant is in force some time after it was written down."""
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
        """The condition that the job ended with."""

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
    """One that is up. Whatever happens, nothing of it runs afterwards; what had to be killed fails the test."""
    try:
        box = Box(home, name, *words, addons=addons)
        yield box
        box.tpu("down")
    finally:
        left = pods.kill_strays(home)
    assert not left, "processes outlived the sandbox"


def _under_way(path: str, answer: Any) -> str:
    """Where an operation is found that has not ended; "" for any other answer."""
    if not isinstance(answer, dict) or answer.get("done") or answer.get("status") == "DONE":
        return ""
    api = "/".join(path.split("/")[:2])
    if "operationType" in answer:  # of Compute Engine and GKE
        return f"{api}/projects/{answer['selfLink'].partition('/projects/')[2]}"
    name = str(answer.get("name", ""))
    return f"{api}/{name}" if "operations/" in name else ""
