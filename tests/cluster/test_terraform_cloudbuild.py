"""The two Cloud Build files, step by step, with tools that answer what a test wants to see the build meet.

Refusals come from the real Terraform. The whole life of an environment in a sandbox has a file of its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from cluster.builds import DESTROY, GUIDE, GUIDE_PROVISION, PROVISION, ROOT, Builder, Refused, StepFailed, substituted
from tpukit.infra import versions
from tpukit.sandbox.google.emulator_settings import EVERY_API, Settings
from tpukit.sandbox.google.server import Emulator

NOTHING = (("terraform", 0, "{}"), ("python3", 0, ""), ("kubectl", 0, ""), ("gcloud", 0, ""))
"""Answers with which every tool does nothing."""
REQUIRED = ("_TF_STATE_BUCKET", "_REGION", "_ZONE", "_ARTIFACT_REPOSITORY_BUCKET_NAME")


@pytest.fixture
def google(tmp_path: Path) -> Iterator[Emulator]:
    with Emulator(tmp_path / "google", Settings(enabled=EVERY_API)) as emulator:
        yield emulator


@pytest.fixture
def builder(tmp_path: Path, google: Emulator, terraform_environment: dict[str, str]) -> Builder:
    return Builder(tmp_path, {**terraform_environment, **google.environment()})


@pytest.mark.parametrize(
    ("file", "given"), [(PROVISION, GUIDE_PROVISION), (DESTROY, GUIDE)], ids=["provision", "destroy"]
)
class TestFiles:
    def test_substitutions_of_the_guide_are_taken(self, file, given):
        build = substituted(yaml.safe_load(file.read_text()), given)
        assert "TF_VAR_tpu_type=v4-32" in build["options"]["env"]

    def test_substitution_that_nobody_knows_is_refused(self, file, given):
        with pytest.raises(Refused, match="_NETWORT_NAME is not used"):
            substituted(yaml.safe_load(file.read_text()), {**given, "_NETWORT_NAME": "typo"})

    def test_substitution_without_default_must_be_given(self, file, given):
        config = yaml.safe_load(file.read_text())
        assert not set(REQUIRED) & set(config["substitutions"])
        for missing in REQUIRED:
            with pytest.raises(Refused, match=f"{missing} has no value"):
                substituted(config, {name: value for name, value in given.items() if name != missing})
        substituted(config, {name: given[name] for name in REQUIRED})

    def test_images_are_pinned_to_exact_versions(self, file, given):
        images = {step["name"] for step in yaml.safe_load(file.read_text())["steps"]}
        assert all(re.search(r":\d+\.\d+\.\d+(-slim)?$", image) for image in images), images
        assert len({image for image in images if "terraform" in image}) == 1

    def test_scripts_stop_at_the_first_error_and_hold_no_substitution(self, file, given):
        for step in yaml.safe_load(file.read_text())["steps"]:
            assert re.match(r"#!/bin/(bash\nset -euo pipefail|sh\nset -eu)\n", step["script"]), step["id"]
            assert not re.search(r"\$\{?_[A-Z]", step["script"]), step["id"]
            assert "allowFailure" not in step
            assert "| bash" not in step["script"]
        assert yaml.safe_load(file.read_text())["timeout"] == "14400s"

    def test_variables_exist_in_terraform(self, file, given):
        declared = re.findall(r'^variable "(\w+)"', (ROOT / "terraform" / "variables.tf").read_text(), re.MULTILINE)
        passed = re.findall(r"^  - TF_VAR_(\w+)=", file.read_text(), re.MULTILINE)
        assert passed
        assert set(passed) <= set(declared)


def test_files_agree_on_defaults():
    provision, destroy = (yaml.safe_load(file.read_text())["substitutions"] for file in (PROVISION, DESTROY))
    assert destroy.items() <= provision.items()


def test_add_ons_have_the_versions_that_the_manifests_are_made_for():
    defaults = yaml.safe_load(PROVISION.read_text())["substitutions"]
    assert (defaults["_JOBSET_API_VERSION"], defaults["_KUEUE_API_VERSION"]) == (versions.JOBSET, versions.KUEUE)


def test_dollar_is_written_twice_and_scripts_are_left_alone():
    config = {"substitutions": {"_A": "1"}, "steps": [{"args": ["$$HOME ${_A} $_A"], "script": "echo $_A $HOME"}]}
    assert substituted(config, {})["steps"] == [{"args": ["$HOME 1 1"], "script": "echo $_A $HOME"}]


def test_substitution_with_a_wrong_name_is_refused():
    with pytest.raises(Refused, match="lower is no name"):
        substituted({"steps": ["$lower"]}, {"lower": "x"})


def test_provision_makes_a_bucket_for_the_state_only_where_there_is_none(builder):
    builder.answer(*NOTHING)
    calls = builder.run(PROVISION, GUIDE_PROVISION)
    assert not [call for call in calls if call.startswith("gcloud storage buckets create")]
    builder.answer(("buckets describe", 1, ""), *NOTHING)
    calls = builder.run(PROVISION, GUIDE_PROVISION)
    (created,) = [call for call in calls if call.startswith("gcloud storage buckets create")]
    assert created == (
        "gcloud storage buckets create gs://tpu-tf-state --project=tpu-project --location=us-central2 "
        "--uniform-bucket-level-access --public-access-prevention"
    )
    assert "gcloud storage buckets update gs://tpu-tf-state --versioning" in calls


RELEASE = "kubectl apply --server-side --force-conflicts --filename=https://github.com/kubernetes-sigs/{0}/releases/download/{1}/manifests.yaml"
READY = "kubectl wait --namespace={0}-system --for=condition=Available --timeout=10m deployment/{0}-controller-manager"
MARKED = (
    "kubectl annotate --overwrite --namespace={0}-system deployment/{0}-controller-manager tpukit.dev/installed={1}"
)


@pytest.mark.parametrize(
    "found",
    [
        "",
        " registry.k8s.io/{0}/{0}:{1}",  # half an installation: it was never marked
        "v0.1.0 registry.k8s.io/{0}/{0}:v0.1.0",
        "{1} registry.k8s.io/{0}/{0}:v0.1.0",  # somebody changed it since
        "v0.1.0 registry.k8s.io/{0}/{0}:{1}",  # half an upgrade
    ],
    ids=["nothing", "unmarked", "older", "changed", "half-way"],
)
def test_release_that_is_not_wholly_there_is_installed_marked_and_waited_for(builder, found):
    wanted = {"jobset": "v0.12.0", "kueue": "v0.16.6"}
    there = [(f"kubectl get --namespace={name}-system", 0, found.format(name, wanted[name])) for name in wanted]
    builder.answer(*there, *NOTHING)
    told = [
        call for call in builder.run(PROVISION, GUIDE_PROVISION) if re.match(r"kubectl (apply|annotate|wait)", call)
    ]
    assert told[:-1] == [
        line.format(name, version) for name, version in wanted.items() for line in (RELEASE, MARKED, READY)
    ]


def test_release_that_is_there_at_its_version_is_left_alone(builder):
    wanted = {"jobset": "v0.12.0", "kueue": "v0.16.6"}
    image = "{1} registry.k8s.io/{0}/{0}:{1}"
    there = [(f"kubectl get --namespace={name}-system", 0, image.format(name, wanted[name])) for name in wanted]
    builder.answer(*there, *NOTHING)
    told = [
        call for call in builder.run(PROVISION, GUIDE_PROVISION) if re.match(r"kubectl (apply|annotate|wait)", call)
    ]
    assert told[:-1] == [READY.format(name) for name in wanted]


@pytest.mark.parametrize(
    ("text", "step"),
    [
        ("buckets update", "state-bucket"),
        ("terraform init", "init"),
        ("terraform plan", "plan"),
        ("terraform apply", "apply"),
        ("get-credentials", "jobset"),
        ("--namespace=jobset-system", "jobset"),
        ("kubectl get --namespace=kueue-system", "kueue"),
        ("download/v0.16.6", "kueue"),
        ("kubectl annotate", "jobset"),
        ("--namespace=kueue-system", "kueue"),
        ("pip install", "queues"),
        ("--kustomize=", "apply-queues"),
    ],
)
def test_provision_fails_with_the_step_that_failed(builder, text, step):
    builder.answer((text, 1, ""), *NOTHING)
    with pytest.raises(StepFailed, match=f"^\\('{step}'"):
        builder.run(PROVISION, GUIDE_PROVISION)
    tries = [call for call in builder.calls if text in call]
    assert len(tries) == (30 if step == "apply-queues" else 1)


def test_provision_refuses_chips_that_do_not_follow_before_anything_is_made(builder):
    with pytest.raises(StepFailed, match="num_of_chips is 64") as failed:
        builder.run(PROVISION, {**GUIDE_PROVISION, "_NUM_OF_CHIPS": "64"})
    assert failed.value.args[0] == "plan"
    assert not [call for call in builder.calls if call.startswith("terraform apply")]


def test_value_with_shell_in_it_stays_a_value(builder):
    with pytest.raises(StepFailed, match="no tpu_type"):
        builder.run(PROVISION, {**GUIDE_PROVISION, "_TPU_TYPE": "v4-32; touch owned", "_NUM_OF_CHIPS": ""})
    assert not list(builder.workspace.rglob("owned"))


def test_destroy_takes_the_cluster_then_its_firewall_rules_then_the_rest(builder):
    builder.answer(("firewall-rules list", 0, "gke-tpu-cluster-all\nk8s-fw-1"), ("terraform", 0, ""), *NOTHING)
    calls = builder.run(DESTROY, GUIDE)
    told = [call for call in calls if re.match(r"(terraform (plan|apply)|gcloud compute firewall-rules delete)", call)]
    assert told == [
        "terraform plan -destroy -lock-timeout=5m -target=module.cluster -out=/workspace/cluster.tfplan",
        "terraform apply -lock-timeout=5m /workspace/cluster.tfplan",
        "gcloud compute firewall-rules delete gke-tpu-cluster-all k8s-fw-1 --project=tpu-project --quiet",
        "terraform plan -destroy -lock-timeout=5m -out=/workspace/rest.tfplan",
        "terraform apply -lock-timeout=5m /workspace/rest.tfplan",
    ]


def test_destroy_deletes_no_firewall_rule_where_none_is_left(builder):
    builder.answer(("terraform", 0, ""), *NOTHING)
    assert not [call for call in builder.run(DESTROY, GUIDE) if "firewall-rules delete" in call]


def test_destroy_with_data_in_the_bucket_stops_before_anything_is_deleted(builder):
    builder.answer(("storage ls", 0, "gs://tpu-artifacts/checkpoints/"), *NOTHING)
    with pytest.raises(StepFailed, match=r"gs://tpu-artifacts is not empty.*_FORCE_DESTROY=true"):
        builder.run(DESTROY, GUIDE)
    assert not [call for call in builder.calls if call.startswith("terraform")]


def test_destroy_lifts_protection_first(builder):
    builder.answer(
        ("state show -no-color module.cluster", 0, "    deletion_protection      = true"),
        ("state show -no-color module.artifact_bucket", 0, "    force_destroy            = false"),
        ("terraform", 0, ""),
        *NOTHING,
    )
    calls = builder.run(DESTROY, {**GUIDE, "_FORCE_DESTROY": "true"})
    applied = [call for call in calls if call.startswith("terraform apply")]
    assert applied[:2] == [
        "terraform apply -lock-timeout=5m -auto-approve -refresh=false "
        "-target=module.cluster.google_container_cluster.this -var=deletion_protection=false",
        "terraform apply -lock-timeout=5m -auto-approve -refresh=false "
        "-target=module.artifact_bucket.google_storage_bucket.this",
    ]
    assert not [call for call in calls if call.startswith("gcloud storage ls")]


def test_destroy_that_leaves_something_fails(builder):
    builder.answer(("state list", 0, "module.network.google_compute_network.this"), *NOTHING)
    with pytest.raises(StepFailed, match="These are still there"):
        builder.run(DESTROY, GUIDE)
