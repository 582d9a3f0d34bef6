"""`tpu cluster destroy`: its questions and refusals, with stand-ins for gcloud, kubectl and terraform."""

from __future__ import annotations

import json
import os
import sys

import pytest

from journeys.cluster_machine import ROOT, deletes, shown_plan
from support import terminal


def test_destroy_protected_cluster_is_refused_before_anything_goes(machine):
    machine.answer(shown_plan(deletes("google_container_cluster", name="tpu-cluster", deletion_protection=True)))
    done = machine.tpu("destroy", "--name", "tpu-cluster", "--evict")
    assert done.returncode == 1
    assert "tpu cluster apply --set deletion_protection=false" in done.stderr
    assert not any(" apply " in call for call in machine.calls())


def test_destroy_bucket_with_data_is_refused_before_anything_goes(machine):
    bucket = deletes("google_storage_bucket", name="my-artifacts", force_destroy=False)
    machine.answer(shown_plan(bucket), {"to": ["storage ls"], "out": "gs://my-artifacts/checkpoint#1\n"})
    done = machine.tpu("destroy", "--name", "tpu-cluster")
    assert done.returncode == 1
    assert "gs://my-artifacts is not empty" in done.stderr
    assert not any(" apply " in call for call in machine.calls())


BOARD = {"name": "projects/1/locations/us-central1/tensorboards/7", "region": "us-central1", "display_name": "metrics"}


@pytest.mark.parametrize(
    ("kind", "before", "question", "sentence"),
    [
        (
            "google_artifact_registry_repository",
            {"repository_id": "images", "location": "us-central1"},
            "artifacts docker images list us-central1-docker.pkg.dev/my-project-1/images",
            "the repository images holds images",
        ),
        (
            "google_vertex_ai_tensorboard",
            BOARD,
            "tensorboard-experiments list 7 --region=us-central1",
            "the TensorBoard metrics holds metrics of jobs",
        ),
        (
            "google_firestore_database",
            {"name": "tpu-jobs", "delete_protection_state": "DELETE_PROTECTION_ENABLED"},
            "",
            "the Firestore database tpu-jobs is protected",
        ),
    ],
    ids=["images", "metrics", "jobs"],
)
def test_destroy_that_would_lose_data_is_refused_before_anything_goes_until_it_is_forced(
    machine, kind, before, question, sentence
):
    holding = {"to": [question], "out": "something\n"} if question else {"to": ["nothing"]}
    machine.answer(shown_plan(deletes(kind, **before)), holding)
    done = machine.tpu("destroy", "--name", "tpu-cluster")
    assert done.returncode == 1
    assert sentence in done.stderr
    assert "tpu cluster apply --set force_destroy=true" in done.stderr
    assert not any(" apply " in call for call in machine.calls())
    done = machine.tpu("destroy", "--name", "tpu-cluster", "--set", "force_destroy=true")
    assert done.returncode == 0, done.stderr


def test_destroy_of_an_empty_repository_and_tensorboard_goes_ahead(machine):
    repository = deletes("google_artifact_registry_repository", repository_id="images", location="us-central1")
    machine.answer(shown_plan(repository, deletes("google_vertex_ai_tensorboard", **BOARD)))
    done = machine.tpu("destroy", "--name", "tpu-cluster")
    assert done.returncode == 0, done.stderr


def test_destroy_held_up_by_firewall_rules_of_gke_removes_them_and_goes_on(machine):
    address = "module.network.google_compute_network.this"
    error = {
        "type": "diagnostic",
        "diagnostic": {"severity": "error", "summary": "resourceInUseByAnotherResource", "address": address},
    }
    machine.answer(
        shown_plan(),
        {"to": ["terraform", " apply "], "out": json.dumps(error) + "\n", "code": 1, "times": 1},
        {"to": ["firewall-rules list"], "out": "gke-tpu-cluster-all\nk8s-fw-1\n"},
    )
    done = machine.tpu("destroy", "--name", "tpu-cluster")
    assert done.returncode == 0, done.stderr
    calls = machine.calls()
    assert any('name ~ "^(gke|k8s)-"' in call for call in calls if "firewall-rules list" in call)
    assert any("firewall-rules delete gke-tpu-cluster-all k8s-fw-1" in call for call in calls)
    assert sum(" apply " in call for call in calls) == 2


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--yes",), "the cluster is deleted only if --yes and its name are both given\n  pass --name tpu-cluster"),
        (("--name", "other"), "the file says tpu-cluster\n  pass --name tpu-cluster"),
        (("--yes", "--name", "other"), "the file says tpu-cluster"),
    ],
)
def test_destroy_under_another_name_or_none_is_refused_and_calls_nothing(machine, words, said):
    done = machine.tpu("destroy", *words)
    assert (done.returncode, machine.calls()) == (2, [])
    assert said in done.stderr


def test_destroy_without_a_terminal_and_without_a_name_deletes_nothing(machine):
    done = machine.tpu("destroy")
    assert done.returncode == 2
    assert "pass --name tpu-cluster" in done.stderr
    assert not any(" apply " in call for call in machine.calls())


@pytest.mark.parametrize(("typed", "deleted"), [("tpu-cluster", True), ("y", False), ("", False)])
def test_destroy_at_a_terminal_wants_the_name_typed(machine, typed, deleted, tmp_path):
    argv = [sys.executable, "-m", "tpukit", "cluster", "destroy", "--set", "force_destroy=true"]
    done = terminal.run(argv, os.environ | {"PYTHONPATH": str(ROOT / "tools")}, tmp_path, answers={"to do so": typed})
    assert any(" apply " in call for call in machine.calls()) == deleted, done.text
    assert ("nothing was deleted" in done.text) != deleted


OUTPUTS = {
    "project_id": {"value": "my-project-1"},
    "artifact_bucket": {"value": "gs://my-artifacts"},
    "image_repository": {"value": "us-central2-docker.pkg.dev/my-project-1/tpu-cluster"},
}
SETTINGS = """\
# mine
project: my-project-1
context: gke_my-project-1_us-central2_tpu-cluster
artifacts: gs://my-artifacts
image: us-central2-docker.pkg.dev/my-project-1/tpu-cluster/train:1
ssh_user: ada
"""


def test_destroy_removes_the_settings_that_led_to_the_cluster_and_no_others(machine):
    (machine.folder / "settings.yaml").write_text(SETTINGS)
    machine.answer(shown_plan(), {"to": ["terraform", "output"], "out": json.dumps(OUTPUTS)})
    done = machine.tpu("destroy", "--name", "tpu-cluster")
    assert done.returncode == 0, done.stderr
    assert (machine.folder / "settings.yaml").read_text() == "# mine\nproject: my-project-1\nssh_user: ada\n"
    assert "settings.yaml: artifacts, image, context, which led to tpu-cluster" in done.stderr


def test_destroy_of_another_cluster_leaves_the_settings_as_they_are(machine):
    other = SETTINGS.replace("_tpu-cluster\n", "_another\n", 1)
    (machine.folder / "settings.yaml").write_text(other)
    machine.answer(shown_plan())
    assert machine.tpu("destroy", "--name", "tpu-cluster").returncode == 0
    assert (machine.folder / "settings.yaml").read_text() == other
