"""`tpu image push`: its calls, messages and settings, with a stand-in for gcloud."""

from __future__ import annotations

import json
import shlex

import pytest

from tpukit.cluster import images
from tpukit.jobs.spec import settings

REPOSITORY = "us-central1-docker.pkg.dev/my-project-1/tpu-cluster"
BUILD = "00000000-0000-4000-8000-000000000001"
DIGEST = f"sha256:{'a' * 64}"


@pytest.fixture
def folder(machine):
    settings.save({"repository": REPOSITORY})
    (machine.folder / "Dockerfile").write_text("FROM python\n")
    return machine.folder


def built(name="train:1"):
    image = {"name": f"{REPOSITORY}/{name}", "digest": DIGEST}
    return {"to": ["builds submit"], "out": json.dumps({"status": "SUCCESS", "results": {"images": [image]}})}


def test_push_builds_into_the_repository_of_the_settings_and_jobs_run_in_it(machine, folder):
    machine.answer(built())
    done = machine.run("image", "push", "--tag", "1")
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{REPOSITORY}/train@{DIGEST}\n"
    assert settings.load().image == f"{REPOSITORY}/train@{DIGEST}"
    (call,) = machine.calls()
    words = shlex.split(call)
    account = "projects/my-project-1/serviceAccounts/tpu-image-build@my-project-1.iam.gserviceaccount.com"
    assert f"--service-account={account}" in words
    assert "--gcs-source-staging-dir=gs://my-project-1-image-source/source" in words
    assert not list((folder / "home" / "data").glob("image-build*"))


def test_push_keep_default_leaves_the_settings_alone(machine, folder):
    machine.answer(built())
    assert machine.run("image", "push", "--tag", "1", "--keep-default").returncode == 0
    assert settings.load().image is None


@pytest.mark.parametrize(
    ("detail", "hint"),
    [
        ('denied: Permission "artifactregistry.repositories.uploadArtifacts" denied', "take effect after minutes"),
        ("build step 0 failed: pip found no such package", f"gcloud beta builds log {BUILD} --project=my-project-1"),
    ],
)
def test_push_build_that_fails_says_why_and_changes_no_setting(machine, folder, detail, hint):
    failed = {"to": ["builds submit"], "code": 1, "err": f"Created [https://x/builds/{BUILD}].\nERROR: FAILURE\n"}
    machine.answer(failed, {"to": ["builds describe"], "out": f"{detail}\n"})
    done = machine.run("image", "push", "--tag", "1")
    assert done.returncode == 1
    assert detail in done.stderr
    assert hint in done.stderr
    assert settings.load().image is None


def test_push_that_cloud_build_refuses_says_so(machine, folder):
    machine.answer({"to": ["builds submit"], "code": 1, "err": "ERROR: PERMISSION_DENIED: nobody may\n"})
    done = machine.run("image", "push")
    assert done.returncode == 1
    assert "sending the build failed: ERROR: PERMISSION_DENIED" in done.stderr


def test_push_without_a_repository_says_who_makes_one(machine):
    (machine.folder / "Dockerfile").write_text("FROM python\n")
    done = machine.run("image", "push")
    assert (done.returncode, machine.calls()) == (2, [])
    assert "`tpu cluster up` creates one" in done.stderr


def test_push_folder_without_a_dockerfile_is_refused_and_calls_nothing(machine, folder):
    (folder / "Dockerfile").unlink()
    done = machine.run("image", "push")
    assert (done.returncode, machine.calls()) == (2, [])
    assert "there is no Dockerfile" in done.stderr


def test_push_dry_run_prints_the_line_and_calls_nothing(machine, folder):
    done = machine.run("image", "push", "--dry-run")
    assert (done.returncode, machine.calls()) == (0, [])
    assert "gcloud builds submit ." in done.stdout


@pytest.mark.parametrize("name", ["Train", "a b", "x@y"])
def test_push_name_that_no_image_may_have_is_refused(machine, folder, name):
    done = machine.run("image", "push", "--name", name)
    assert (done.returncode, machine.calls()) == (2, [])


def test_push_of_a_dockerfile_that_is_named_builds_that_one(machine, folder):
    done = machine.run("image", "push", "--file", "deploy/Dockerfile")
    assert (done.returncode, machine.calls()) == (2, [])
    assert "there is no deploy/Dockerfile" in done.stderr
    (folder / "deploy").mkdir()
    (folder / "deploy" / "Dockerfile").write_text("FROM python\n")
    assert images.config("i:1", "deploy/Dockerfile")["steps"][0]["args"][:3] == ["build", "--file", "deploy/Dockerfile"]
    machine.answer(built("tpu-provisioner:1"))
    words = ("--file", "deploy/Dockerfile", "--name", "tpu-provisioner", "--tag", "1", "--keep-default")
    assert machine.run("image", "push", *words).stdout == f"{REPOSITORY}/tpu-provisioner@{DIGEST}\n"
