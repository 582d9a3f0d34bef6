"""`tpu cluster` with Terraform run by Cloud Build or Infrastructure Manager, which have stand-ins."""

from __future__ import annotations

import json
import shlex

import pytest
import yaml

from journeys.cluster_machine import POOL, PREVIEW, ROOT, RUNS_A_JOB, deletes, preview


def substitutions(printed: str) -> dict[str, str]:
    """Return the substitutions of a build from its command line."""
    text = shlex.split(printed.strip().splitlines()[-1])[-2].removeprefix("--substitutions=")
    comma = ","
    if text.startswith("^"):
        comma, text = text[1], text[3:]
    return dict(pair.split("=", 1) for pair in text.split(comma))


def test_apply_by_cloud_build_uploads_its_source_to_the_bucket_that_forgets_it(machine):
    line = machine.tpu("apply", "--dry-run", "--via", "cloud-build").stdout.strip().splitlines()[-1]
    assert "--gcs-source-staging-dir=gs://my-project-1-image-source/cluster" in shlex.split(line)


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
            assert pins == {"_JOBSET_API_VERSION": "v0.12.0", "_KUEUE_API_VERSION": "v0.19.2"}
