"""`tpu cluster up`: from nothing to a cluster that takes jobs, and on from wherever it was killed.

gcloud, kubectl and terraform have stand-ins, which report a thing as missing until it is created.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys

from journeys.cluster_machine import PLANNED, ROOT
from tpukit.jobs.spec import settings

REPOSITORY = "us-central1-docker.pkg.dev/my-project-1/tpu-cluster"
OUTPUTS = {
    "project_id": "my-project-1",
    "region": "us-central2",
    "zone": "us-central2-b",
    "tpu_namespace": "tpu-training",
    "tpu_sa_name": "cloud-tpu-sa",
    "image_repository": REPOSITORY,
    "artifact_bucket": "gs://my-artifacts",
    "tensorboard": "projects/my-project-1/locations/us-central1/tensorboards/7",
    "firestore_database": None,
}
CPU_NODES = {"items": [{"status": {"allocatable": {"cpu": "3920m", "memory": "12Gi"}}}] * 3}
NOT_FOUND = {"code": 1, "err": "ERROR: NOT_FOUND"}
APPLIED = '"-json", "-lock-timeout=30s", "shown.tfplan"'
LAST = "  tpu image push\n  tpu cluster verify\n  tpu run job.yaml --place gke\n"
EMPTY = (
    *(
        {"to": ["buckets describe", name], "until": f'"create", "gs://{name}"', **NOT_FOUND}
        for name in ("my-project-1-tf-state", "my-project-1-image-source")
    ),
    {"to": ["service-accounts describe"], "until": '"service-accounts", "create"', **NOT_FOUND},
    {"to": ["get-iam-policy"], "until": '"set-iam-policy"', "out": '{"etag": "x"}'},
    {"to": ["get-iam-policy"], "out": '{"etag": "y", "bindings": []}'},
    {"to": ["terraform", " plan "], "until": APPLIED, "out": PLANNED},
    {"to": ["terraform", " plan "], "out": ""},
    {"to": ["terraform", "output -json"], "out": json.dumps({k: {"value": v} for k, v in OUTPUTS.items()})},
    {"to": ["kubectl", "get nodes --selector"], "out": json.dumps(CPU_NODES)},
    {"to": ["kubectl", "get clusterqueues"], "out": '{"items": []}'},
)
"""An empty project."""
FIRST_CALLS = (
    *("services enable", "terraform -chdir", "repositories add-iam-policy-binding", "get-credentials"),
    *("get --namespace=jobset-system", "localqueue/tpu-training"),
)
"""The first call of every step. Settings are written after the last."""
MADE = {
    "team": "tpu-training",
    "context": "gke_my-project-1_us-central2_tpu-cluster",
    "project": "my-project-1",
    "region": "us-central2",
    "zone": "us-central2-b",
    "repository": REPOSITORY,
    "artifacts": "gs://my-artifacts",
    "tensorboard": "projects/my-project-1/locations/us-central1/tensorboards/7",
    "service_account": "cloud-tpu-sa",
}


def up(machine, *words):
    """Run the command in a separate process, which can be killed."""
    env = os.environ | {"PYTHONPATH": str(ROOT / "tools")}
    argv = [sys.executable, "-m", "tpukit", "cluster", "up", "--yes", *words]
    return subprocess.run(argv, env=env, cwd=machine.folder, capture_output=True, text=True, stdin=subprocess.DEVNULL)


def steps(said):
    return re.findall(r"^\[(\d)/7\]", said, re.M)


def test_up_takes_every_step_notes_what_was_made_and_names_the_next_command(machine):
    machine.answer(*EMPTY)
    done = machine.tpu("up", "--yes")
    assert done.returncode == 0, done.stderr
    assert steps(done.stderr) == list("1234567")
    assert done.stderr.endswith("Cluster tpu-cluster is ready for jobs. Next:\n" + LAST)
    assert settings.load().to_json(given=True) == MADE


CHANGES = (" create ", " enable ", " update ", "set-iam-policy", "add-iam-policy-binding", " apply -input")


def test_up_without_a_terminal_and_without_yes_shows_the_cost_and_creates_nothing(machine):
    machine.answer(*EMPTY)
    done = machine.tpu("up")
    assert done.returncode == 2
    assert "pass --yes" in done.stderr
    assert "Costs in us-central2-b" in " ".join(done.stderr.split())
    assert [call for call in machine.calls() if any(word in call for word in CHANGES)] == []


def test_up_in_a_project_without_the_apis_asks_before_it_enables_them(machine):
    off = "ERROR: PERMISSION_DENIED: IAM API has not been used in project 1 before or it is disabled. SERVICE_DISABLED"
    machine.answer({"to": ["describe"], "code": 1, "err": off})
    done = machine.tpu("up")
    assert (done.returncode, "pass --yes" in done.stderr) == (2, True)
    assert [call for call in machine.calls() if any(word in call for word in CHANGES)] == []


def test_up_shows_cost_and_quota_before_it_asks(machine):
    machine.answer(*EMPTY, {"to": ["regions describe"], "out": json.dumps({"quotas": []})})
    assert machine.tpu("bootstrap").returncode == 0
    done = machine.tpu("up")
    assert done.returncode == 2
    assert "pass --yes" in done.stderr
    said = " ".join(done.stderr.split())
    assert "Costs in us-central2-b" in said
    assert re.search(r"together (at least )?[\d.,]+ an hour, [\d.,]+ a month", said)
    assert re.search(r"Quota for \d+ more chips of v4 in us-central2: unknown here", said)
    assert not any(" apply " in call for call in machine.calls())


def test_up_that_is_killed_at_the_beginning_of_each_step_in_turn_goes_on_with_the_same_command(machine):
    machine.answer(*({"to": [call], "times": 1, "kill": True} for call in FIRST_CALLS), *EMPTY)
    for number, call in enumerate(FIRST_CALLS, start=1):
        before = len(machine.calls())
        killed = up(machine)
        assert killed.returncode == -9, killed.stderr
        assert any(call in one for one in machine.calls()[before:])
        assert steps(killed.stderr)[-1] == str(number)
        assert not settings.path().exists()
    done = up(machine)
    assert done.returncode == 0, done.stderr
    assert settings.load().to_json(given=True) == MADE
    calls = machine.calls()
    for made in ("buckets create gs://my-project-1-tf-state", "buckets create gs://my-project-1-image-source"):
        assert sum(made in one for one in calls) == 1, made
    assert sum(one.endswith("shown.tfplan") and " apply " in one for one in calls) == 1


def test_up_where_everything_is_there_makes_nothing_and_goes_straight_to_jobs(machine):
    machine.answer(*EMPTY)
    assert machine.tpu("up", "--yes").returncode == 0
    settings.save({"image": f"{REPOSITORY}/train:1"})
    before = len(machine.calls())
    done = machine.tpu("up")  # no questions
    assert done.returncode == 0, done.stderr
    assert "Nothing to change." in done.stderr
    assert done.stderr.endswith("Next:\n" + LAST.removeprefix("  tpu image push\n"))
    again = machine.calls()[before:]
    assert not [call for call in again if " create " in call or " apply -input" in call]


def test_up_dry_run_prints_every_step_and_calls_nothing(machine):
    done = machine.tpu("up", "--dry-run")
    assert (done.returncode, machine.calls()) == (0, [])
    for words in ("services enable", "terraform -chdir", "get-credentials", "--kustomize", "localqueue/tpu-training"):
        assert words in done.stdout


def test_up_that_fails_names_a_command_that_can_be_typed_as_it_is(machine):
    machine.answer({"to": ["terraform", " init "], "code": 1, "err": "Error: storage: bucket doesn't exist"}, *EMPTY)
    done = machine.tpu("up", "--yes", "--set", "labels={a: b}")
    assert done.returncode == 1
    assert "`tpu cluster bootstrap --set 'labels={a: b}'` to create the state bucket" in done.stderr
