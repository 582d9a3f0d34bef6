"""`tpu queue deploy`: its calls and files, and that it resumes after an interruption. Programs have stand-ins."""

from __future__ import annotations

import json
import re

import pytest
import yaml

from journeys.cluster_machine import ROOT
from tpukit.cluster import queue_deployment
from tpukit.jobs.spec import settings

REPOSITORY = "us-central1-docker.pkg.dev/my-project-1/tpu-cluster"
OWN = "tpukit-queue@my-project-1.iam.gserviceaccount.com"
DIGEST = f"sha256:{'a' * 64}"
LOCAL_QUEUE = {"to": ["kubectl", "get localqueues"], "out": "localqueue.kueue.x-k8s.io/research\n"}
POLICY = {"to": ["get-iam-policy"], "out": '{"bindings": [], "etag": "x"}'}
BUILT_EARLIER = {"to": ["docker tags list"], "out": f"{DIGEST}\n"}
NOT_BUILT = {"to": ["docker tags list"], "code": 1, "err": "ERROR: NOT_FOUND: no such image\n"}
OTHERS_BUILT = {"to": ["docker tags list"], "out": ""}


def builds(name, dockerfile):
    image = f"{REPOSITORY}/{name}:{queue_deployment.tag(ROOT, dockerfile)}"
    return {"name": image, "digest": DIGEST}


@pytest.fixture(scope="module")
def submitted():
    """Return one answer with both images. The caller picks its own by name."""
    made = [builds(*pair) for pair in queue_deployment.DOCKERFILES.items()]
    return {"to": ["builds submit"], "out": json.dumps({"status": "SUCCESS", "results": {"images": made}})}


@pytest.fixture
def deploy(machine):
    settings.save({"repository": REPOSITORY, "artifacts": "gs://my-artifacts", "team": "research"})
    return lambda *words: machine.run("queue", "deploy", str(ROOT), "--store", "firestore://my-project-1", *words)


def applied(machine):
    folder = machine.folder / "home" / "data" / "queue" / "deploy" / "my-project-1" / "research"
    values = dict(line.split("=", 1) for line in (folder / "config.env").read_text().splitlines())
    return values, yaml.safe_load((folder / "kustomization.yaml").read_text())


def test_deploy_makes_accounts_builds_applies_waits_and_names_the_next_command(machine, deploy, submitted):
    machine.answer(LOCAL_QUEUE, POLICY, NOT_BUILT, submitted)
    done = deploy("--tpu", "v5e-4")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "TPUKIT_STORE=firestore://my-project-1 tpu queue test --timeout 300\n"
    values, document = applied(machine)
    assert values["QUEUE_IMAGE"] == f"{REPOSITORY}/tpukit-queue-worker@{DIGEST}"
    assert (values["QUEUE_TEAM"], values["QUEUE_TPU"], values["QUEUE_RESULTS"]) == (
        "research",
        "v5e-4",
        "gs://my-artifacts/queue",
    )
    assert values["REST_SERVICE_ACCOUNT"] == "tpukit-queue-rest@my-project-1.iam.gserviceaccount.com"
    assert document["images"] == [
        {"name": "tpukit-queue-creator", "newName": f"{REPOSITORY}/tpukit-serve", "digest": DIGEST}
    ]
    calls = machine.calls()
    (policy,) = [call for call in calls if "set-iam-policy" in call]
    assert policy.startswith("gcloud projects set-iam-policy my-project-1")
    users = [call for call in calls if "workloadIdentityUser" in call]
    assert [re.search(r"\[(.*)\]", call)[1] for call in users] == [
        "tpukit-queue/creator",
        "research/queue-worker",
        "tpukit-queue/rest",
    ]
    buckets = [call for call in calls if "storage buckets add-iam-policy-binding gs://my-artifacts " in call]
    assert [re.search(r"roles/storage\.\w+", call)[0] for call in buckets] == [
        "roles/storage.objectCreator",
        "roles/storage.objectViewer",
    ]
    verbs = [call.split()[1] for call in calls if call.startswith("kubectl")]
    assert verbs == ["get", "apply", "get", "create", "rollout", "rollout"]
    assert not any("keys create" in call for call in calls)


def test_deploy_again_builds_nothing_and_leaves_the_token_that_callers_have(machine, deploy):
    there = {"to": ["get secret/rest"], "out": "secret/rest\n"}
    machine.answer(LOCAL_QUEUE, POLICY, BUILT_EARLIER, there)
    done = deploy()
    assert done.returncode == 0, done.stderr
    assert not [call for call in machine.calls() if "builds submit" in call or "kubectl create" in call]
    assert applied(machine)[0]["QUEUE_IMAGE"] == f"{REPOSITORY}/tpukit-queue-worker@{DIGEST}"


def test_deploy_of_a_changed_source_builds_beside_the_images_of_others(machine, deploy, submitted):
    machine.answer(LOCAL_QUEUE, POLICY, OTHERS_BUILT, submitted)
    done = deploy()
    assert done.returncode == 0, done.stderr
    assert len([call for call in machine.calls() if "builds submit" in call]) == 2


def test_deploy_with_an_emulator_in_the_environment_passes_it_on_and_says_so(machine, deploy, monkeypatch):
    machine.answer(LOCAL_QUEUE, POLICY, BUILT_EARLIER)
    monkeypatch.delenv("FIRESTORE_EMULATOR_HOST", raising=False)
    assert "FIRESTORE_EMULATOR_HOST" not in deploy().stderr
    assert "FIRESTORE_EMULATOR_HOST" not in applied(machine)[0]
    monkeypatch.setenv("FIRESTORE_EMULATOR_HOST", "127.0.0.1:8080")
    assert "pods use the emulator at 127.0.0.1:8080" in deploy().stderr
    assert applied(machine)[0]["FIRESTORE_EMULATOR_HOST"] == "127.0.0.1:8080"


def test_deploy_of_a_team_without_a_queue_says_how_to_make_one_and_changes_nothing(machine, deploy):
    done = deploy()
    assert done.returncode != 0
    assert "run `tpu team add research` to create it" in done.stderr
    assert len(machine.calls()) == 1


def test_deploy_dry_run_prints_what_a_run_calls_and_calls_nothing(machine, deploy, submitted):
    shown = deploy("--dry-run").stdout
    assert machine.calls() == []
    machine.answer(LOCAL_QUEUE, POLICY, NOT_BUILT, submitted)
    assert deploy().returncode == 0
    for call in machine.calls():
        if "set-iam-policy" not in call and "builds submit" not in call:  # these name files of this run
            assert call in shown


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--store", "sqlite"], "pods cannot reach sqlite"),
        (["--results", "/tmp/results"], "disks of pods are not retained"),
        (["--tpu", "v99-4"], "v99-4"),
    ],
)
def test_deploy_refuses_what_cannot_work_and_calls_nothing(machine, deploy, words, said):
    done = deploy(*words)
    assert done.returncode == 2
    assert said in done.stderr
    assert machine.calls() == []


def test_deploy_from_a_folder_that_is_no_checkout_says_what_is_missing(machine, deploy):
    done = machine.run("queue", "deploy", ".", "--store", "firestore://my-project-1")
    assert done.returncode == 2
    assert "there is no deploy/serve/Dockerfile" in done.stderr


def test_tag_of_an_image_is_another_when_its_source_is(tmp_path):
    (tmp_path / "tools" / "__pycache__").mkdir(parents=True)
    (tmp_path / "Dockerfile").write_text("FROM python\n")
    source = tmp_path / "tools" / "a.py"
    source.write_text("1")
    first = queue_deployment.tag(tmp_path, "Dockerfile")
    (tmp_path / "tools" / "__pycache__" / "a.pyc").write_text("x")
    assert queue_deployment.tag(tmp_path, "Dockerfile") == first
    source.write_text("2")
    assert queue_deployment.tag(tmp_path, "Dockerfile") != first


def test_deploy_whose_pods_cannot_start_says_why_and_not_to_apply_again(machine, deploy):
    waiting = {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}
    pod = {"metadata": {"name": "creator-1"}, "status": {"containerStatuses": [{"state": waiting}]}}
    machine.answer(
        LOCAL_QUEUE,
        POLICY,
        BUILT_EARLIER,
        {"to": ["rollout status"], "code": 1, "err": "error: timed out waiting for the condition\n"},
        {"to": ["get pods"], "out": json.dumps({"items": [pod]})},
    )
    done = deploy()
    assert done.returncode != 0
    assert "creator-1: ImagePullBackOff: no such image" in done.stderr
    assert "apply again" not in done.stderr


@pytest.fixture
def uninstall(deploy, machine):
    return lambda *words: machine.run("queue", "uninstall", str(ROOT), "--store", "firestore://my-project-1", *words)


def test_uninstall_removes_what_deploy_applied_and_its_accounts_and_leaves_results(machine, uninstall):
    granted = json.dumps({"bindings": [{"role": "roles/datastore.user", "members": [f"serviceAccount:{OWN}"]}]})
    machine.answer({"to": ["get-iam-policy"], "out": granted})
    done = uninstall("--yes")
    assert done.returncode == 0, done.stderr
    calls = machine.calls()
    (deleted,) = [call for call in calls if call.startswith("kubectl delete")]
    assert "--ignore-not-found" in deleted and "/queue/deploy/my-project-1/research" in deleted
    assert len([call for call in calls if "service-accounts delete" in call]) == 3
    assert len([call for call in calls if "buckets remove-iam-policy-binding" in call]) == 2
    assert [call for call in calls if "set-iam-policy" in call]
    assert not [call for call in calls if "storage rm" in call or "buckets delete" in call]


def test_uninstall_twice_is_once(machine, uninstall):
    machine.answer(
        {"to": ["service-accounts delete"], "code": 1, "err": "ERROR: NOT_FOUND: Unknown service account\n"},
        {"to": ["remove-iam-policy-binding"], "code": 1, "err": "ERROR: Policy binding with the member not found!\n"},
        POLICY,
    )
    done = uninstall("--yes")
    assert done.returncode == 0, done.stderr


def test_uninstall_while_queued_jobs_run_is_refused_unless_told(machine, uninstall):
    machine.answer(POLICY, {"to": ["get pods", "tpukit.dev/queue=worker"], "out": "pod/queue-a\n"})
    done = uninstall("--yes")
    assert done.returncode == 1 and "pass --evict" in done.stderr
    assert not [call for call in machine.calls() if "delete" in call]
    assert uninstall("--yes", "--evict").returncode == 0


def test_uninstall_dry_run_changes_nothing(machine, uninstall):
    shown = uninstall("--dry-run").stdout
    assert machine.calls() == []
    assert "kubectl delete" in shown and "service-accounts delete" in shown
