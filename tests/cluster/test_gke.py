"""Jobs on a cluster as a user sends them: `tpu`, real Kubernetes, JobSet, Kueue and JAX processes in a sandbox."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from support import compiling
from support.box import ROOT, STEPS, TEAM, Box, sandbox, until
from support.person import Person
from support.waiting import PATIENCE
from tpukit.places.local import processes as pods
from tpukit.teams import boosts

DRILLED = ROOT / "tests" / "fixtures" / "drill_programs"
RIGHT_LOSSES = ("preempt", "corrupt-newest")
PRETRAIN = ROOT / "examples" / "02-pretrain" / "job.yaml"
SAYS_WHO = """
import os, pathlib, signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # the first process of a container is not ended by it otherwise
print("attempt {TPUKIT_ATTEMPT} stage {TPUKIT_STAGE} {TPUKIT_WORKDIR}".format(**os.environ), flush=True)
while not pathlib.Path(sys.argv[1]).exists():
    time.sleep(0.1)
"""
BREAKS = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
time.sleep(2)
if os.environ["TPU_WORKER_ID"] == os.environ["MEGASCALE_SLICE_ID"] == "1":
    print("it broke", flush=True)
    time.sleep(5)  # whoever follows reads a log once a second, and a pod that failed is soon gone
    sys.exit(1)
time.sleep(60)
"""
RAW = """
apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata: {name: theirs, namespace: research, labels: {kueue.x-k8s.io/queue-name: research}}
spec:
  replicatedJobs:
  - name: workers
    template:
      spec:
        parallelism: 2
        completions: 2
        backoffLimit: 0
        template:
          spec:
            restartPolicy: Never
            terminationGracePeriodSeconds: 1
            securityContext: {runAsNonRoot: true, runAsUser: 1000, seccompProfile: {type: RuntimeDefault}}
            nodeSelector:
              cloud.google.com/gke-tpu-accelerator: tpu-v4-podslice
              cloud.google.com/gke-tpu-topology: 2x2x2
            tolerations: [{operator: Exists}]
            containers:
            - name: main
              image: image:1
              command: [sh, -c, "echo from theirs; sleep 600"]
              securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}
              resources: {limits: {google.com/tpu: 4}}
"""


@pytest.fixture(scope="module")
def box(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Box]:
    with sandbox(tmp_path_factory.mktemp("gke"), "gke") as box:
        box.furnish()
        box.ask("POST", "storage/v1/b?project=tpu-project", {"name": "my-runs", "location": "US"})
        yield box


@pytest.fixture(scope="module")
def ada(box: Box) -> Iterator[Person]:
    person = Person(box.home / "ada", box.place.kubeconfig)
    yield person
    pods.kill_strays(person.home)


def gate(box: Box, name: str) -> Path:
    """Return a file that hosts of the sandbox can see. They see no other folder of this machine below /tmp."""
    folder = box.place.path / "google" / "buckets" / "gates"
    folder.mkdir(parents=True, exist_ok=True)
    return folder / name


def who(box: Box, name: str) -> tuple[str, ...]:
    """Return a program that prints its attempt, and stays until its gate exists."""
    return "python", "-c", SAYS_WHO, str(gate(box, name))


def says(person: Person, job: str, text: str) -> None:
    until(lambda: text in person.tpu("job", "logs", job).stdout, f"{job} to say {text!r}")


def jobsets(box: Box) -> set[str]:
    return {one["metadata"]["name"] for one in box.cluster.list("JobSet", TEAM)}


def test_pretraining_in_a_teams_queue_survives_a_preemption_and_ends_like_the_unbroken_local_run(box: Box, ada: Person):
    board = "vertex_ai/v1/projects/tpu-project/locations/us-central1/tensorboards"
    made = box.ask("POST", board, {"displayName": "runs"})["response"]["name"]
    ada.settle(tensorboard=made)
    changes = ["config.training.steps=30", "config.model.layers=1", "config.model.dtype=float32"]
    changes += [f"env.{name}={value}" for name, value in compiling.ENVIRONMENT.items()]
    steps = tuple(word for change in changes for word in ("--set", change))
    mounts = '[{"bucket": "my-runs", "path": "/runs", "read_only": false}]'
    on_gke = ("--set", "image=image:1", "--set", "workdir=/runs/pretrain", "--set", f"mounts={mounts}")
    box.agent.preempt("tpu-1", step=10, back=2.0)

    sent = ada.tpu("run", PRETRAIN, *steps, "--place", "gke", *on_gke)
    unbroken = ada.tpu("run", PRETRAIN, *steps, "--set", f"workdir={ada.home}/unbroken")

    bucket = box.place.path / "google" / "buckets" / "my-runs" / "pretrain"
    on_cluster = json.loads((bucket / "result.json").read_text())
    here = json.loads((ada.home / "unbroken" / "result.json").read_text())
    assert on_cluster["parameters_sha256"] == here["parameters_sha256"]
    job = sent.stdout.strip()
    shown = ada.show(job)
    assert [(one["reason"], one["stage"]) for one in shown["attempts"]] == [("preempted", 0), ("done", 1)]
    assert shown["attempts"][0]["host"].startswith(f"{job}-slice-")
    assert shown["attempts"][0]["saved_step"] >= 5
    status = box.cluster.get("JobSet", job, TEAM)["status"]
    assert (status["restarts"], status.get("restartsCountTowardsMax", 0)) == (1, 0)
    assert "0 of 0 used; not charged: 1 preempted" in ada.tpu("job", "show", job).stdout

    pools = {host["slice"]: set() for host in shown["hosts"]}
    for host in shown["hosts"]:
        pools[host["slice"]].add(host["node"].rpartition("-")[0])
    assert sorted(map(sorted, pools.values())) == [["gke-sandbox-tpu-0"], ["gke-sandbox-tpu-1"]]

    before = ada.tpu("job", "logs", job, "--attempt", "0").stdout  # its pods are already deleted
    assert {line.partition(":")[0] for line in before.splitlines()} >= {
        f"slice-{s}-{h}" for s in (0, 1) for h in (0, 1)
    }
    assert "step 10/30" in before
    assert "tpukit-progress" not in before
    # The last upload follows the end of the program.
    listed = until(lambda: box.ask("GET", f"vertex_ai/v1/{made}/experiments").get("tensorboardExperiments"))
    (experiment,) = listed
    assert experiment["displayName"] == job
    (run,) = until(lambda: box.ask("GET", f"vertex_ai/v1/{experiment['name']}/runs").get("tensorboardRuns"))
    assert run["displayName"] == "train"
    assert unbroken.stdout.strip() != job


def test_drill_in_the_cluster_right_program_is_exact_a_planted_mistake_is_named_and_nothing_is_left(
    box: Box, ada: Person
):
    """Run two drills in parallel, each on its own slice."""
    home = {**ada.env, "TPUKIT_HOME": str(box.home)}  # the home that owns the sandbox
    mounts = [{"bucket": "my-runs", "path": "/runs", "read_only": False}]
    drills = {}
    for program, losses in (("right", RIGHT_LOSSES), ("data_position", ("kill-0-1",))):
        fields = {"slices": 1, "code": str(DRILLED), "mounts": mounts, "workdir": f"/runs/{program}"}
        # Slow, because a slice notices its preemption within a second or two. Digests name batches for certain.
        fields["env"] = {"STEP_SECONDS": "0.06", "DIGESTS": "1"}
        file = ada.job(program.replace("_", "-"), "python", "-S", f"{program}.py", **fields)
        only = [word for loss in losses for word in ("--only", loss)]
        argv = [sys.executable, "-m", "tpukit", "drill", str(file), "--place", "gke", "--json", *only]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        drills[program] = subprocess.Popen(argv, env=home, text=True, **pipes)
    results = {}
    for program, process in drills.items():
        printed, said = process.communicate(timeout=5 * PATIENCE)  # several jobs
        assert process.returncode == 0, said
        results[program] = json.loads(printed)
    right, wrong = results["right"], results["data_position"]
    assert {one["loss"]: one["verdict"] for one in right["losses"]} == dict.fromkeys(RIGHT_LOSSES, "exact"), right[
        "losses"
    ]
    assert all(one["attempts"] > 1 for one in right["losses"])
    assert wrong["verdict"] == "repeats batches", wrong["losses"]
    assert [one["cause"] for one in wrong["advice"]] == ["data position not saved"]
    assert not [name for name in jobsets(box) if name.startswith("drill-")]
    buckets = box.place.path / "google" / "buckets"
    assert [path for path in buckets.rglob("*") if "drill-" in path.name] == []


def test_users_error_is_charged_names_the_first_host_and_its_last_words(ada: Person):
    done = ada.tpu(
        "run",
        ada.job("wrong", "python", "-c", BREAKS, max={"restarts": 1, "grace": "5s"}),
        "--place",
        "gke",
        fails=True,
    )
    job = done.stdout.strip()
    assert ada.reasons(job) == ["user error", "user error"]
    assert f"the program on {job}-slice-1-1 failed: exit code 1, 'it broke' (1 of 1 restarts used)" in done.stderr
    assert "slice-1-1: it broke" in ada.tpu("job", "logs", job, "--attempt", "0").stdout


def test_stopped_job_leaves_nothing_and_goes_on_when_asked_from_where_it_was_or_from_the_beginning(
    box: Box, ada: Person
):
    job = ada.tpu("run", ada.job("sleeper", *who(box, "sleeper")), "--place", "gke", "--detach").stdout.strip()
    ada.state(job, "running")
    says(ada, job, "attempt 0 stage 0")
    ada.tpu("job", "stop", job)
    assert job not in jobsets(box)
    assert not box.cluster.list("Pod", TEAM, labels=f"tpukit.dev/job={job}")
    assert ada.reasons(job) == ["cancelled"]

    ada.tpu("job", "resume", job, "--detach")
    ada.state(job, "running")
    says(ada, job, f"slice-0-1: attempt 1 stage 1 gs://my-runs/runs/{job}\n")
    assert f"attempt 0 stage 0 gs://my-runs/runs/{job}\n" in ada.tpu("job", "logs", job, "--attempt", "0").stdout
    ada.tpu("job", "stop", job)

    ada.tpu("job", "rerun", job, "--detach")
    ada.state(job, "running")
    says(ada, job, f"attempt 2 stage 0 gs://my-runs/runs/{job}/rerun-2")
    ada.tpu("job", "stop", job)
    assert ada.reasons(job) == ["cancelled"] * 3


def test_higher_priority_evicts_and_the_evicted_job_says_why_it_waits_and_resumes(box: Box, ada: Person):
    saves = SAYS_WHO.replace("(143)", "((pathlib.Path(sys.argv[1] + '-asked').touch(), 143)[1])")
    program = "python", "-c", saves, str(gate(box, "low"))
    job = ada.job("low", *program, priority="low", rule="pass")
    low = ada.tpu("run", job, "--place", "gke", "--detach").stdout.strip()
    serving = ada.start("serve", "--until-idle")
    ada.state(low, "running")
    until(lambda: boosts.published(workload(box, low)), "`tpu serve` to write what an eviction costs")
    assert 0 <= (boosts.current(workload(box, low)) or 0) < 1000
    high = ada.tpu(
        "run", ada.job("high", *who(box, "high"), priority="high"), "--place", "gke", "--detach"
    ).stdout.strip()

    def waits() -> bool:
        shown = ada.show(low)
        return shown["state"] == "scheduled" and f"research/{high} (high)" in (shown["message"] or "")

    until(waits, "the evicted job to say for whom it waits")
    assert gate(box, "low-asked").exists(), "it was asked to save"
    until(lambda: not boosts.has_cost(workload(box, low)), "the boost to be removed")
    for name in ("low", "high"):
        gate(box, name).touch()
    ada.state(high, "completed")
    ended = ada.state(low, "completed")
    *before, last = [attempt["reason"] for attempt in ended["attempts"]]
    assert (set(before), last) == ({"evicted"}, "done")
    assert ended["attempts"][0]["detail"] == f"for research/{high} (high)"
    serving.wait(PATIENCE)


def test_evictions_while_nobody_drove_are_not_charged_and_the_job_goes_on(box: Box, ada: Person):
    """Use rule pass, which ignores lost hosts. The queue still resumes jobs that it evicted."""
    job = ada.job("unseen", *who(box, "unseen"), priority="low", rule="pass")
    low = ada.tpu("run", job, "--place", "gke", "--detach").stdout.strip()
    evicted = 0
    for number in (1, 2):
        # JobSet may count leaving hosts as a failure, and end: then no second eviction is possible.
        until(lambda: hosts_up(box, low) or failed(box, low), "all hosts to run")
        if failed(box, low):
            break
        file = ada.home / f"higher-{number}.yaml"
        file.write_text(higher(number))
        box.kubectl("apply", "-f", str(file))
        until(lambda number=number: evictions(box, low) >= number and hosts_up(box, f"higher-{number}"), "an eviction")
        box.kubectl("delete", "-f", str(file), "--wait=false")
        evicted = number
    gate(box, "unseen").touch()

    ada.tpu("serve", "--until-idle")

    shown = ada.show(low)
    *before, last = [one["reason"] for one in shown["attempts"]]
    assert (set(before), last) == ({"evicted"}, "done")
    assert len(before) >= evicted
    assert shown["state"] == "completed"


def failed(box: Box, name: str) -> bool:
    conditions = box.cluster.get("JobSet", name, TEAM).get("status", {}).get("conditions", [])
    return any(one["type"] == "Failed" and one["status"] == "True" for one in conditions)


def higher(number: int) -> str:
    """Return a JobSet that takes all slices from jobs of lower priority."""
    queue = "kueue.x-k8s.io/queue-name: research"
    raw = RAW.replace("name: theirs", f"name: higher-{number}").replace(
        "- name: workers", "- name: workers\n    replicas: 2"
    )
    return raw.replace(queue, f"{queue}, kueue.x-k8s.io/priority-class: high")


def hosts_up(box: Box, name: str, hosts: int = 4) -> bool:
    pods = box.cluster.list("Pod", TEAM, labels=f"jobset.sigs.k8s.io/jobset-name={name}")
    running = [
        one for one in pods if one["status"]["phase"] == "Running" and "deletionTimestamp" not in one["metadata"]
    ]
    return len(running) == hosts


def evictions(box: Box, name: str) -> int:
    counts = workload(box, name)["status"].get("schedulingStats", {}).get("evictions", [])
    return sum(int(count["count"]) for count in counts)


def workload(box: Box, name: str) -> dict[str, Any]:
    """Return the Workload of a JobSet; an empty one if there is none."""
    for one in box.cluster.list("Workload", TEAM):
        if any(owner["name"] == name for owner in one["metadata"].get("ownerReferences", [])):
            return dict(one)
    return {"metadata": {}, "status": {}}


def test_follower_killed_while_a_job_runs_another_takes_up_the_record_and_the_log(box: Box, ada: Person):
    follower = ada.start("run", ada.job("followed", *who(box, "followed")), "--place", "gke")
    ada.state("followed", "running")
    follower.kill()
    follower.wait()
    gate(box, "followed").touch()
    ada.tpu("serve", "--until-idle")
    job = ada.show("followed")
    assert (job["state"], [attempt["reason"] for attempt in job["attempts"]]) == ("completed", ["done"])
    log = ada.tpu("job", "logs", "followed").stdout.splitlines()
    assert sorted(line.partition(":")[0] for line in log) == ["slice-0-0", "slice-0-1", "slice-1-0", "slice-1-1"]


POLITE = """trap 'sleep 3; exit 0' TERM
echo attempt $TPUKIT_ATTEMPT stage $TPUKIT_STAGE; echo step 7 loss 2.5; echo saved checkpoint at step 6
while :; do sleep 0.1; done"""
"""A trainer without tpukit that exits with 0 on SIGTERM, late enough to be observed."""


def test_drained_host_is_maintenance_and_the_job_goes_on_when_the_pool_is_back_though_it_left_with_0(
    box: Box, ada: Person
):
    follower = ada.start("run", ada.job("drained", "sh", "-c", POLITE), "--place", "gke")
    ada.state("drained", "running")
    until(lambda: [host["step"] for host in ada.show("drained")["hosts"]] == [7] * 4, "steps to be read from lines")
    box.agent.drain("tpu-1")
    until(lambda: ada.reasons("drained")[0] == "maintenance", "the drained host to be seen")
    box.agent.restore("tpu-1")
    ada.state("drained", "running")
    says(ada, "drained", "attempt 1 stage 1")
    assert ada.show("drained")["attempts"][0]["saved_step"] == 6
    ada.tpu("job", "stop", "drained")
    assert follower.wait(PATIENCE) == 1
    assert ada.show("drained")["state"] == "cancelled"


def test_lost_host_is_named_and_its_replacement_goes_on(box: Box, ada: Person):
    # A Job and the status of its lost pod exist until the last of the other pods has ended.
    slowly = SAYS_WHO.replace("lambda *_: sys.exit(143)", "lambda *_: (time.sleep(3), sys.exit(143))")
    follower = ada.start("run", ada.job("lost", "python", "-c", slowly, str(gate(box, "lost"))), "--place", "gke")
    hosts = ada.state("lost", "running")["hosts"]
    box.agent.lose(hosts[3]["node"], back=3.0)
    first = until(lambda: (one := ada.show("lost")["attempts"][0])["reason"] and one, "the loss to be seen")
    assert (first["reason"], first["host"]) == ("host lost", hosts[3]["name"])
    ada.state("lost", "running")
    ada.tpu("job", "stop", "lost")
    assert follower.wait(PATIENCE) == 1


def test_host_that_stops_making_steps_is_found_by_its_silence_and_the_job_begins_anew(ada: Person):
    stuck = "if step == 10 and host.world.attempt == 0 and host.world.index == 3: time.sleep(600)"
    program = STEPS.replace("    time.sleep(0.1)", f"    {stuck}\n    time.sleep(0.1)")
    assert program != STEPS
    job = ada.job("stuck", "python", "-c", program, "40", max={"stall": "20s", "grace": "20s"})
    done = ada.tpu("run", job, "--place", "gke")
    assert ada.reasons("stuck") == ["hang", "done"], done.stderr
    assert "attempt 1" in ada.tpu("job", "logs", "stuck").stdout


def test_job_whose_image_is_not_there_says_so_while_it_waits_and_can_be_stopped(ada: Person):
    file = ada.job("imageless", "python", "-c", "1", image="does-not-exist:1")
    job = ada.tpu("run", file, "--place", "gke", "--detach").stdout.strip()
    until(lambda: "the image cannot be pulled: does-not-exist:1" in (ada.show(job)["message"] or ""))
    ada.tpu("job", "stop", job)


def test_job_whose_bucket_is_not_there_says_so_while_it_waits_and_starts_once_it_is(box: Box, ada: Person):
    mounts = [{"bucket": "made-later", "path": "/runs", "read_only": False}]
    file = ada.job("bucketless", "python", "-c", "1", mounts=mounts, workdir="/runs/bucketless")
    job = ada.tpu("run", file, "--place", "gke", "--detach").stdout.strip()
    until(lambda: 'failed to get GCS bucket "made-later"' in (ada.show(job)["message"] or ""))
    assert "create the bucket" in ada.show(job)["message"]
    box.ask("POST", "storage/v1/b?project=tpu-project", {"name": "made-later", "location": "US"})
    until(lambda: ada.show(job)["state"] == "completed")


def test_jobsets_of_others_are_shown_and_touched_only_once_adopted(box: Box, ada: Person):
    (ada.home / "theirs.yaml").write_text(RAW)
    box.kubectl("apply", "-f", str(ada.home / "theirs.yaml"))
    until(lambda: hosts_up(box, "theirs", 2), "both hosts to run")
    listed = ada.tpu("job", "list", "--active").stdout
    assert "research/theirs" in listed
    says(ada, "theirs", "workers-0-1: from theirs")
    refused = ada.tpu("job", "stop", "theirs", fails=True).stderr
    assert "`tpu job adopt research/theirs` takes it over first" in refused
    assert "theirs" in jobsets(box)
    ada.tpu("job", "adopt", "theirs")
    ada.tpu("job", "stop", "theirs")
    until(lambda: "theirs" not in jobsets(box))


def test_jobset_that_somebody_deletes_ends_the_job_and_is_not_made_again(box: Box, ada: Person):
    job = ada.tpu("run", ada.job("gone", *who(box, "gone")), "--place", "gke", "--detach").stdout.strip()
    ada.state(job, "running")
    box.kubectl("delete", "jobset", job, "--wait=false")
    ended = ada.state(job, "cancelled")
    assert "its JobSet was deleted by another user or tool" in ended["message"]
    ada.tpu("serve", "--until-idle")
    assert job not in jobsets(box)


def test_same_job_of_two_people_gets_two_names_and_neither_touches_the_others(box: Box, ada: Person):
    bob = Person(box.home / "bob", box.place.kubeconfig)
    file = ada.job("same", *who(box, "same"), slices=1)
    first = ada.tpu("run", file, "--place", "gke", "--detach").stdout.strip()
    second = bob.tpu("run", file, "--place", "gke", "--detach").stdout.strip()
    assert first != second
    assert "was sent by others" in bob.tpu("job", "stop", first, fails=True).stderr
    serving = bob.start("serve", "--until-idle")
    bob.tpu("job", "stop", second)
    assert serving.wait(PATIENCE) == 0
    assert first in jobsets(box)
    ada.tpu("job", "stop", first)
    assert not {first, second} & jobsets(box)


@pytest.mark.parametrize(
    ("sets", "said"),
    [
        (["team=nobody"], "`tpu team add nobody` creates the team"),
        (["priority=huge"], "priority: the cluster has no huge"),
        (["tpu=v2-8", "slices=1"], "tpu: GKE has no v2-8"),
    ],
)
def test_job_that_the_cluster_would_not_take_is_refused_before_anything_is_made(
    box: Box, ada: Person, sets: list[str], said: str
):
    before = jobsets(box)
    words = [word for one in sets for word in ("--set", one)]
    assert said in ada.tpu("run", ada.job("refused", "x"), "--place", "gke", *words, fails=True).stderr
    assert jobsets(box) == before
    assert not any("refused" in one["id"] for one in json.loads(ada.tpu("job", "list", "--json").stdout))


def test_member_of_a_team_sends_follows_and_stops_with_no_more_rights_than_the_team_has(box: Box, ada: Person):
    ada.tpu("team", "add", TEAM, "--member", "account:member")
    box.kubectl("create", "serviceaccount", "member")
    until(lambda: may(box, "member", "create", "jobsets") and may(box, "member", "list", "clusterqueues"), "its rights")
    token = box.kubectl("create", "token", "member").strip()
    kubeconfig = yaml.safe_load(box.place.kubeconfig.read_text())
    kubeconfig["users"][0]["user"] = {"token": token}
    (box.home / "member.yaml").write_text(yaml.safe_dump(kubeconfig))
    eve = Person(box.home / "eve", box.home / "member.yaml")
    (eve.home / "code").mkdir()
    (eve.home / "code" / "hi.py").write_text("print('hi from the shipped code')")
    job = eve.tpu("run", eve.job("own", "python", "hi.py", code="code"), "--place", "gke").stdout.strip()
    assert "slice-1-1: hi from the shipped code" in eve.tpu("job", "logs", job).stdout
    assert eve.reasons(job) == ["done"]
    long = eve.tpu("run", eve.job("long", "sleep", "300"), "--place", "gke", "--detach").stdout.strip()
    eve.state(long, "running")
    eve.tpu("job", "stop", long)
    assert long not in jobsets(box)


def may(box: Box, account: str, verb: str, kind: str) -> bool:
    """Check that a grant to an account is in force in the API server."""
    who = f"--as=system:serviceaccount:{TEAM}:{account}"
    return subprocess.run(box.kubectl_line("auth", "can-i", verb, kind, who), capture_output=True).returncode == 0


def test_cluster_that_does_not_answer_is_said_and_the_job_is_found_again_afterwards(box: Box, ada: Person):
    job = ada.tpu("run", ada.job("patient", *who(box, "patient")), "--place", "gke", "--detach").stdout.strip()
    ada.state(job, "running")
    status = json.loads(box.tpu("status", "--json"))
    os.kill(next(one["pid"] for one in status["components"] if one["name"] == "kube-apiserver"), signal.SIGKILL)
    told = ada.tpu("job", "list")
    assert job in told.stdout
    shown = ada.tpu("job", "show", job)
    assert job in shown.stdout
    assert "does not respond" in told.stderr
    assert "does not respond" in shown.stderr
    box.tpu("up")
    gate(box, "patient").touch()
    ada.tpu("serve", "--until-idle")
    assert ada.show(job)["state"] == "completed"
