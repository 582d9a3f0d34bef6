"""JobSets on the node agent: real Kubernetes, JobSet and Kueue, and hosts that are real processes of this machine."""

from __future__ import annotations

import hashlib
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from support.box import ENDLESS_FIRST, ROOT, STEPS, TEAM, V4_16, Box, sandbox, until
from support.firestore_emulator import PROJECT, emulator
from support.ports import free_port
from support.waiting import PATIENCE
from tpubox.kubelet import Pool
from tpukit.cli.queue import DEVICES, MATRIX
from tpukit.code_queue import manifest
from tpukit.code_queue.client import Client
from tpukit.code_queue.records import ENDED
from tpukit.jobs.spec import Settings
from tpukit.kernel.store.home import open_store

HELLO = (ROOT / "examples" / "01-hello-tpu" / "hello.py").read_text()
CONFINED = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
"""Security context that a team's namespace requires of every container."""
RESTRICTED = {"runAsNonRoot": True, "runAsUser": 65532, "seccompProfile": {"type": "RuntimeDefault"}}
"""Security context that it requires of the pod, with a user that no image here declares."""
INSIDE = """
import errno, json, os
import jax
from tpukit import host as tpu
host = tpu.start()
def wrote(path):
    try:
        open(path, "w").close()
    except OSError as error:
        return errno.errorcode[error.errno]
    return "wrote"
with open("/proc/self/status") as file:
    status = dict(line.split(None, 1) for line in file if line.startswith(("NoNewPrivs", "Cap")))
told = {
    "ids": [os.getuid(), os.getgid()],
    "status": {name.strip(":"): int(value, 16) for name, value in status.items()},
    "wrote": {path: wrote(path) for path in ("/etc/x", "x", "/tmp/x", "/dev/shm/x")},
    "devices": jax.device_count(),
}
print("told", json.dumps(told), flush=True)
host.close()
"""
"""A program of a rendered job that reports its own restrictions."""

SCALARS = """
import os, pathlib, time
from tpukit.host.scalars import Scalars
start, work = int(pathlib.Path("/bucket/data/start").read_text()), pathlib.Path(os.environ["TPUKIT_WORKDIR"])
work.mkdir(parents=True, exist_ok=True)
if os.environ["TPU_WORKER_ID"] == "0":
    scalars = Scalars(str(work / "tensorboard" / "train"))
    for step in range(3):
        scalars.write(step, loss=float(start - step))
        scalars.flush()
        while step == 0 and not pathlib.Path("/bucket/data/go").exists():
            time.sleep(0.1)
    scalars.close()
(work / f"end-{os.environ['TPU_WORKER_ID']}").touch()
"""
"""A program that reads from a bucket, writes to it, and logs scalars for TensorBoard."""


@pytest.fixture(scope="module")
def box(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Box]:
    """Yield a sandbox with two pools of the agent's own, a CPU pool, and a queue over them."""
    with sandbox(tmp_path_factory.mktemp("agent"), "agent") as box:
        box.furnish()
        yield box


def test_hello_runs_on_every_host_of_every_slice_and_kubectl_shows_what_each_said(box: Box):
    made = box.send("hello", "python", "-c", HELLO)
    assert box.ended(made) == "Completed"
    hosts = box.pods(made)
    on = {pod["metadata"]["labels"]["jobset.sigs.k8s.io/job-index"]: set() for pod in hosts}
    for pod in hosts:
        on[pod["metadata"]["labels"]["jobset.sigs.k8s.io/job-index"]].add(pod["spec"]["nodeName"].rpartition("-")[0])
    assert sorted(map(sorted, on.values())) == [["gke-sandbox-tpu-0"], ["gke-sandbox-tpu-1"]]
    said = [box.kubectl("logs", pod["metadata"]["name"]) for pod in hosts]
    assert sorted(re.search(r"hello from host (\d) of 4", text)[1] for text in said) == ["0", "1", "2", "3"]
    assert all("16 chips on 2 slices add up to 136: all is well" in text for text in said)
    assert "restartsCountTowardsMax" not in box.status(made)


def test_program_of_a_job_runs_as_the_user_and_with_the_limits_that_its_jobset_names(box: Box):
    made = box.send("confined", "python", "-c", INSIDE, slices=1)
    assert box.ended(made) == "Completed", [box.logs(pod) for pod in box.pods(made)]
    for pod in box.pods(made):
        (line,) = (line for line in box.logs(pod).splitlines() if line.startswith("told "))
        told = json.loads(line.removeprefix("told "))
        user = pod["spec"]["securityContext"]["runAsUser"]
        assert told["ids"] == [user, user]
        assert told["status"].pop("NoNewPrivs") == 1
        assert set(told["status"].values()) == {0}, told
        assert told["wrote"] == {"/etc/x": "EROFS", "x": "EROFS", "/tmp/x": "wrote", "/dev/shm/x": "wrote"}
        assert told["devices"] == V4_16.chips


def test_pod_that_would_run_as_root_against_its_own_word_is_refused_as_by_a_kubelet(box: Box):
    container = {"name": "main", "image": "image", "command": ["true"], "securityContext": CONFINED}
    context = {name: value for name, value in RESTRICTED.items() if name != "runAsUser"}
    spec = {"securityContext": context, "nodeSelector": {"tpukit.dev/pool": "cpu"}, "containers": [container]}
    metadata = {"name": "rooted", "namespace": TEAM}
    box.cluster.create({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})

    def waiting() -> Any:
        found = box.cluster.get("Pod", "rooted", TEAM).get("status", {}).get("containerStatuses")
        return found and found[0]["state"].get("waiting")

    told = until(waiting)
    assert told["reason"] == "CreateContainerConfigError"
    assert told["message"].startswith("container has runAsNonRoot and image will run as root")
    box.cluster.delete("Pod", "rooted", TEAM)


def test_container_whose_liveness_probe_fails_is_started_again_and_kubectl_says_why(box: Box):
    probe = {"exec": {"command": ["/bin/sh", "-c", "test ! -e /tmp/sick || { echo so sick; false; }"]}}
    probe |= {"periodSeconds": 1, "timeoutSeconds": 60, "failureThreshold": 2, "terminationGracePeriodSeconds": 1}
    script = "rm -f /tmp/sick; echo up; while [ ! -e /tmp/go ]; do sleep 0.1; done; touch /tmp/sick; exec sleep 600"
    main = {"name": "main", "image": "image", "command": ["/bin/sh", "-c", script], "securityContext": CONFINED}
    volume = {"name": "tmp", "emptyDir": {}}  # files in a container's own /tmp are lost when it restarts
    main |= {"livenessProbe": probe, "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}]}
    spec = {"securityContext": RESTRICTED, "nodeSelector": {"tpukit.dev/pool": "cpu"}, "volumes": [volume]}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "sick", "namespace": TEAM}}
    box.cluster.create({**pod, "spec": {**spec, "containers": [main]}})

    def status() -> Any:
        return (box.cluster.get("Pod", "sick", TEAM).get("status", {}).get("containerStatuses") or [{}])[0]

    until(lambda: "running" in status().get("state", {}), "it to run")
    box.kubectl("exec", "sick", "--", "touch", "/tmp/go")
    until(lambda: status()["restartCount"] >= 1, "it to be started again")
    assert status()["lastState"]["terminated"]["exitCode"] == 137
    until(lambda: "Liveness probe failed: so sick" in box.kubectl("describe", "pod", "sick"), "an event")
    box.cluster.delete("Pod", "sick", TEAM, grace=0)


def test_container_that_is_deleted_has_its_hooks_before_it_is_told(box: Box):
    script = "trap 'cat /tmp/said; exit 0' TERM; touch /tmp/up; while :; do sleep 0.1; done"
    first = {"exec": {"command": ["sh", "-c", "until [ -e /tmp/up ]; do sleep 0.1; done; echo began >> /tmp/said"]}}
    last = {"exec": {"command": ["sh", "-c", "echo saved >> /tmp/said"]}}
    main = {"name": "main", "image": "image", "command": ["/bin/sh", "-c", script], "securityContext": CONFINED}
    main |= {"lifecycle": {"postStart": first, "preStop": last}}
    spec = {"securityContext": RESTRICTED, "nodeSelector": {"tpukit.dev/pool": "cpu"}, "restartPolicy": "Never"}
    metadata = {"name": "hooked", "namespace": TEAM, "finalizers": ["tpukit.dev/looked-at"]}
    box.cluster.create(
        {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {**spec, "containers": [main]}}
    )
    box.kubectl("wait", "pod/hooked", "--for=condition=Ready", f"--timeout={PATIENCE}s")
    box.kubectl("delete", "pod/hooked", "--wait=false")
    until(lambda: box.cluster.get("Pod", "hooked", TEAM)["status"]["phase"] == "Succeeded", "it to leave")
    assert box.kubectl("logs", "hooked") == "began\nsaved\n"
    box.cluster.patch("Pod", "hooked", {"metadata": {"finalizers": None}}, TEAM)


def test_serve_is_ready_by_the_probes_of_its_own_deployment(box: Box, tmp_path: Path):
    """Run one replica of the two, because hosts here share the loopback address of the health port."""
    folder, port = tmp_path / "serve", str(free_port())
    shutil.copytree(ROOT / "deploy" / "serve", folder)
    for name, changes in {
        "deployment.yaml": {"replicas: 2": "replicas: 1", '"2"]': f'"2", --port, "{port}"]',
                            "live]": f'live, --port, "{port}"]', "ready]": f'ready, --port, "{port}"]'},
        "config.env": {"firestore://my-project": ""},
        "kustomization.yaml": {"- teams.yaml\n": ""},
    }.items():  # fmt: skip
        text = (folder / name).read_text(encoding="utf-8")
        for old, new in changes.items():
            assert old in text
            text = text.replace(old, new)
        (folder / name).write_text(text, encoding="utf-8")
    space = "--namespace=tpukit-serve"
    box.kubectl("apply", space, "-k", str(folder))
    box.kubectl("wait", space, "deployment/serve", "--for=condition=Available", f"--timeout={PATIENCE}s")
    (pod,) = box.cluster.list("Pod", "tpukit-serve")
    (container,) = pod["status"]["containerStatuses"]
    assert (container["started"], container["ready"], container["restartCount"]) == (True, True, 0)
    box.kubectl("delete", space, "-k", str(folder), "--wait=false")


def test_error_of_the_users_program_counts_and_ends_the_job_when_the_budget_is_spent(box: Box):
    code = "import os, sys, time; os.environ['TPU_WORKER_ID'] == '1' and sys.exit(1); time.sleep(60)"
    made = box.send("wrong", "python", "-c", code, max={"restarts": 1, "grace": "5s"})
    assert box.ended(made) == "Failed"
    status = box.status(made)
    assert (status["restarts"], status["restartsCountTowardsMax"]) == (1, 1)


def test_pod_that_asks_for_some_chips_of_its_host_is_rejected_in_the_words_of_gke(box: Box):
    resources = {"limits": {"google.com/tpu": "2"}}
    main = {"name": "main", "image": "i", "command": ["true"], "resources": resources, "securityContext": CONFINED}
    taint = {"operator": "Exists"}
    profile = {"runAsNonRoot": True, "runAsUser": 1000, "seccompProfile": {"type": "RuntimeDefault"}}
    spec = {"restartPolicy": "Never", "containers": [main], "tolerations": [taint], "securityContext": profile}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "some-chips", "namespace": TEAM}, "spec": spec}
    box.cluster.create(pod)
    until(lambda: box.cluster.get("Pod", "some-chips", TEAM)["status"]["phase"] == "Failed", "the pod to be rejected")
    status = box.cluster.get("Pod", "some-chips", TEAM)["status"]
    box.cluster.delete("Pod", "some-chips", TEAM)
    assert status["reason"] == "UnexpectedAdmissionError"
    assert "you must request all 4 chips on this node together" in status["message"]
    assert not status.get("containerStatuses")


def test_removed_pool_that_keeps_budgets_waits_for_one_then_its_pod_is_evicted_with_its_grace(box: Box):
    pool = Pool.from_json(box.agent.pools()["tpu-1"]["pool"])
    script = "trap 'sleep 1; exit 0' TERM; while :; do sleep 0.1; done"
    main = {"name": "main", "image": "i", "command": ["/bin/sh", "-c", script], "securityContext": CONFINED}
    spec = {
        "restartPolicy": "Never",
        "containers": [main],
        "tolerations": [{"operator": "Exists"}],
        "nodeSelector": {"cloud.google.com/gke-nodepool": "tpu-1"},
        "securityContext": {"runAsNonRoot": True, "runAsUser": 1000, "seccompProfile": {"type": "RuntimeDefault"}},
    }
    metadata = {"name": "kept", "namespace": TEAM, "labels": {"app": "kept"}, "finalizers": ["tpukit.dev/looked-at"]}
    budgets = f"/apis/policy/v1/namespaces/{TEAM}/poddisruptionbudgets"
    wanted = {"minAvailable": 1, "selector": {"matchLabels": {"app": "kept"}}}
    budget = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "kept"}, "spec": wanted}
    box.cluster.call("POST", budgets, body=budget)
    box.cluster.create({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})

    def status() -> dict[str, Any]:
        found: dict[str, Any] = box.cluster.get("Pod", "kept", TEAM)["status"]
        return found

    until(lambda: status()["phase"] == "Running", "the pod to run")
    until(lambda: box.cluster.call("GET", f"{budgets}/kept")["status"].get("currentHealthy") == 1, "a counted pod")
    removal = threading.Thread(target=box.agent.remove_pool, args=("tpu-1",), kwargs={"budgets": True})
    removal.start()
    cordoned = "cloud.google.com/gke-nodepool=tpu-1"
    until(lambda: all(node["spec"].get("unschedulable") for node in box.cluster.list("Node", labels=cordoned)))
    time.sleep(3)
    assert status()["phase"] == "Running"
    assert len(box.cluster.list("Node", labels=cordoned)) == 2
    box.cluster.call("DELETE", f"{budgets}/kept")
    removal.join(PATIENCE)
    ended = status()
    box.cluster.patch("Pod", "kept", {"metadata": {"finalizers": None}}, TEAM)
    box.agent.add_pool(pool)
    assert ended["phase"] == "Succeeded", "it had its grace"
    assert "EvictionByEvictionAPI" in [one.get("reason") for one in ended["conditions"]]
    assert "reason" not in ended


@pytest.mark.parametrize("code", [134, 143])
def test_lost_hardware_is_repeated_and_not_counted(box: Box, code: int):
    script = f"import os, sys; sys.exit({code} if os.environ['TPUKIT_ATTEMPT'] == '0' else 0)"
    made = box.send(f"lost-{code}", "python", "-c", script, max={"restarts": 1, "grace": "5s"})
    assert box.ended(made) == "Completed"
    status = box.status(made)
    assert status["restarts"] == 1
    assert status.get("restartsCountTowardsMax", 0) == 0


def test_preempted_pool_ends_the_attempt_comes_back_and_the_next_attempt_runs(box: Box):
    made = box.send("preempted", "python", "-c", ENDLESS_FIRST, "60", max={"restarts": 1, "grace": "20s"})
    before = nodes(box, "tpu-1")
    box.agent.preempt("tpu-1", step=5, back=2.0)
    until(lambda: nodes(box, "tpu-1") != before, "the pool to go")
    assert box.ended(made) == "Completed"
    status = box.status(made)
    assert status["restarts"] >= 1
    assert status.get("restartsCountTowardsMax", 0) == 0
    last = f"attempt {status['restarts']}"
    assert all(last in box.logs(pod) and "ended" in box.logs(pod) for pod in box.pods(made))
    assert box.agent.pools()["tpu-1"]["presence"] == "here"
    assert not nodes(box, "tpu-1") & before, "what came back is new"


def nodes(box: Box, pool: str) -> set[str]:
    """Return the ids of a pool's nodes. A recreated node has a new id."""
    found = box.cluster.list("Node", labels=f"cloud.google.com/gke-nodepool={pool}")
    return {node["metadata"]["uid"] for node in found}


def test_agent_killed_while_a_job_runs_finds_the_same_processes_and_nothing_runs_twice(box: Box):
    made = box.send("killed", "python", "-c", STEPS, "300", max={"restarts": 1, "grace": "20s"})
    until(lambda: len(box.running(made)) == 4)
    until(lambda: all("began" in box.logs(pod) for pod in box.running(made)))
    before = {pod["metadata"]["uid"]: box.logs(pod) for pod in box.running(made)}
    os.kill(box.agent_pid(), signal.SIGKILL)
    box.tpu("up")
    until(box.agent.ready)
    after = {pod["metadata"]["uid"]: box.logs(pod) for pod in box.pods(made)}
    assert sorted(after) == sorted(before)
    assert all(after[uid].startswith(text) for uid, text in before.items())
    assert box.ended(made) == "Completed"
    for pod in box.pods(made):
        assert box.logs(pod).count("began") == 1
        assert pod["status"]["containerStatuses"][0]["restartCount"] == 0
    assert box.status(made).get("restarts", 0) == 0


def test_lost_host_is_replaced_and_the_next_attempt_is_not_charged_to_the_user(box: Box):
    made = box.send("lost-host", "python", "-c", ENDLESS_FIRST, "60", max={"restarts": 1, "grace": "20s"})
    victim = "gke-sandbox-tpu-0-0001"
    box.agent.lose(victim, step=5, back=3.0)
    assert box.ended(made) == "Completed"
    status = box.status(made)
    assert status["restarts"] >= 1
    assert status.get("restartsCountTowardsMax", 0) == 0
    assert box.agent.pools()["tpu-0"]["lost"] == {}


def test_agent_killed_at_random_moments_runs_every_pod_once_and_tells_its_end(box: Box):
    chance = random.Random(7)
    names = [f"one-{number}" for number in range(16)]
    for number, name in enumerate(names):
        wait, code = f"sleep {chance.uniform(0.2, 4):.2f}", number % 3
        script = f"echo began >> /mark/m; {wait}; echo ended >> /mark/m; cat /mark/m; exit {code}"
        container = {
            "name": "main",
            "image": "image",
            "command": ["/bin/sh", "-c", script],
            "securityContext": CONFINED,
            "volumeMounts": [{"name": "mark", "mountPath": "/mark"}],  # of the pod, shared by restarts of the container
        }
        spec = {
            "restartPolicy": "Never",
            "nodeSelector": {"tpukit.dev/pool": "cpu"},
            "securityContext": RESTRICTED,
            "containers": [container],
            "volumes": [{"name": "mark", "emptyDir": {}}],
        }
        metadata = {"name": name, "namespace": "research"}
        box.cluster.create({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
        if number % 4 == 3:
            time.sleep(chance.uniform(0, 0.5))
            os.kill(box.agent_pid(), signal.SIGKILL)
            box.tpu("up")

    def codes() -> list[int] | None:
        found = [box.cluster.get("Pod", name, "research")["status"] for name in names]
        if not all(status["phase"] in ("Succeeded", "Failed") for status in found):
            return None
        return [status["containerStatuses"][0]["state"]["terminated"]["exitCode"] for status in found]

    assert until(codes) == [number % 3 for number in range(16)]
    printed = [box.logs(box.cluster.get("Pod", name, "research")) for name in names]
    assert printed == ["began\nended\n"] * 16
    for name in names:
        box.cluster.delete("Pod", name, "research")


def test_exec_runs_a_command_beside_the_program(box: Box):
    made = box.send("entered", "sleep", "600", slices=1, max={"grace": "5s"})
    pod = until(lambda: box.running(made))[0]
    name = pod["metadata"]["name"]
    shown = box.kubectl("exec", name, "--", "sh", "-c", "echo $TPU_WORKER_HOSTNAMES")
    who = box.kubectl("exec", name, "--", "id", "-u")
    assert int(who) == pod["spec"]["securityContext"]["runAsUser"]
    assert shown.strip().split(",") == [f"{made.id}-slice-0-{index}.{made.subdomain}" for index in (0, 1)]
    assert box.kubectl("exec", name, "--", "sh", "-c", "cat; echo nothing to read") == "nothing to read\n"
    typed = random.Random(1).randbytes(1_000_000)
    argv = box.kubectl_line("exec", "--stdin", name, "--", "sha256sum")
    printed = subprocess.run(argv, input=typed, stdout=subprocess.PIPE, check=True).stdout
    assert printed.split()[0] == hashlib.sha256(typed).hexdigest().encode()
    script = "until stty size | grep -qx '33 91'; do sleep 0.1; done; read word; test -t 1 && echo $word on a terminal"
    shown = on_a_terminal(box, "exec", "--stdin", "--tty", name, "--", "sh", "-c", script)
    assert "typed on a terminal" in shown
    box.cluster.delete("JobSet", made.id, made.team, foreground=True)
    until(lambda: not box.pods(made))


def on_a_terminal(box: Box, *words: str) -> str:
    """Return the output of kubectl on a terminal of 91 by 33 characters, with a line typed in."""
    screen, keyboard = os.openpty()
    termios.tcsetwinsize(screen, (33, 91))
    os.write(screen, b"typed\n")
    shown = bytearray()
    with subprocess.Popen(box.kubectl_line(*words), stdin=keyboard, stdout=keyboard, stderr=keyboard):
        os.close(keyboard)
        with suppress(OSError):  # kubectl has ended, so the terminal is closed
            while piece := os.read(screen, 1 << 16):
                shown += piece
    os.close(screen)
    return shown.decode()


def test_bucket_that_a_job_mounts_is_googles_and_its_uploader_writes_to_vertex_ai(box: Box):
    project = "projects/tpu-project/locations/us-central1"
    box.ask("POST", "storage/v1/b?project=tpu-project", {"name": "my-artifacts"})
    box.ask("POST", "upload/storage/v1/b/my-artifacts/o?uploadType=media&name=data%2Fstart", b"7")
    name = box.ask("POST", f"vertex_ai/v1/{project}/tensorboards", {"displayName": "board"})["response"]["name"]
    made = box.send(
        "uploaded",
        "python",
        "-c",
        SCALARS,
        settings=Settings.from_json({"team": "research", "tensorboard": name}),
        slices=1,
        tensorboard=True,
        mounts=[{"bucket": "my-artifacts", "path": "/bucket", "read_only": False}],
        workdir="/bucket/runs/uploaded",
    )
    series = f"vertex_ai/v1/{name}/experiments/{made.id}/runs/train/timeSeries/loss:read"

    def written() -> list[Any]:
        status, answer = box.google("GET", series)  # the last upload follows the end
        return answer["timeSeriesData"]["values"] if status == 200 else []

    until(written, "the uploader, which goes when the job has ended, to be there")
    box.ask("POST", "upload/storage/v1/b/my-artifacts/o?uploadType=media&name=data%2Fgo", b"1")
    assert box.ended(made) == "Completed"
    found = box.ask("GET", "storage/v1/b/my-artifacts/o?prefix=runs/uploaded/")["items"]
    assert {one["name"] for one in found} >= {"runs/uploaded/end-0", "runs/uploaded/end-1"}
    until(lambda: len(written()) >= 3, "every point to be written")
    assert [point["scalar"]["value"] for point in written()] == [7.0, 6.0, 5.0]


def test_queued_jobs_become_pods_that_run_them_on_a_cpu_node_and_on_all_hosts_of_a_slice(
    box: Box, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Run `tpu queue serve` with real Kubernetes, Kueue and JobSet, and Google's Firestore emulator."""
    worker = {"metadata": {"name": "queue-worker", "namespace": TEAM}}
    box.cluster.apply({"apiVersion": "v1", "kind": "ServiceAccount", **worker})
    address, log = f"firestore://{PROJECT}", tmp_path / "log"
    target = ["--team", TEAM, "--image", "worker:1", "--results", "gs://my-artifacts/results", "--network"]
    argv = [sys.executable, "-m", "tpukit", "queue", "serve", "--no-http", "--tick", "0.5", *target]
    with emulator(tmp_path / "firestore.log") as firestore, log.open("wb") as output:
        monkeypatch.setenv("FIRESTORE_EMULATOR_HOST", firestore.address)
        queue = Client(open_store(address, tmp_path))
        sent = [queue.submit(MATRIX), queue.submit(DEVICES, metadata={"tpu": "v4-16:spot"})]
        env = {**os.environ, "KUBECONFIG": str(box.place.kubeconfig), "TPUKIT_STORE": address}
        env |= {"TPUKIT_HOME": str(tmp_path), "PYTHONPATH": str(ROOT / "tools")}
        serving = subprocess.Popen(argv, env=env, stdout=output, stderr=output)

        def ended() -> bool:
            return all(queue.get(key).status in ENDED for key in sent)

        try:
            until(ended, lambda: log.read_text() + box.kubectl("describe", "workloads,pods"))
            jobs = [queue.get(key) for key in sent]
        finally:
            serving.terminate()
            serving.wait()
            queue.close()
    assert [job.status for job in jobs] == ["completed", "completed"], jobs
    assert (float(jobs[0].result), jobs[1].result) == (1e9, "Found 8 devices")
    for kind, key, job in zip(("Job", "JobSet"), sent, jobs, strict=True):
        made = box.cluster.get(kind, manifest.name(key, job), TEAM)
        assert made["metadata"]["annotations"][manifest.KEY] == key
