"""The two Cloud Build files, step by step, with tools whose answers each test chooses.

Refusals come from the real Terraform. tests/cluster/test_provision.py covers the whole life of an environment.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from cluster.builds import DESTROY, GUIDE, GUIDE_PROVISION, PROVISION, ROOT, Builder, Refused, StepFailed, substituted
from tpubox.google.wire.server import Emulator
from tpubox.google.wire.settings import EVERY_API, Settings
from tpukit.cluster import addons, build_checks, substitutions, versions
from tpukit.jobs.render import kueue_deployment

ALLOWED = {"permissions": list(build_checks.PERMISSIONS)}
MAY = (
    ("builds describe", 0, json.dumps({"timeout": "14400s", "serviceAccount": "projects/p/serviceAccounts/a@b"})),
    ("curl", 0, json.dumps(ALLOWED)),
    ("objects describe", 1, ""),
)
NOTHING = (
    *MAY,
    *(("terraform/queues.py", 0, ""), ("pip install", 0, "")),
    *(("terraform ", 0, "{}"), ("kubectl", 0, ""), ("gcloud", 0, "")),
)
"""Answers with which every tool does nothing, and the build has every permission."""
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
        assert "_TPU_TYPE=v4-32" in build["steps"][0]["env"]

    def test_substitutions_are_used_in_the_first_step_alone_where_they_are_documented_to_work(self, file, given):
        config = yaml.safe_load(file.read_text())
        first, *others = config["steps"]
        known = {*config["substitutions"], *REQUIRED}
        assert {line for line in first["env"] if "$" in line} == {
            f"{name}=${{{name}}}" for name in (*known, "PROJECT_ID", "BUILD_ID", "LOCATION")
        }
        assert "$" not in yaml.safe_dump([others and {**step, "script": ""} for step in others])
        assert "$" not in yaml.safe_dump(config["options"])

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
        pinned = re.compile(r":\d+\.\d+\.\d+(-slim)?(@sha256:[0-9a-f]{64})?$")
        assert all(pinned.search(image) for image in images), images
        # The digest of Google's own image is unknown.
        assert [image for image in images if "@" not in image] == [
            "gcr.io/google.com/cloudsdktool/google-cloud-cli:528.0.0"
        ]
        assert len({image for image in images if "terraform" in image}) == 1

    def test_scripts_stop_at_the_first_error_and_hold_no_substitution(self, file, given):
        for step in yaml.safe_load(file.read_text())["steps"]:
            assert re.match(r"#!/bin/(bash\nset -euo pipefail|sh\nset -eu)\n", step["script"]), step["id"]
            assert not re.search(r"\$\{?_[A-Z]", step["script"]), step["id"]
            assert "allowFailure" not in step
            assert "| bash" not in step["script"]
        assert yaml.safe_load(file.read_text())["timeout"] == "14400s"


def test_every_variable_of_terraform_can_be_said_to_a_build():
    declared = re.findall(r'^variable "(\w+)"', (ROOT / "terraform" / "variables.tf").read_text(), re.MULTILINE)
    assert set(substitutions.VARIABLES) < set(declared)
    for file in (PROVISION, DESTROY):
        text = file.read_text()
        assert all(f"  - {key}=${{{key}}}\n" in text for key in (*substitutions.VARIABLES.values(), substitutions.REST))


def test_files_agree_on_defaults():
    provision, destroy = (yaml.safe_load(file.read_text())["substitutions"] for file in (PROVISION, DESTROY))
    assert destroy.items() <= provision.items()
    assert set(provision) - set(destroy) == {"_ALLOW_REPLACE", "_JOBSET_API_VERSION", "_KUEUE_API_VERSION"}


def test_permissions_that_builds_ask_for_are_those_that_are_checked():
    asked = sorted((*build_checks.PERMISSIONS, build_checks.OF_DEFAULTS))
    for file in (PROVISION, DESTROY):
        (question,) = re.findall(r"--data '(\{.*?\})'", file.read_text(), re.DOTALL)
        assert sorted(json.loads(question)["permissions"]) == asked


def test_steps_in_python_need_nothing_installed():
    argv = [sys.executable, "-S", "-c", "import tpukit.cluster.build_step"]
    done = subprocess.run(argv, env={"PYTHONPATH": str(ROOT / "tools")}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_add_ons_have_the_versions_that_the_manifests_are_made_for():
    defaults = yaml.safe_load(PROVISION.read_text())["substitutions"]
    assert (defaults["_JOBSET_API_VERSION"], defaults["_KUEUE_API_VERSION"]) == (versions.JOBSET, versions.KUEUE)


ECHO = {"steps": [{"name": "a", "env": ["A=${_A}"], "script": "echo"}]}


@pytest.mark.parametrize(
    ("config", "given", "why"),
    [
        ({"steps": ["$lower"]}, {"lower": "x"}, "lower is no name"),
        ({"steps": [{"env": ["A=$_A"]}]}, {}, "_A has no value"),
        (ECHO, {"_A": "1", "_B": "2"}, "_B is not used"),
        ({"steps": [], "options": {"env": ["A=${_A}"]}}, {"_A": "1"}, "_A is not used"),
        ({"steps": [{"script": "echo ${_A}"}]}, {"_A": "1"}, "_A is not used"),
        ({"steps": [{"args": ["$_A"], "script": "echo"}]}, {"_A": "1"}, "neither args nor entrypoint"),
        ({**ECHO, "serviceAccount": "projects/p/serviceAccounts/a"}, {"_A": "1"}, "says where its logs go"),
        ({**ECHO, "service_account": "a"}, {"_A": "1"}, "service_account is no field"),
        (ECHO, {"_A": "x" * 4001}, "_A is too long"),
    ],
)
def test_build_that_google_refuses_is_refused(config, given, why):
    with pytest.raises(Refused, match=why):
        substituted(config, given)


def test_substitutions_are_made_in_steps_and_nowhere_else():
    config = {
        "substitutions": {"_A": "1"},
        "steps": [{"args": ["$$HOME ${_A} $_A"]}, {"script": "echo $_A $HOME"}],
        "options": {"env": ["B=${_A}"]},
    }
    done = substituted(config, {})
    assert done["steps"] == [{"args": ["$HOME 1 1"]}, {"script": "echo $_A $HOME"}]
    assert done["options"]["env"] == ["B=${_A}"]


def test_loose_build_takes_what_it_does_not_use_and_misses_nothing():
    config = {"steps": [{"args": ["a$_A"]}], "options": {"substitutionOption": "ALLOW_LOOSE"}}
    assert substituted(config, {"_B": "2"})["steps"] == [{"args": ["a"]}]


def test_build_that_takes_too_long_is_killed_in_its_step(builder, tmp_path):
    slow = tmp_path / "slow.yaml"
    step = {"id": "slow", "name": "a", "script": "#!/bin/sh\nexec /bin/sleep 600\n"}
    slow.write_text(yaml.safe_dump({"steps": [step], "options": {}}))
    with pytest.raises(StepFailed, match="TIMEOUT"):
        builder.run(slow, {}, seconds=0.2)


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
CONFIGURED = "kubectl apply --server-side --force-conflicts --filename=kueue/controller.yaml"
CHANGE = json.dumps(kueue_deployment.change(0))
ADAPTED = f"kubectl patch --namespace=kueue-system deployment/kueue-controller-manager --patch={CHANGE}"
MARKED = (
    "kubectl annotate --overwrite --namespace={0}-system deployment/{0}-controller-manager tpukit.dev/installed={1}"
)


@pytest.mark.parametrize(
    "found",
    [
        "",
        " registry.k8s.io/{0}/{0}:{1}",  # half an installation, never marked
        "v0.1.0 registry.k8s.io/{0}/{0}:v0.1.0",
        "{1} registry.k8s.io/{0}/{0}:v0.1.0",  # changed by hand since
        "v0.1.0 registry.k8s.io/{0}/{0}:{1}",  # half an upgrade
    ],
    ids=["nothing", "unmarked", "older", "changed", "half-way"],
)
def test_release_that_is_not_wholly_there_is_installed_marked_and_waited_for(builder, found):
    wanted = {"jobset": "v0.12.0", "kueue": "v0.19.2"}
    there = [(f"kubectl get --namespace={name}-system", 0, found.format(name, wanted[name])) for name in wanted]
    builder.answer(*there, *NOTHING)
    calls = builder.run(PROVISION, GUIDE_PROVISION)
    told = [call for call in calls if re.match(r"kubectl (apply|annotate|wait|patch)", call)]
    assert told[:-2] == [
        *(line.format("jobset", "v0.12.0") for line in (RELEASE, MARKED, READY)),
        *(RELEASE.format("kueue", "v0.19.2"), CONFIGURED, ADAPTED),
        *(line.format("kueue", addons.mark("kueue")) for line in (MARKED, READY)),
    ]


def test_release_that_is_there_at_its_version_is_left_alone(builder):
    wanted = {"jobset": "v0.12.0", "kueue": "v0.19.2"}
    image = "registry.k8s.io/{0}/{0}:{1}"
    there = [
        (f"kubectl get --namespace={name}-system deployment", 0, f"{addons.mark(name)} {image.format(name, version)}")
        for name, version in wanted.items()
    ]
    builder.answer(*there, *NOTHING)
    calls = builder.run(PROVISION, GUIDE_PROVISION)
    told = [call for call in calls if re.match(r"kubectl (apply|annotate|wait|patch)", call)]
    assert told[:-2] == [READY.format("jobset"), ADAPTED, READY.format("kueue")]


def test_kueue_gets_memory_for_the_nodes_that_there_are(builder):
    nodes = "\n".join(f"node/host-{number}" for number in range(200))
    builder.answer(("kubectl get nodes --output=name", 0, nodes), *NOTHING)
    (patch,) = [call for call in builder.run(PROVISION, GUIDE_PROVISION) if call.startswith("kubectl patch")]
    assert patch == ADAPTED.replace(CHANGE, json.dumps(kueue_deployment.change(200)))


def test_quotas_that_were_changed_while_the_queues_were_made_fail_the_build(builder):
    builder.answer(("lease/tpukit-quotas", 0, "17"), *NOTHING)
    builder.run(PROVISION, GUIDE_PROVISION)
    builder.answer(("lease/tpukit-quotas", 0, "19"), *NOTHING)
    with pytest.raises(StepFailed, match="Somebody changed quotas"):
        builder.run(PROVISION, GUIDE_PROVISION, only="apply-queues")


@pytest.mark.parametrize(
    ("text", "step"),
    [
        ("storage buckets update", "state-bucket"),
        ("terraform init", "init"),
        ("terraform plan", "plan"),
        ("terraform apply", "apply"),
        ("clusters list", "running"),
        ("get-credentials", "jobset"),
        ("--namespace=jobset-system", "jobset"),
        ("kubectl get --namespace=kueue-system", "kueue"),
        ("download/v0.19.2", "kueue"),
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
    own = ("state list module.network.", 0, "module.network.google_compute_network.this[0]")
    rules = ("firewall-rules list", 0, "gke-tpu-cluster-all\nk8s-fw-1")
    builder.answer(own, rules, ("terraform", 0, ""), *NOTHING)
    calls = builder.run(DESTROY, GUIDE)
    told = [call for call in calls if re.match(r"(terraform (plan|apply)|gcloud compute firewall-rules delete)", call)]
    assert told == [
        "terraform plan -destroy -lock-timeout=5m -refresh=false -out=/workspace/all.tfplan",
        "terraform plan -destroy -lock-timeout=5m -target=module.cluster -out=/workspace/cluster.tfplan",
        "terraform apply -lock-timeout=5m /workspace/cluster.tfplan",
        "gcloud compute firewall-rules delete gke-tpu-cluster-all k8s-fw-1 --project=tpu-project --quiet",
        "terraform plan -destroy -lock-timeout=5m -out=/workspace/rest.tfplan",
        "terraform apply -lock-timeout=5m /workspace/rest.tfplan",
    ]


def test_destroy_deletes_no_firewall_rule_of_a_network_that_existed_before(builder):
    builder.answer(("firewall-rules list", 0, "gke-theirs"), ("terraform", 0, ""), *NOTHING)
    assert not [call for call in builder.run(DESTROY, GUIDE) if "firewall-rules" in call]


def test_destroy_deletes_no_firewall_rule_where_none_is_left(builder):
    own = ("state list module.network.", 0, "module.network.google_compute_network.this[0]")
    builder.answer(own, ("terraform", 0, ""), *NOTHING)
    assert not [call for call in builder.run(DESTROY, GUIDE) if "firewall-rules delete" in call]


REPOSITORY = {"repository_id": "images", "location": "us-central2"}
BOARD = {"name": "projects/1/locations/us-central1/tensorboards/7", "region": "us-central1", "display_name": "metrics"}
BUCKET = {"name": "tpu-artifacts", "force_destroy": False}
DATABASE = {"name": "jobs", "delete_protection_state": "DELETE_PROTECTION_ENABLED"}


@pytest.mark.parametrize(
    ("kind", "before", "question", "why"),
    [
        ("google_storage_bucket", BUCKET, "storage ls", "gs://tpu-artifacts is not empty"),
        ("google_artifact_registry_repository", REPOSITORY, "docker images list us-central2-docker", "holds images"),
        ("google_vertex_ai_tensorboard", BOARD, "tensorboard-experiments list 7", "holds metrics of jobs"),
        ("google_firestore_database", DATABASE, "no question", "jobs is protected"),
    ],
    ids=["bucket", "images", "metrics", "database"],
)
def test_destroy_that_would_lose_data_stops_before_anything_is_deleted_until_it_is_forced(
    builder, kind, before, question, why
):
    deleted = {"type": kind, "address": kind, "change": {"actions": ["delete"], "before": before}}
    plan = ("terraform show", 0, json.dumps({"resource_changes": [deleted]}))
    builder.answer((question, 0, "something"), plan, ("terraform", 0, ""), *NOTHING)
    with pytest.raises(StepFailed, match=rf"{why}(?s:.*)_FORCE_DESTROY=true"):
        builder.run(DESTROY, GUIDE)
    assert not [call for call in builder.calls if call.startswith("terraform apply")]
    builder.run(DESTROY, {**GUIDE, "_FORCE_DESTROY": "true"})


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
        "-target=module.artifact_bucket.google_storage_bucket.this[0]",
    ]
    assert not [call for call in calls if call.startswith("gcloud storage ls")]


def test_destroy_that_leaves_something_fails(builder):
    builder.answer(("state list", 0, "module.network.google_compute_network.this"), *NOTHING)
    with pytest.raises(StepFailed, match="These are still there"):
        builder.run(DESTROY, GUIDE)


class TestRefusedBeforeAnythingIsMade:
    """Refusals before any change.

    The build queries itself and its account from a Cloud Build that answers as Google does.
    """

    @pytest.fixture
    def refused(self, builder):
        def run(step: str, why: str, file: Path = PROVISION, **given: str) -> None:
            with pytest.raises(StepFailed) as failed:
                builder.run(file, {**(GUIDE_PROVISION if file == PROVISION else GUIDE), **given})
            assert failed.value.args[0] == step
            assert re.search(why, failed.value.args[1]), failed.value.args[1]
            assert not [call for call in builder.calls if re.match(r"terraform|gcloud storage buckets", call)]

        return run

    def test_versions_of_the_guide(self, refused):
        why = r"JobSet v0\.2\.3 can no longer be installed.*\n.*_JOBSET_API_VERSION=v0\.12\.0(.*\n)*.*Kueue v0\.4\.2"
        refused("settings", why, _JOBSET_API_VERSION="v0.2.3", _KUEUE_API_VERSION="v0.4.2")

    def test_variable_that_terraform_does_not_have(self, refused):
        refused("settings", "write enable_tpu_autoscaling", _TF_VARS='{"enable_tpu_autoscalin": true}')

    @pytest.mark.parametrize(("file", "limit"), [(PROVISION, "7200s"), (DESTROY, "3600s")])
    def test_time_limit_that_is_too_short(self, refused, builder, file, limit):
        builder.build.timeout = limit
        refused("check", f"time out after {limit[:-1]} s.*\n.*leave out --timeout", file)

    def test_account_that_google_chose(self, refused, builder):
        builder.build.account = builder.build.BY_DEFAULT
        why = "runs as 1-compute@developer.*lacks compute.networks.create.*\n.*--service-account=projects/tpu-project/"
        refused("check", why)

    def test_editor_that_google_chose(self, refused, builder):
        builder.build.account = builder.build.BY_DEFAULT
        builder.build.permissions[builder.build.BY_DEFAULT] = set(build_checks.PERMISSIONS)
        refused("check", "lacks resourcemanager.projects.setIamPolicy")

    def test_build_that_may_not_look_at_itself(self, refused, builder):
        builder.build.visible = False
        refused("check", "roles/cloudbuild.builds.viewer")
