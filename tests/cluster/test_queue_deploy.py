"""`tpu queue deploy` in a sandbox: real gcloud, kubectl, API server and Kueue; Google's Firestore emulator as store.

Creator, REST front end and workers are pods of the sandbox. The tests follow one deployment, in order.
"""

from __future__ import annotations

import base64
import json
import os
import random
import re
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from google.oauth2.credentials import Credentials

from support import role_sets
from support.box import ROOT, TEAM, ZONE, Box, sandbox, until
from support.firestore_emulator import emulator
from support.role_sets import RoleSets
from tpubox.box import environment as box_environment
from tpubox.kubelet import Pool, of_slice
from tpukit import catalogue
from tpukit.cluster import queue_deployment
from tpukit.code_queue.client import Client
from tpukit.code_queue.decide import Outcome
from tpukit.code_queue.records import ENDED, QueuedJob
from tpukit.code_queue.results import INLINE, Results
from tpukit.core.errors import Denied, Transient
from tpukit.jobs import render
from tpukit.jobs.reasons import Reason
from tpukit.kernel.store.home import open_store

PROJECT, LOCATION, REPOSITORY = "tpu-project", "us-central2", "images"
SHAPE = catalogue.find("v5e-4")
SLICES, CLIENTS = 3, 8
JOBS = int(os.environ.get("QUEUE_JOBS", "16"))  # 200 take minutes
LINES = (
    "tpu queue submit program.py --timeout 60",
    "tpu queue list",
    "tpu queue follow JOB",
    "tpu queue show JOB",
    "tpu queue retry JOB",
    "tpu queue cancel JOB",
    "kubectl get pods --namespace tpukit-queue --selector app.kubernetes.io/component=creator",
    "tpu queue purge --older-than 0s",
    "tpu queue submit program.py",
    "tpu queue follow JOB",
)
"""Command lines of earlier scripts, in tpukit's spelling. JOB is the id that `submit` printed."""
KINDS = (
    "deployments,serviceaccounts,configmaps,secrets,roles,rolebindings,networkpolicies,resourcequotas,services,"
    "poddisruptionbudgets"
)


@dataclass
class Deployed:
    box: Box
    home: Path
    firestore: str
    said: list[subprocess.CompletedProcess[str]] = field(default_factory=list)

    def deploy(self) -> subprocess.CompletedProcess[str]:
        url = f"{LOCATION}-docker.pkg.dev/{PROJECT}/{REPOSITORY}"
        words = ["--tpu=v5e-4:spot", "--results=gs://my-artifacts/queue", f"--repository={url}", f"--team={TEAM}"]
        argv = [sys.executable, "-m", "tpukit", "queue", "deploy", str(ROOT), f"--store=firestore://{PROJECT}", *words]
        done = subprocess.run(argv, env=self.env, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr + self.box.kubectl("describe", "deployments,pods", "-A")
        self.said.append(done)
        return done

    def type(self, line: str) -> str:
        done = subprocess.run(["bash", "-euc", line], env=self.env, cwd=self.home, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr + self.box.kubectl("describe", "workloads,pods", "-A")
        return done.stdout

    @property
    def env(self) -> dict[str, str]:
        tpu = self.home / "bin" / "tpu"
        if not tpu.exists():
            tpu.parent.mkdir(parents=True)
            tpu.write_text(f'#!/bin/sh\nexec {sys.executable} -m tpukit "$@"\n')
            tpu.chmod(0o755)
        inside = box_environment.variables(self.box.place)
        own = {"TPUKIT_HOME": str(self.home), "PYTHONPATH": str(ROOT / "tools"), "CLOUDSDK_CONFIG": str(self.home)}
        path = os.pathsep.join((str(tpu.parent), inside["PATH"]))
        return {**os.environ, **inside, **own, "PATH": path, "FIRESTORE_EMULATOR_HOST": self.firestore}

    def pods(self, component: str) -> list[dict[str, Any]]:
        label = f"app.kubernetes.io/component={component}"
        return self.box.cluster.list("Pod", queue_deployment.NAMESPACE, labels=label)

    def ask(self, path: str, body: object = None, token: str = "") -> tuple[int, Any]:
        """Send a request to the REST front end, at the address of one of its pods."""
        pod, namespace = self.pods("rest")[0]["metadata"]["name"], queue_deployment.NAMESPACE
        own = self.box.kubectl("exec", f"--namespace={namespace}", pod, "--", "printenv", "POD_IP").strip()
        address = f"http://{own}:9467{path}"
        content = json.dumps(body).encode() if body is not None else None
        headers = {"Content-Type": "application/json", **({"Authorization": f"Bearer {token}"} if token else {})}
        request = urllib.request.Request(address, content, headers)
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(request, timeout=60) as answer:
                return answer.status, json.loads(answer.read())
        except urllib.error.HTTPError as error:
            with error:
                return error.code, None

    def token(self) -> str:
        secret = self.box.cluster.get("Secret", queue_deployment.TOKEN, queue_deployment.NAMESPACE)
        return base64.b64decode(secret["data"]["token"]).decode()

    def everything(self) -> dict[str, Any]:
        """Return everything that a deployment creates, in Google Cloud and Kubernetes, without controllers' counts."""
        made = {
            f"{one['kind']} {namespace}/{one['metadata']['name']}": (
                one["metadata"]["uid"],
                one["metadata"].get("generation"),
                {key: value for key, value in one.items() if key not in ("metadata", "status")},
            )
            for namespace in (queue_deployment.NAMESPACE, TEAM)
            for one in json.loads(self.box.kubectl("get", KINDS, f"--namespace={namespace}", "--output=json"))["items"]
        }
        every = self.box.ask("GET", "emulator/resources")
        return {**made, "google": [one for one in every if one.split()[0] in ("account", "build", "image", "policy")]}


@pytest.fixture(scope="module")
def deployed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployed]:
    """Create a deployment with slices of one host, CPU nodes, a team, and the resources of `tpu cluster up`."""
    home = tmp_path_factory.mktemp("deployed")
    with emulator(home / "firestore.log") as firestore, sandbox(home, "queue") as box:
        for number in range(SLICES):
            box.agent.add_pool(of_slice(f"v5e-{number}", SHAPE, ZONE, capacity="spot"))
        cpus = {f"cpu-{number}": ZONE for number in range(2)}
        box.agent.add_pool(Pool("cpu", "e2-standard-8", cpus, labels=dict([render.node_labels.CPU_POOL])))
        for document in render.queues({render.PoolKind(SHAPE, "spot"): SLICES}, [TEAM], cpus=8, memory_gb=32):
            box.cluster.apply(document)
        box.ask("POST", f"storage/v1/b?project={PROJECT}", {"name": "my-artifacts"})
        box.let_images_be_built(PROJECT, LOCATION, REPOSITORY)
        made = Deployed(box, home / "person", firestore.address)
        made.deploy()
        yield made


def test_deploy_makes_accounts_without_keys_builds_both_images_and_waits_until_all_pods_serve(deployed: Deployed):
    done = deployed.said[0]
    assert "account tpukit-queue-worker: done" in done.stderr
    policy = deployed.box.ask("POST", f"resource_manager/v1/projects/{PROJECT}:getIamPolicy", {})
    (users,) = [one["members"] for one in policy["bindings"] if one["role"] == "roles/datastore.user"]
    accounts = {member.partition(":")[2].partition("@")[0] for member in users}
    assert accounts == {"tpukit-queue", "tpukit-queue-rest", "tpukit-queue-worker"}
    asked = deployed.box.ask("GET", "emulator/requests?path=iam/")
    assert not [one for one in asked if one["path"].endswith("/keys") and one["method"] == "POST"]
    registry = f"artifact_registry/v1/projects/{PROJECT}/locations/{LOCATION}/repositories/{REPOSITORY}"
    images = deployed.box.ask("GET", f"{registry}/dockerImages")["dockerImages"]
    digests = {one["uri"].rpartition("/")[2].partition("@")[0]: one["uri"] for one in images}
    assert set(digests) == set(queue_deployment.DOCKERFILES)
    for name in queue_deployment.DEPLOYMENTS:
        found = deployed.box.cluster.get("Deployment", name, queue_deployment.NAMESPACE)
        assert found["status"]["availableReplicas"] == 2
        assert found["spec"]["template"]["spec"]["containers"][0]["image"] == digests[queue_deployment.SERVE]


def test_line_that_deploy_prints_sends_both_test_jobs_and_prints_their_results(deployed: Deployed):
    line = deployed.said[0].stdout.strip()
    assert line == f"TPUKIT_STORE=firestore://{PROJECT} tpu queue test --timeout 300"
    devices, product = deployed.type(line).splitlines()
    assert devices == "Found 4 devices"
    assert float(product) == 1e9


def test_rest_front_end_takes_a_job_from_who_shows_the_token_and_nobody_else(deployed: Deployed):
    assert deployed.ask("/v1/jobs")[0] == 401
    assert deployed.ask("/v1/jobs", {"code": "result = 6 * 7"}, token="x" * 32)[0] == 401
    token = deployed.token()
    status, made = deployed.ask("/v1/jobs", {"code": "result = 6 * 7"}, token=token)
    assert status < 300

    def ended() -> Any:
        _, job = deployed.ask(f"/v1/jobs/{made['id']}", token=token)
        return job if job and job["status"] in ("completed", "failed") else None  # None: the store is slow

    assert until(ended, lambda: deployed.box.kubectl("describe", "workloads,pods"))["result"] == "42"


def test_accounts_have_the_roles_that_results_need_and_need_each_permission(deployed: Deployed, monkeypatch):
    """Write results too large for documents as the pods' account, and read them as the front end's.

    The test runs the code of both, because pods on nodes of the agent's own have no account.
    """
    google = f"http://127.0.0.1:{deployed.box.place.ports['google']}"
    sets, results = RoleSets(google, deployed.box.place.token, PROJECT), Results("gs://my-artifacts/queue")
    monkeypatch.setenv("API_ENDPOINT_OVERRIDE", google)
    monkeypatch.delenv("STORAGE_EMULATOR_HOST", raising=False)
    job, large, keys = QueuedJob(code="x", attempts=1), Outcome(Reason.DONE, "x" * 2 * INLINE), count()

    def become(account: str) -> None:
        path = f"iam_credentials/v1/projects/-/serviceAccounts/{account}@{PROJECT}.iam.gserviceaccount.com"
        scope = {"scope": ["https://www.googleapis.com/auth/cloud-platform"]}
        token = deployed.box.ask("POST", f"{path}:generateAccessToken", scope)["accessToken"]
        monkeypatch.setattr("google.auth.default", lambda **_: (Credentials(token), PROJECT))

    def wrote() -> str:
        try:
            return results.shorten(f"role-sets-{next(keys)}", job, large).result_uri
        except Denied:
            return ""

    become(role_sets.QUEUE_WORKER.account)
    uri = until(wrote, "the grants to arrive")
    sets.check(role_sets.QUEUE_WORKER)
    assert sets.check_each_is_needed(role_sets.QUEUE_WORKER.account, lambda: bool(wrote())) == {
        "storage.objects.create"
    }

    def read() -> bool:
        try:
            return bool(results.read(uri.split("/")[-2], QueuedJob(code="x", attempts=1, result_uri=uri)))
        except Denied:
            return False

    assert not read(), "anybody's code reads the results of all others"
    become(role_sets.QUEUE_REST.account)
    until(read, "the grants to arrive")
    sets.check(role_sets.QUEUE_REST)
    assert sets.check_each_is_needed(role_sets.QUEUE_REST.account, read) == {"storage.objects.get"}
    assert not wrote()
    sets.check(role_sets.QUEUE_CREATOR)


def test_creator_that_is_taken_away_is_replaced_and_a_failure_is_what_the_alert_counts(deployed: Deployed):
    for pod in deployed.pods("creator"):
        deployed.box.cluster.delete("Pod", pod["metadata"]["name"], queue_deployment.NAMESPACE)
    send = f"TPUKIT_STORE=firestore://{PROJECT} tpu queue submit --code 'raise ValueError(7)'"
    key = deployed.type(send).strip()
    show = f"TPUKIT_STORE=firestore://{PROJECT} tpu queue show {key} --json"
    until(lambda: json.loads(deployed.type(show))["status"] == "failed", every=2.0)
    module = (ROOT / "terraform" / "modules" / "queue_monitoring" / "main.tf").read_text()
    wanted = re.search(r'\n  filter +=  ?(".*")\n', module)
    assert wanted
    condition = json.loads(wanted[1]).replace("${var.team}", TEAM)

    def counted() -> list[Any]:
        body = {"resourceNames": [f"projects/{PROJECT}"], "filter": condition}
        return list(deployed.box.ask("POST", "logging/v2/entries:list", body).get("entries", []))

    until(counted, "the line that says so")
    assert [one["textPayload"].partition(":")[0] for one in counted()] == [key]


def test_jobs_of_8_clients_end_once_while_creators_and_workers_are_killed(deployed: Deployed, monkeypatch):
    monkeypatch.setenv("FIRESTORE_EMULATOR_HOST", deployed.firestore)
    queue = Client(open_store(f"firestore://{PROJECT}", deployed.home))

    def send(number: int) -> list[str]:
        client = Client(open_store(f"firestore://{PROJECT}", deployed.home / str(number)))
        ids = [
            client.submit(f"result = '{number}/{index}'", timeout=600, max_faults=1000)
            for index in range(JOBS // CLIENTS)
        ]
        client.close()
        return ids

    with ThreadPoolExecutor(CLIENTS) as pool:
        sent = [key for ids in pool.map(send, range(CLIENTS)) for key in ids]
    dice = random.Random(14)

    def jobs() -> dict[str, QueuedJob]:
        try:
            return {key: queue.get(key) for key in sent}
        except Transient:  # a busy machine: other work goes first
            return {}

    def ended() -> int:
        return sum(one.status in ENDED for one in jobs().values())

    def running(namespace: str, label: str) -> list[str]:
        found = deployed.box.cluster.list("Pod", namespace, labels=label)
        return [one["metadata"]["name"] for one in found if one["status"].get("phase") == "Running"]

    def running_or_over(namespace: str, label: str) -> list[str] | bool:
        """Return the running pods, or True once all jobs have ended, when no worker is left."""
        return running(namespace, label) or ended() == JOBS

    for share in range(1, 5):
        until(lambda share=share: ended() >= JOBS * share // 6, every=1.0)
        for namespace, label in (
            (queue_deployment.NAMESPACE, "app.kubernetes.io/component=creator"),
            (TEAM, "tpukit.dev/queue=worker"),
        ):
            names = until(partial(running_or_over, namespace, label), every=0.2)
            if isinstance(names, bool):
                break
            name = dice.choice(names)
            gone = ("--grace-period=0", "--force", "--ignore-not-found")
            deployed.box.kubectl("delete", "pod", name, f"--namespace={namespace}", *gone)
    until(lambda: ended() == JOBS, lambda: deployed.box.kubectl("describe", "workloads,pods", "-A"), every=1.0)
    done = until(jobs, "the store to answer")
    assert {one.status for one in done.values()} == {"completed"}
    assert len({one.result for one in done.values()}) == JOBS
    for key, job in done.items():
        assert job.created_at <= job.scheduled_at <= job.started_at <= job.completed_at
        assert len([one for one in queue.events(key) if one.text.startswith("completed")]) == 1
    queue.close()


def test_second_deploy_changes_nothing(deployed: Deployed):
    before = deployed.everything()
    assert len(before) > 20
    again = deployed.deploy()
    assert deployed.everything() == before
    assert "building" not in again.stderr
    assert "roles for Firestore: already there" in again.stderr


def test_lines_of_the_scripts_list_show_follow_cancel_and_purge_jobs(deployed: Deployed):
    (deployed.home / "program.py").write_text("logger.info('working')\nresult = 6 * 7\n")
    store, said, job = f"export TPUKIT_STORE=firestore://{PROJECT}\n", list[str](), ""
    for line in LINES:
        if "purge" in line:  # wait until cancelled jobs have ended
            show = f"{store}tpu queue show {job} --json"
            until(lambda: json.loads(deployed.type(show))["status"] in ENDED, every=2.0)  # noqa: B023
        said.append(deployed.type(store + line.replace("JOB", job)))
        job = said[-1].strip() if "submit" in line else job
    first, listed, followed, shown, retried, cancelled, creators, purged, second, last = said
    assert first.strip() in listed
    assert followed == last == "42\n"
    assert re.search(r"^completed_at +\d{4}-\d\d-\d\d \d\d:\d\d", shown, re.MULTILINE), shown
    assert re.search(r"^logs +.*working", shown, re.MULTILINE), shown
    assert retried.startswith(f"{first.strip()}: ") and cancelled.startswith(f"{first.strip()}: ")
    assert len([line for line in creators.splitlines() if " Running " in line]) == 2
    assert first.strip() in purged.split() and second.strip() not in purged.split()


def test_uninstall_removes_the_queue_with_its_accounts_and_leaves_its_jobs(deployed: Deployed):
    url = f"{LOCATION}-docker.pkg.dev/{PROJECT}/{REPOSITORY}"
    words = f"--team={TEAM} --repository={url} --results=gs://my-artifacts/queue --store=firestore://{PROJECT}"
    deployed.type(f"tpu queue uninstall {ROOT} {words} --yes")
    assert not deployed.pods("creator") or until(lambda: not deployed.pods("creator"), "the creators to leave")
    left = deployed.box.ask("GET", "emulator/resources")
    assert not [one for one in left if one.startswith("account ") and "tpukit-queue" in one]
    listed = deployed.type(f"TPUKIT_STORE=firestore://{PROJECT} tpu queue list")
    assert "completed" in listed
