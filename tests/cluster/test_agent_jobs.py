"""JobSets on the node agent: real Kubernetes, JobSet and Kueue, and hosts that are real processes of this machine."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tpukit import catalogue, plan, pods, render
from tpukit.kube import Cluster
from tpukit.plan import Plan
from tpukit.sandbox.agent import AgentClient, Pool, of_slice
from tpukit.sandbox.folder import read
from tpukit.spec import JobSpec, Settings

ROOT = Path(__file__).resolve().parents[2]
HELLO = ROOT / "examples" / "01-hello-tpu" / "hello.py"
SETTINGS = Settings.from_json({"artifacts": "gs://my-artifacts", "team": "research"})
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
    host.report(step)
    if host.leaving(step):
        host.leave()
    time.sleep(0.1)
print("ended", flush=True)
host.close()
"""
"""A program that trains nothing, and behaves as one that does."""


class Box:
    """A sandbox, with two pools of the agent's own and a queue over them."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.up()
        path = home / "data" / "sandbox" / "agent"
        self.place = read(path)
        self.cluster = Cluster(self.place.kubeconfig)
        self.agent = AgentClient(
            self.place.url("agent"), self.place.token, self.place.certificates("cluster") / "ca.crt"
        )

    def up(self) -> None:
        """Also brings back what does not run."""
        self._tpu("up")

    def down(self) -> None:
        self._tpu("down")

    def agent_pid(self) -> int:
        status = json.loads(self._tpu("status", "--json"))
        return next(one["pid"] for one in status["components"] if one["name"] == "agent")

    def kubectl(self, *words: str) -> str:
        argv = ["kubectl", "--kubeconfig", str(self.place.kubeconfig), "-n", "research", *words]
        return subprocess.run(argv, capture_output=True, text=True, check=True).stdout

    def send(self, name: str, *command: str, **fields: Any) -> Plan:
        spec = {"name": name, "tpu": "v4-16", "slices": 2, "command": list(command), "image": "image:1", **fields}
        made = plan.make(JobSpec.from_json({"capacity": "spot", "rule": "pre", **spec}), SETTINGS, "gke")
        for document in render.documents(made):
            self.cluster.apply(document)
        return made

    def status(self, made: Plan) -> dict[str, Any]:
        found: dict[str, Any] = self.cluster.get("JobSet", made.id, made.team).get("status", {})
        return found

    def ended(self, made: Plan, seconds: float = 180.0) -> str:
        """The condition that the job ended with."""

        def how() -> str:
            true = [one["type"] for one in self.status(made).get("conditions", []) if one["status"] == "True"]
            return next((kind for kind in true if kind in ("Completed", "Failed")), "")

        return str(until(how, seconds))

    def pods(self, made: Plan) -> list[dict[str, Any]]:
        return self.cluster.list("Pod", made.team, labels=f"jobset.sigs.k8s.io/jobset-name={made.id}")

    def running(self, made: Plan, attempt: int = 0) -> list[dict[str, Any]]:
        key = "jobset.sigs.k8s.io/restart-attempt"
        found = [pod for pod in self.pods(made) if pod["metadata"]["labels"].get(key) == str(attempt)]
        return [pod for pod in found if pod["status"].get("phase") == "Running"]

    def logs(self, pod: dict[str, Any]) -> str:
        return self.kubectl("logs", pod["metadata"]["name"])

    def _tpu(self, *words: str) -> str:
        env = {**os.environ, "TPUKIT_HOME": str(self.home), "PYTHONPATH": str(ROOT / "tools")}
        argv = [sys.executable, "-m", "tpukit", "sandbox", words[0], "--name", "agent", *words[1:]]
        done = subprocess.run(argv, env=env, capture_output=True, text=True)
        if done.returncode:
            pytest.fail(f"`tpu sandbox {words[0]}`: {done.stderr}")
        return done.stdout


def until(true: Callable[[], Any], seconds: float = 60.0) -> Any:
    due = time.monotonic() + seconds
    while not (found := true()):
        assert time.monotonic() < due, f"not so within {seconds} s"
        time.sleep(0.2)
    return found


@pytest.fixture(scope="module")
def box(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Box]:
    home = tmp_path_factory.mktemp("agent")
    try:
        box = Box(home)
        for name in ("tpu-0", "tpu-1"):
            box.agent.add_pool(of_slice(name, V4_16, "us-central2-b", capacity="spot"))
        labels = {"tpukit.dev/pool": "cpu"}
        box.agent.add_pool(Pool("cpu", "e2-standard-8", {"cpu-0": "us-central2-b"}, labels=labels))
        for document in render.queues({V4_16: 2}, ["research"], cpus=8, memory_gb=32):
            box.cluster.apply(document)
        account = {"metadata": {"name": SETTINGS.service_account, "namespace": "research"}}
        box.cluster.apply({"apiVersion": "v1", "kind": "ServiceAccount", **account})
        yield box
        box.down()
    finally:
        left = pods.kill_strays(home)
    assert not left, "processes outlived the sandbox"


def test_hello_runs_on_every_host_of_every_slice_and_kubectl_shows_what_each_said(box: Box):
    made = box.send("hello", "python", str(HELLO))
    assert box.ended(made) == "Completed"
    hosts = box.pods(made)
    on = {pod["metadata"]["labels"]["jobset.sigs.k8s.io/job-index"]: set() for pod in hosts}
    for pod in hosts:
        on[pod["metadata"]["labels"]["jobset.sigs.k8s.io/job-index"]].add(pod["spec"]["nodeName"].rpartition("-")[0])
    assert sorted(map(sorted, on.values())) == [["gke-sandbox-tpu-0"], ["gke-sandbox-tpu-1"]]
    said = [box.logs(pod) for pod in hosts]
    assert sorted(re.search(r"hello from host (\d) of 4", text)[1] for text in said) == ["0", "1", "2", "3"]
    assert all("16 chips on 2 slices add up to 136: all is well" in text for text in said)
    assert "restartsCountTowardsMax" not in box.status(made)


def test_error_of_the_users_program_counts_and_ends_the_job_when_the_budget_is_spent(box: Box):
    code = "import os, sys, time; os.environ['TPU_WORKER_ID'] == '1' and sys.exit(1); time.sleep(60)"
    made = box.send("wrong", "python", "-c", code, max={"restarts": 1, "grace": "5s"})
    assert box.ended(made) == "Failed"
    status = box.status(made)
    assert (status["restarts"], status["restartsCountTowardsMax"]) == (1, 1)


@pytest.mark.parametrize("code", [134, 143])
def test_lost_hardware_is_repeated_and_not_counted(box: Box, code: int):
    script = f"import os, sys; sys.exit({code} if os.environ['TPUKIT_ATTEMPT'] == '0' else 0)"
    made = box.send(f"lost-{code}", "python", "-c", script, max={"restarts": 1, "grace": "5s"})
    assert box.ended(made) == "Completed"
    status = box.status(made)
    assert status["restarts"] == 1
    assert status.get("restartsCountTowardsMax", 0) == 0


def test_preempted_pool_ends_the_attempt_comes_back_and_the_next_attempt_runs(box: Box):
    made = box.send("preempted", "python", "-c", STEPS, "60", max={"restarts": 1, "grace": "20s"})
    box.agent.preempt("tpu-1", step=5, back=2.0)
    until(lambda: box.agent.pools()["tpu-1"]["presence"] == "away", 120)
    assert box.ended(made) == "Completed"
    status = box.status(made)
    assert status["restarts"] >= 1
    assert status.get("restartsCountTowardsMax", 0) == 0
    assert all("attempt 1" in box.logs(pod) and "ended" in box.logs(pod) for pod in box.pods(made))
    assert box.agent.pools()["tpu-1"]["presence"] == "here"


def test_agent_killed_while_a_job_runs_finds_the_same_processes_and_nothing_runs_twice(box: Box):
    made = box.send("killed", "python", "-c", STEPS, "150", max={"restarts": 1, "grace": "20s"})
    until(lambda: len(box.running(made)) == 4, 120)
    until(lambda: all("began" in box.logs(pod) for pod in box.running(made)), 120)
    before = {pod["metadata"]["uid"]: box.logs(pod) for pod in box.running(made)}
    os.kill(box.agent_pid(), signal.SIGKILL)
    box.up()
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
    made = box.send("lost-host", "python", "-c", STEPS, "60", max={"restarts": 1, "grace": "20s"})
    victim = "gke-sandbox-tpu-0-0001"
    box.agent.lose(victim, step=5, back=3.0)
    until(lambda: victim in box.agent.pools()["tpu-0"]["lost"], 120)
    assert box.ended(made) == "Completed"
    status = box.status(made)
    assert status["restarts"] >= 1
    assert status.get("restartsCountTowardsMax", 0) == 0
    assert box.agent.pools()["tpu-0"]["lost"] == {}


def test_agent_killed_at_random_moments_runs_every_pod_once_and_tells_its_end(box: Box, tmp_path: Path):
    chance = random.Random(7)
    names = [f"one-{number}" for number in range(16)]
    for number, name in enumerate(names):
        mark, code = tmp_path / name, number % 3
        script = f"echo began >> {mark}; sleep {chance.uniform(0.2, 4):.2f}; echo ended >> {mark}; exit {code}"
        container = {"name": "main", "image": "image", "command": ["/bin/sh", "-c", script]}
        spec = {"restartPolicy": "Never", "nodeSelector": {"tpukit.dev/pool": "cpu"}, "containers": [container]}
        metadata = {"name": name, "namespace": "research"}
        box.cluster.create({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
        if number % 4 == 3:
            time.sleep(chance.uniform(0, 0.5))
            os.kill(box.agent_pid(), signal.SIGKILL)
            box.up()

    def codes() -> list[int] | None:
        found = [box.cluster.get("Pod", name, "research")["status"] for name in names]
        if not all(status["phase"] in ("Succeeded", "Failed") for status in found):
            return None
        return [status["containerStatuses"][0]["state"]["terminated"]["exitCode"] for status in found]

    assert until(codes, 120) == [number % 3 for number in range(16)]
    assert [(tmp_path / name).read_text() for name in names] == ["began\nended\n"] * 16
    for name in names:
        box.cluster.delete("Pod", name, "research")


def test_exec_runs_a_command_beside_the_program(box: Box):
    made = box.send("entered", "sleep", "60", slices=1, max={"grace": "5s"})
    pod = until(lambda: box.running(made), 120)[0]
    shown = box.kubectl("exec", pod["metadata"]["name"], "--", "sh", "-c", "echo $TPU_WORKER_HOSTNAMES")
    assert shown.strip().split(",") == [f"{made.id}-slice-0-{index}.{made.subdomain}" for index in (0, 1)]
    box.cluster.delete("JobSet", made.id, made.team, foreground=True)
    until(lambda: not box.pods(made))
