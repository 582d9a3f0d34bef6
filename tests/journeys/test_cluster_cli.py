"""`tpu cluster`: what it calls, what it says, what it refuses. gcloud, kubectl and terraform have stand-ins."""

from __future__ import annotations

import json
import os
import resource
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

import terminal
from journeys.cluster_machine import PODS, PREVIEW, RECORDED, ROOT

POOL = "google_container_node_pool"


def shown_plan(*changes):
    return {"to": ["terraform", "show -json"], "out": json.dumps({"resource_changes": list(changes)})}


def preview(*changes):
    return {"to": ["previews export"], "file": json.dumps({"resource_changes": list(changes)})}


def deletes(kind, **before):
    return {"type": kind, "address": "a.b", "change": {"actions": ["delete"], "before": before}}


NODES = {
    "items": [
        {"metadata": {"name": "h0", "labels": {"cloud.google.com/gke-nodepool": "tpu-node-pool-1"}}, "status": {}},
    ]
}
RUNS_A_JOB = (
    {"to": ["kubectl", "get nodes"], "out": json.dumps(NODES)},
    {"to": ["kubectl", "get pods"], "out": json.dumps(PODS)},
)


@pytest.mark.parametrize(
    "wrong",
    ["zone=us-central2-q", "zone=europe-west4-a", "tpu_type=v4-31", "pods_ip_range=10.129.0.0/20", "subnet_ip_range=x"],
)
def test_plan_wrong_zone_type_or_range_is_refused_and_calls_nothing(machine, wrong):
    done = machine.tpu("plan", "--set", wrong)
    assert done.returncode == 2
    assert "  write " in done.stderr or "  give " in done.stderr
    assert machine.calls() == []


def test_plan_wrong_zone_answers_in_less_than_half_a_second(machine):
    argv = [sys.executable, "-m", "tpukit", "cluster", "plan", "--set", "zone=us-central2-q"]
    taken = []
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run(
            argv, capture_output=True, text=True, env=os.environ | {"PYTHONPATH": str(ROOT / "tools")}
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        assert (done.returncode, done.stdout) == (2, "")
        assert "us-central2-q is not known to have v4-32\n  write us-central2-b" in done.stderr
        taken.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    # Time of the processor: other work on this machine is no part of the answer.
    assert min(taken) < 0.5


def test_plan_without_file_or_settings_says_what_to_write(machine):
    (machine.folder / "cluster.yaml").unlink()
    done = machine.tpu("plan")
    assert (done.returncode, machine.calls()) == (2, [])
    assert "cluster.yaml: there is no such file here\n  name a cluster file" in done.stderr


@pytest.mark.parametrize("via", ["local", "cloud-build", "infra-manager"])
@pytest.mark.parametrize("verb", ["apply", "destroy"])
def test_dry_run_prints_the_very_lines_that_a_run_calls_and_calls_none(machine, verb, via):
    printed = machine.tpu(verb, "--via", via, "--evict", "--dry-run", "--set", "force_destroy=true")
    assert (printed.returncode, machine.calls()) == (0, [])
    machine.answer(shown_plan())
    named = ["--name", "tpu-cluster"] if verb == "destroy" else []
    done = machine.tpu(verb, "--via", via, "--evict", "--yes", *named, "--set", "force_destroy=true")
    assert done.returncode == 0, done.stderr
    lines = [line for line in printed.stdout.splitlines() if not line.startswith(("#", "mkdir ", "cp ", "rm "))]
    assert [call for call in machine.calls() if "version -json" not in call] == lines


def test_dry_run_of_everything_is_read_by_a_shell_as_the_arguments_that_are_meant(machine):
    printed = machine.tpu("plan", "--dry-run", "--set", 'cluster_description=it\'s "mine"; rm -rf $HOME')
    line = next(line for line in printed.stdout.splitlines() if " plan " in line)
    assert '-var=cluster_description=it\'s "mine"; rm -rf $HOME' in shlex.split(line)


def test_bootstrap_makes_what_is_missing_and_leaves_what_is_there(machine):
    missing = {"to": ["service-accounts describe infrastructure-manager-sa"], "code": 1, "err": "ERROR: NOT_FOUND"}
    machine.answer(missing, {"to": ["get-iam-policy"], "out": '{"etag": "x"}'})
    done = machine.tpu("bootstrap")
    assert done.returncode == 0, done.stderr
    calls = "\n".join(machine.calls())
    assert "buckets create" not in calls
    assert "buckets update gs://my-project-1-tf-state --versioning" in calls
    assert "service-accounts create tpu-cluster-build" not in calls
    assert "service-accounts create infrastructure-manager-sa" in calls
    assert "roles/owner" not in calls
    assert "roles/editor" not in calls
    assert "state bucket gs://my-project-1-tf-state: already there" in done.stderr
    assert calls.count("set-iam-policy") == 1  # all roles in one change


def test_bootstrap_lets_builds_become_no_account_but_that_of_the_nodes(machine):
    lines = machine.tpu("bootstrap", "--dry-run").stdout.splitlines()
    given = [line for line in lines if line.startswith("#   serviceAccount:")]
    assert any("tpu-cluster-build" in line and "roles/container.admin" in line for line in given)
    builds = [line for line in given if "tpu-cluster-build" in line or "infrastructure-manager-sa" in line]
    assert not [line for line in builds if "roles/iam." in line or "projectIamAdmin" in line]
    acting = [line for line in lines if "roles/iam.serviceAccountUser" in line and not line.startswith("#")]
    assert len(acting) == 2
    assert all("add-iam-policy-binding gke-sa@my-project-1." in line for line in acting)
    before = "serviceAccount:tpu-cluster-build@my-project-1.iam.gserviceaccount.com has roles/iam.serviceAccountUser"
    assert f"# and takes away that {before}" in lines


def test_bootstrap_turns_on_what_streaming_images_needs_and_gives_nodes_the_role(machine):
    lines = machine.tpu("bootstrap", "--dry-run").stdout
    assert "containerfilesystem.googleapis.com" in lines
    assert "gke-sa@my-project-1.iam.gserviceaccount.com has roles/serviceusage.serviceUsageConsumer" in lines


def test_bootstrap_that_may_not_look_stops_and_says_so(machine):
    machine.answer({"to": ["buckets describe"], "code": 1, "err": "ERROR: 403 Permission storage.buckets.get denied"})
    done = machine.tpu("bootstrap")
    assert done.returncode == 1
    assert "Permission storage.buckets.get denied" in done.stderr
    assert not any("buckets create" in call for call in machine.calls())


def test_apply_shows_the_plan_asks_and_applies_that_plan(machine):
    machine.answer(shown_plan())
    done = machine.tpu("apply", "--yes")
    assert done.returncode == 0, done.stderr
    assert 'module.tpu_pools.google_container_node_pool.this["tpu-node-pool-1"]' in done.stderr
    verbs = [shlex.split(call)[2] for call in machine.calls() if "-chdir" in call]
    assert verbs == ["init", "plan", "show", "apply"]
    assert machine.calls()[-1].endswith(" shown.tfplan")


def test_apply_without_a_terminal_and_without_yes_applies_nothing(machine):
    machine.answer(shown_plan())
    done = machine.tpu("apply")
    assert done.returncode == 2
    assert "add --yes" in done.stderr
    assert not any(" apply " in call for call in machine.calls())


def test_apply_that_takes_a_pool_from_a_running_job_is_refused_and_names_both(machine):
    machine.answer(shown_plan(deletes(POOL, name="tpu-node-pool-1")), *RUNS_A_JOB)
    done = machine.tpu("apply", "--yes")
    assert done.returncode == 1
    assert "tpu-node-pool-1 runs tpu-training/pretrain" in done.stderr
    assert not any(" apply " in call for call in machine.calls())
    assert machine.tpu("apply", "--yes", "--evict").returncode == 0
    assert any(" apply " in call for call in machine.calls())


def test_apply_that_takes_another_pool_goes_ahead(machine):
    machine.answer(shown_plan(deletes(POOL, name="tpu-node-pool-0")), *RUNS_A_JOB)
    assert machine.tpu("apply", "--yes").returncode == 0


def test_apply_that_takes_a_pool_from_a_cluster_that_does_not_answer_is_refused(machine):
    silent = {"to": ["kubectl"], "code": 1, "err": "error: context was not found"}
    machine.answer(shown_plan(deletes(POOL, name="tpu-node-pool-1")), silent)
    done = machine.tpu("apply", "--yes")
    assert done.returncode == 1
    assert "cannot be asked what runs there: error: context was not found" in done.stderr
    assert "tpu cluster credentials" in done.stderr
    assert not any(" apply " in call for call in machine.calls())


@pytest.mark.parametrize("via", ["cloud-build", "infra-manager"])
def test_destroy_elsewhere_is_refused_while_a_job_runs(machine, via):
    machine.answer(*RUNS_A_JOB, preview(deletes(POOL, name="tpu-node-pool-1")))
    done = machine.tpu("destroy", "--name", "tpu-cluster", "--via", via)
    assert done.returncode == 1
    assert "tpu-node-pool-1 runs tpu-training/pretrain" in done.stderr
    assert not any("submit" in call or "deployments delete" in call for call in machine.calls())


def test_plan_by_infrastructure_manager_shows_its_preview_on_the_same_screen(machine):
    replaced = {**deletes(POOL, name="tpu-node-pool-1"), "action_reason": "replace_because_cannot_update"}
    replaced["change"]["actions"] = ["delete", "create"]
    absent = {"to": ["deployments describe"], "code": 1, "err": "ERROR: NOT_FOUND"}
    machine.answer(absent, preview(replaced, {**PREVIEW["resource_changes"][0]}))
    done = machine.tpu("plan", "--via", "infra-manager")
    assert done.returncode == 0, done.stderr
    lines = [line.split() for line in done.stdout.splitlines()]
    assert ["±", "a.b", "replace", "because", "cannot", "update"] in lines
    assert ["+", "module.network.google_compute_network.this[0]", "create"] in lines
    assert "2 to add, 0 to change, 1 to destroy." in done.stdout
    verbs = [call.split()[2:4] for call in machine.calls() if "previews" in call]
    assert verbs == [["previews", verb] for verb in ("delete", "create", "export", "delete")]
    assert not any("--deployment=" in call for call in machine.calls())
    assert not list(machine.folder.rglob("preview.*"))


def test_apply_by_infrastructure_manager_without_yes_shows_the_preview_and_applies_nothing(machine):
    machine.tpu("apply", "--via", "infra-manager")
    calls = "\n".join(machine.calls())
    assert "previews create" in calls
    assert "--deployment=projects/my-project-1/locations/us-central1/deployments/tpu-cluster" in calls
    assert "deployments apply" not in calls


def test_apply_by_infrastructure_manager_with_nothing_to_change_applies_nothing(machine):
    machine.answer(preview())
    done = machine.tpu("apply", "--yes", "--via", "infra-manager")
    assert "Nothing to change." in done.stderr
    assert not any("deployments apply" in call for call in machine.calls())


def test_preview_that_fails_tells_what_terraform_said_there_and_applies_nothing(machine):
    trouble = {"tfErrors": [{"resourceAddress": "a.b", "errorDescription": "Zone is not in region"}]}
    machine.answer(
        {"to": ["previews create"], "code": 1, "err": "ERROR: (gcloud.infra-manager.previews.create) failed"},
        {"to": ["previews describe"], "out": json.dumps(trouble)},
    )
    done = machine.tpu("apply", "--yes", "--via", "infra-manager")
    assert done.returncode == 1
    assert "a.b: Zone is not in region" in done.stderr
    assert not any("deployments apply" in call for call in machine.calls())


def test_destroy_by_infrastructure_manager_of_a_bucket_with_data_is_refused_before_anything_goes(machine):
    bucket = deletes("google_storage_bucket", name="my-artifacts", force_destroy=False)
    machine.answer(preview(bucket), {"to": ["storage ls"], "out": "gs://my-artifacts/checkpoint#1\n"})
    done = machine.tpu("destroy", "--name", "tpu-cluster", "--via", "infra-manager")
    assert done.returncode == 1
    assert "gs://my-artifacts is not empty" in done.stderr
    assert not any("deployments delete" in call for call in machine.calls())


def test_apply_elsewhere_asks_nothing_of_a_cluster_that_is_not_there_yet(machine):
    machine.answer({"to": ["clusters describe"], "code": 1, "err": "ERROR: code=404, message=Not found"})
    done = machine.tpu("apply", "--yes", "--via", "cloud-build")
    assert done.returncode == 0, done.stderr
    assert not any("kubectl" in call for call in machine.calls())


def test_apply_by_cloud_build_passes_on_what_the_build_says(machine):
    machine.answer({"to": ["builds submit"], "out": "Step #1 - init\n", "err": "Created [build].\n"})
    done = machine.tpu("apply", "--yes", "--evict", "--via", "cloud-build")
    assert "Step #1 - init" in done.stdout
    assert "Created [build]." in done.stdout


def test_apply_by_cloud_build_from_an_installed_package_asks_for_a_checkout(machine):
    done = machine.tpu("apply", "--yes", "--evict", "--via", "cloud-build", "--source", str(machine.folder))
    assert done.returncode == 1
    assert "there is no cloudbuild.provision.yaml" in done.stderr
    assert "--source" in done.stderr


def test_apply_by_cloud_build_says_every_variable(machine):
    words = ("--set", "tpu_disk_size=200", "--set", "labels={a: b}", "--evict")
    sent = substitutions(machine.tpu("apply", "--via", "cloud-build", "--dry-run", *words).stdout)
    assert json.loads(sent["_TF_VARS"]) == {"tpu_disk_size": 200, "labels": {"a": "b"}}
    assert sent["_TPU_TYPE"] == "v4-32"


def test_apply_by_cloud_build_says_a_shape_in_the_words_of_the_file(machine):
    file = machine.folder / "cluster.yaml"
    words = "tpu_machine_type: ct4p-hightpu-4t\ntpu_topology: 2x2x4"
    file.write_text(file.read_text().replace("tpu_type: v4-32", words))
    sent = substitutions(machine.tpu("apply", "--via", "cloud-build", "--dry-run", "--evict").stdout)
    assert sent["_TPU_TYPE"] == ""
    assert json.loads(sent["_TF_VARS"]) == {"tpu_machine_type": "ct4p-hightpu-4t", "tpu_topology": "2x2x4"}


def test_apply_by_cloud_build_may_replace_what_the_person_was_told_of_and_nothing_else(machine):
    there = {"to": ["clusters describe"], "out": "{}"}
    nodes = {
        "items": [
            {
                "metadata": {
                    "name": "n",
                    "labels": {
                        "cloud.google.com/gke-nodepool": "tpu-node-pool-7",
                        "cloud.google.com/gke-tpu-topology": "2x2x4",
                        "node.kubernetes.io/instance-type": "ct4p-hightpu-4t",
                    },
                }
            }
        ]
    }
    for found, allowed in (({"items": []}, "false"), (nodes, "true")):
        machine.answer(
            there,
            {"to": ["kubectl", "get nodes"], "out": json.dumps(found)},
            {"to": ["kubectl", "get pods"], "out": '{"items": []}'},
        )
        done = machine.tpu("apply", "--yes", "--via", "cloud-build")
        assert done.returncode == 0, done.stderr
        (sent,) = [call for call in machine.calls() if "builds submit" in call][-1:]
        assert f"_ALLOW_REPLACE={allowed}" in sent


def test_apply_by_cloud_build_refuses_more_than_a_substitution_holds(machine):
    labels = {f"label-{number}": "x" * 60 for number in range(60)}
    done = machine.tpu("apply", "--via", "cloud-build", "--set", f"labels={json.dumps(labels)}")
    assert done.returncode == 2
    assert "4000 bytes" in done.stderr
    assert "--via local" in done.stderr


def substitutions(printed: str) -> dict[str, str]:
    """What a build is sent, from its command line."""
    text = shlex.split(printed.strip().splitlines()[-1])[-2].removeprefix("--substitutions=")
    comma = ","
    if text.startswith("^"):
        comma, text = text[1], text[3:]
    return dict(pair.split("=", 1) for pair in text.split(comma))


def test_apply_by_infrastructure_manager_that_fails_tells_what_terraform_said_there(machine):
    trouble = {"tfErrors": [{"resourceAddress": "a.b", "httpResponseCode": 403, "errorDescription": "quota TPU_V4"}]}
    machine.answer(
        {"to": ["deployments apply"], "code": 1, "err": "ERROR: (gcloud.infra-manager.deployments.apply) failed"},
        {"to": ["deployments describe"], "out": json.dumps(trouble)},
    )
    done = machine.tpu("apply", "--yes", "--evict", "--via", "infra-manager")
    assert done.returncode == 1
    assert "a.b: quota TPU_V4: HTTP 403" in done.stderr
    assert "iam-admin/quotas" in done.stderr


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
    assert any("firewall-rules delete gke-tpu-cluster-all k8s-fw-1" in call for call in calls)
    assert sum(" apply " in call for call in calls) == 2


def test_failed_apply_says_resource_what_and_what_to_do(machine):
    machine.answer(shown_plan(), {"to": ["terraform", " apply "], "out": "".join(RECORDED), "code": 1})
    done = machine.tpu("apply", "--yes")
    assert done.returncode == 1
    assert 'google_container_node_pool.this["tpu-node-pool-0"]: Error waiting for creating GKE NodePool' in done.stderr
    assert "take another zone" in done.stderr


def test_old_terraform_is_refused_with_the_version_to_install(machine):
    machine.answer({"to": ["terraform version"], "out": '{"terraform_version": "1.5.6"}'})
    done = machine.tpu("plan")
    assert done.returncode == 1
    assert "terraform 1.5.6 is too old\n  install 1.5.7 or newer" in done.stderr


@pytest.mark.parametrize("name", ["terraform", "gcloud", "kubectl"])
def test_missing_program_is_a_sentence_with_the_way_to_get_it(machine, name):
    (machine.folder / "bin" / name).unlink()
    verb = {"terraform": "plan", "gcloud": "credentials", "kubectl": "addons"}[name]
    done = machine.tpu(verb)
    assert done.returncode == 1
    assert "on PATH" in done.stderr
    assert "install" in done.stderr
    assert "Traceback" not in done.stderr


def test_tokens_in_what_programs_say_are_not_passed_on(machine):
    machine.answer({"to": ["get-credentials"], "code": 1, "err": "401 with Bearer abc.def and ya29.a0AfH-secret\n"})
    done = machine.tpu("credentials")
    assert done.returncode == 1
    assert "secret" not in done.stderr
    assert "abc.def" not in done.stderr


def test_job_that_starts_while_the_person_reads_the_plan_is_seen(machine):
    idle = {"to": ["kubectl", "get pods"], "out": '{"items": []}', "times": 1}
    machine.answer(shown_plan(deletes(POOL, name="tpu-node-pool-1")), idle, *RUNS_A_JOB)
    done = machine.tpu("apply", "--yes")
    assert done.returncode == 1
    assert "tpu-node-pool-1 runs tpu-training/pretrain" in done.stderr
    assert not any(" apply " in call for call in machine.calls())


def test_working_copy_follows_the_modules_and_keeps_what_terraform_wrote(machine):
    modules = machine.folder / "modules"
    (modules / "part").mkdir(parents=True)
    for name in ("main.tf", "backend.tf", "part/main.tf"):
        (modules / name).write_text("# first\n")
    machine.tpu("plan", "--modules", str(modules), "--state", "local")
    copy = machine.folder / "home" / "data" / "clusters" / "my-project-1" / "tpu-cluster" / "local"
    assert sorted(path.name for path in copy.rglob("*.tf")) == ["main.tf", "main.tf"]  # no backend: the state is here
    (copy / "terraform.tfstate").write_text("{}")
    (modules / "part" / "main.tf").unlink()
    (modules / "main.tf").write_text("# second\n")
    machine.tpu("plan", "--modules", str(modules), "--state", "local")
    assert [path.read_text() for path in copy.rglob("*.tf")] == ["# second\n"]
    assert (copy / "terraform.tfstate").exists()
    assert not list(copy.glob("*.tfplan"))
    assert sorted(path.name for path in modules.rglob("*")) == ["backend.tf", "main.tf", "part"]  # left as it was


def test_build_files_take_every_substitution_that_is_sent(machine):
    words = ["--set", "capacity=reservation", "--set", "reservation_name=r", "--set", "num_of_chips=32"]
    for verb, file in (("apply", "cloudbuild.provision.yaml"), ("destroy", "cloudbuild.destroy.yaml")):
        line = machine.tpu(verb, "--via", "cloud-build", "--evict", "--dry-run", *words).stdout.strip()
        names = set(substitutions(line))
        text = (ROOT / file).read_text()
        document = yaml.safe_load(text)
        assert {name for name in names if f"${{{name}}}" not in text} == set()
        required = {"_TF_STATE_BUCKET", "_REGION", "_ZONE", "_ARTIFACT_REPOSITORY_BUCKET_NAME"}
        assert required <= names
        pins = {name: document["substitutions"].get(name) for name in ("_JOBSET_API_VERSION", "_KUEUE_API_VERSION")}
        if verb == "apply":
            assert pins == {"_JOBSET_API_VERSION": "v0.12.0", "_KUEUE_API_VERSION": "v0.16.6"}


def test_second_interrupt_kills_a_terraform_that_does_not_leave_and_all_it_started(machine):
    stubborn = """#!/bin/sh
case "$*" in
  *version*) echo '{"terraform_version": "1.9.0"}' ;;
  *init*) ;;
  *) trap '' INT TERM; /bin/sleep 600 & echo $! > child.new; /bin/mv child.new child; while :; do wait; done ;;
esac
"""
    (machine.folder / "bin" / "terraform").write_text(stubborn)
    argv = [sys.executable, "-m", "tpukit", "cluster", "plan"]
    env = os.environ | {"PYTHONPATH": str(ROOT / "tools")}
    process = subprocess.Popen(argv, env=env, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    with process:
        wait_until((machine.folder / "child").exists)
        process.send_signal(signal.SIGINT)
        said = [process.stderr.readline()]
        assert "Once more kills it" in said[0]
        assert process.poll() is None
        process.send_signal(signal.SIGINT)
        said += process.stderr.readlines()
    assert process.returncode == 1
    assert "plan was killed half-way" in "".join(said)
    assert "force-unlock" in "".join(said)
    child = Path(f"/proc/{(machine.folder / 'child').read_text().strip()}")
    wait_until(lambda: not child.exists() or "\nState:\tZ" in (child / "status").read_text())


def wait_until(true):
    until = time.monotonic() + 20
    while not true():
        assert time.monotonic() < until
        time.sleep(0.02)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--yes",), "--yes alone deletes nothing\n  add --name tpu-cluster"),
        (("--name", "other"), "the file says tpu-cluster\n  add --name tpu-cluster"),
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
    assert "add --name tpu-cluster" in done.stderr
    assert not any(" apply " in call for call in machine.calls())


@pytest.mark.parametrize(("typed", "deleted"), [("tpu-cluster", True), ("y", False), ("", False)])
def test_destroy_at_a_terminal_wants_the_name_typed(machine, typed, deleted, tmp_path):
    argv = [sys.executable, "-m", "tpukit", "cluster", "destroy", "--set", "force_destroy=true"]
    done = terminal.run(argv, os.environ | {"PYTHONPATH": str(ROOT / "tools")}, tmp_path, answers={"to do so": typed})
    assert any(" apply " in call for call in machine.calls()) == deleted, done.text
    assert ("nothing was deleted" in done.text) != deleted


def test_apply_shows_the_values_of_now_and_then_of_what_changes_in_place(machine):
    address = 'module.tpu_pools.google_container_node_pool.this["tpu-node-pool-1"]'
    change = {"actions": ["update"], "before": {"node_count": 3}, "after": {"node_count": 4}}
    machine.answer(shown_plan({"address": address, "type": POOL, "change": change}))
    assert "node_count: 3 → 4" in machine.tpu("apply", "--yes").stderr


def test_locked_state_names_the_line_that_unlocks_it_with_its_folder(machine):
    lock = {
        "@level": "error",
        "type": "diagnostic",
        "diagnostic": {"severity": "error", "summary": "Error acquiring the state lock", "detail": "ID: 17"},
    }
    machine.answer({"to": ["terraform", " plan "], "code": 1, "out": json.dumps(lock) + "\n"})
    done = machine.tpu("plan")
    folder = machine.folder / "home" / "data" / "clusters" / "my-project-1" / "tpu-cluster" / "gcs"
    assert f"`terraform -chdir={folder} force-unlock ID`" in done.stderr
