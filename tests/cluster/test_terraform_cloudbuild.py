"""The two Cloud Build files, run step by step, substituted as Cloud Build does it.

Terraform, its provider and gcloud are the real ones, against the emulator of Google's APIs. kubectl builds
kustomizations; what it would tell a cluster is written down.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import stat
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tpukit.sandbox.google.server import Emulator

ROOT = Path(__file__).resolve().parents[2]
PROVISION = ROOT / "cloudbuild.provision.yaml"
DESTROY = ROOT / "cloudbuild.destroy.yaml"

GUIDE = {
    "_TF_STATE_BUCKET": "tpu-tf-state",
    "_TF_STATE_PREFIX": "gke-tpu-training-environment",
    "_REGION": "us-central2",
    "_ZONE": "us-central2-b",
    "_ARTIFACT_REPOSITORY_BUCKET_NAME": "tpu-artifacts",
    "_NETWORK_NAME": "tpu-network",
    "_SUBNET_NAME": "tpu-subnet",
    "_CLUSTER_NAME": "tpu-cluster",
    "_NAMESPACE": "tpu-training",
    "_TPU_TYPE": "v4-32",
    "_NUM_TPU_POOLS": "2",
}
"""What the guide passes to both builds; it adds the rest when provisioning."""
GUIDE_PROVISION = {
    **GUIDE,
    "_NUM_OF_CHIPS": "32",
    "_JOBSET_API_VERSION": "v0.12.0",
    "_KUEUE_API_VERSION": "v0.16.6",
}
NOTHING = (("terraform", 0, "{}"), ("python3", 0, ""), ("kubectl", 0, ""), ("gcloud", 0, ""))
"""Answers with which every tool does nothing."""
REQUIRED = ("_TF_STATE_BUCKET", "_REGION", "_ZONE", "_ARTIFACT_REPOSITORY_BUCKET_NAME")


class Refused(Exception):
    """Cloud Build does not take such a build."""


class StepFailed(Exception):
    """A step ended with another status than 0; those after it did not run."""


def substituted(config: dict, given: dict[str, str]) -> dict:
    """The build with all substitutions made, by the rules for a build that is sent by hand: a key that the build does
    not know is refused, a key without a value too; `$$` is a dollar; scripts are left alone."""
    builtin = {"PROJECT_ID": "tpu-project", "PROJECT_NUMBER": "1", "BUILD_ID": "build", "LOCATION": "global"}
    values = {**builtin, **config.get("substitutions", {}), **given}
    used = set()

    def replace(match: re.Match[str]) -> str:
        if match[0] == "$$":
            return "$"
        name = match[1] or match[2]
        if name not in values:
            raise Refused(f"{name} has no value")
        used.add(name)
        return values[name]

    def walk(node: object, key: str = "") -> object:
        if isinstance(node, dict):
            return {name: walk(value, name) for name, value in node.items()}
        if isinstance(node, list):
            return [walk(value) for value in node]
        if isinstance(node, str) and key != "script":
            return re.sub(r"\$\$|\$(?:\{(\w+)\}|(\w+))", replace, node)
        return node

    done = {name: walk(value, name) for name, value in config.items() if name != "substitutions"}
    for name in {**config.get("substitutions", {}), **given}:
        if not re.fullmatch(r"_[A-Z0-9_]+", name):
            raise Refused(f"{name} is no name of a substitution")
        if name not in used:
            raise Refused(f"{name} is not used by the build")
    return done


class Builder:
    """Runs the steps of a build in a workspace of its own, with only our programs before the real ones on PATH."""

    PROGRAM = """#!{python}
import json, os, sys
name, words = os.path.basename(sys.argv[0]), sys.argv[1:]
line = " ".join([name, *words])
with open({calls!r}, "a") as calls:
    calls.write(line + "\\n")
for text, status, said in json.load(open({answers!r})):
    if text in line:
        print(said, end="\\n" if said else "")
        sys.exit(status)
if name in ("terraform", "gcloud"):
    os.execv({real!r}[name], [name, *words])
elif name == "python3" and "pip" not in words:
    os.execve({python!r}, [{python!r}, *words], {{**os.environ, "PYTHONPATH": {tools!r}}})
elif name == "kubectl" and words[-1].startswith("--kustomize="):
    os.execv({real!r}[name], [name, "kustomize", words[-1].split("=")[1]])
elif name == "kubectl" and words[0] == "get":
    node = {{"status": {{"allocatable": {{"cpu": "3920m", "memory": "12698Mi"}}}}}}
    print(json.dumps({{"items": [node] * 3}}))
"""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self.workspace, self.programs, self.calls_file = folder / "workspace", folder / "bin", folder / "calls"
        self.answers_file = folder / "answers.json"
        self.said: dict[str, str] = {}
        self.workspace.mkdir(parents=True)
        shutil.copytree(ROOT / "terraform", self.workspace / "terraform", ignore=shutil.ignore_patterns(".terraform*"))
        self.programs.mkdir()
        self.answer()
        real = {name: shutil.which(name) for name in ("terraform", "kubectl", "gcloud")}
        if missing := [name for name, path in real.items() if path is None]:
            pytest.fail(f"{' and '.join(missing)} must be on PATH: the steps of the builds run them")
        text = self.PROGRAM.format(
            python=sys.executable,
            calls=str(self.calls_file),
            answers=str(self.answers_file),
            tools=str(ROOT / "tools"),
            real=real,
        )
        for name in ("gcloud", "terraform", "kubectl", "python3", "sleep"):
            program = self.programs / name
            program.write_text(text)
            program.chmod(program.stat().st_mode | stat.S_IXUSR)
        self.environment = {
            **environment,
            "PATH": f"{self.programs}{os.pathsep}{os.environ['PATH']}",
            "HOME": str(folder),
            "KUBECONFIG": str(folder / "kubeconfig"),
            "CLOUDSDK_CONFIG": str(folder / "gcloud"),
            "CLOUDSDK_CORE_DISABLE_PROMPTS": "1",
        }

    def answer(self, *answers: tuple[str, int, str]) -> None:
        """Whatever is run with this text in its command line ends with this status, having said this."""
        self.answers_file.write_text(json.dumps(answers))

    @property
    def calls(self) -> list[str]:
        return self.calls_file.read_text().replace(str(self.workspace), "/workspace").splitlines()

    def run(self, file: Path, given: dict[str, str]) -> list[str]:
        """Runs all steps; gives back the command lines that they ran."""
        build = substituted(yaml.safe_load(file.read_text()), given)
        self.calls_file.write_text("")
        variables = dict(one.split("=", 1) for one in build["options"]["env"])
        for step in build["steps"]:
            script = self.workspace.parent / f"{step['id']}.script"
            script.write_text(step["script"].replace("/workspace", str(self.workspace)))
            script.chmod(0o700)
            done = subprocess.run(
                [script],
                cwd=self.workspace / step.get("dir", ""),
                env={**self.environment, **variables},
                capture_output=True,
                text=True,
            )
            self.said[step["id"]] = done.stdout + done.stderr
            if done.returncode:
                raise StepFailed(step["id"], self.said[step["id"]])
        return self.calls


@pytest.fixture
def google(tmp_path: Path) -> Iterator[Emulator]:
    with Emulator(tmp_path / "google") as emulator:
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
    assert (defaults["_JOBSET_API_VERSION"], defaults["_KUEUE_API_VERSION"]) == ("v0.12.0", "v0.16.6")


def test_dollar_is_written_twice_and_scripts_are_left_alone():
    config = {"substitutions": {"_A": "1"}, "steps": [{"args": ["$$HOME ${_A} $_A"], "script": "echo $_A $HOME"}]}
    assert substituted(config, {})["steps"] == [{"args": ["$HOME 1 1"], "script": "echo $_A $HOME"}]


def test_substitution_with_a_wrong_name_is_refused():
    with pytest.raises(Refused, match="lower is no name"):
        substituted({"steps": ["$lower"]}, {"lower": "x"})


def test_environment_comes_stays_and_goes(builder, google):
    """The whole life of an environment: made, made again without a change, held back by its data, gone."""
    asked = {**GUIDE_PROVISION, "_NAMESPACE": "research"}
    calls = builder.run(PROVISION, asked)
    told = [call for call in calls if re.match(r"(terraform|kubectl|gcloud container)", call)]
    release = "https://github.com/kubernetes-sigs/{0}/releases/download/{1}/manifests.yaml"
    applied = "kubectl apply --server-side --force-conflicts --filename=" + release
    ready = (
        "kubectl wait --namespace={0}-system --for=condition=Available --timeout=10m deployment/{0}-controller-manager"
    )
    assert told == [
        "terraform init -backend-config=bucket=tpu-tf-state -backend-config=prefix=gke-tpu-training-environment",
        "terraform plan -lock-timeout=5m -out=/workspace/environment.tfplan",
        "terraform apply -lock-timeout=5m /workspace/environment.tfplan",
        "terraform output -json",
        "gcloud container clusters get-credentials tpu-cluster --project=tpu-project "
        "--region=us-central2 --dns-endpoint",
        applied.format("jobset", "v0.12.0"),
        ready.format("jobset"),
        applied.format("kueue", "v0.16.6"),
        ready.format("kueue"),
        "kubectl get nodes --selector=tpukit.dev/pool=cpu --output=json",
        "kubectl apply --server-side --force-conflicts --kustomize=/workspace/queues",
    ]
    made = there(google)
    assert {name.rpartition("/")[2] for name in google.cloud.state.all("pool")} == {
        "cpu-pool",
        "tpu-node-pool-0",
        "tpu-node-pool-1",
    }
    assert google.cloud.state.get("bucket", "tpu-tf-state")["versioning"] == {"enabled": True}
    assert_queues_fit(builder.workspace / "queues")

    builder.run(PROVISION, asked)
    assert "Your infrastructure matches the configuration." in builder.said["plan"]
    assert there(google) == made

    upload(google, "tpu-artifacts", "checkpoint")
    with pytest.raises(StepFailed, match="gs://tpu-artifacts is not empty") as held:
        builder.run(DESTROY, GUIDE)
    assert held.value.args[0] == "bucket-is-empty"
    assert made < there(google)

    protect(builder)
    gcloud(builder, "networks", "create", "other", "--subnet-mode=custom")
    for network in ("tpu-network", "other"):  # GKE leaves such rules behind; those of other networks are not ours
        gcloud(builder, "firewall-rules", "create", f"gke-{network}-all", f"--network={network}", "--allow=tcp:1")
    builder.run(DESTROY, {**GUIDE, "_FORCE_DESTROY": "true"})
    assert there(google) == {
        "network projects/tpu-project/global/networks/other",
        "firewall projects/tpu-project/global/firewalls/gke-other-all",
    }


def there(google: Emulator) -> set[str]:
    """What the cloud holds besides the state of Terraform."""
    return {one for one in google.cloud.inventory() if "tpu-tf-state" not in one}


def assert_queues_fit(folder: Path) -> None:
    (queue,) = yaml.safe_load_all((folder / "cluster-queue.yaml").read_text())
    flavors = queue["spec"]["resourceGroups"][0]["flavors"]
    quota = {flavor["name"]: {one["name"]: one["nominalQuota"] for one in flavor["resources"]} for flavor in flavors}
    assert quota["v4-2x2x4"]["google.com/tpu"] == 32
    # Half of three nodes with 3.92 CPUs and 12698 MiB each.
    assert quota["cpu"] == {"google.com/tpu": 0, "cpu": 5, "memory": "19G"}
    account = yaml.safe_load((folder / "account.yaml").read_text())
    assert account["metadata"] == {
        "name": "cloud-tpu-sa",
        "namespace": "research",
        "annotations": {"iam.gke.io/gcp-service-account": "cloud-tpu-sa@tpu-project.iam.gserviceaccount.com"},
    }


def upload(google: Emulator, bucket: str, name: str) -> None:
    address = f"{google.address}/upload/storage/v1/b/{bucket}/o?uploadType=media&name={name}"
    request = urllib.request.Request(address, b"weights", {"Authorization": f"Bearer {google.token}"})
    with urllib.request.urlopen(request) as answer:
        assert answer.status == 200


def protect(builder: Builder) -> None:
    """As somebody does who does not want to lose the cluster by mistake."""
    build = substituted(yaml.safe_load(DESTROY.read_text()), GUIDE)
    environment = {**builder.environment, **dict(one.split("=", 1) for one in build["options"]["env"])}
    cluster = "-target=module.cluster.google_container_cluster.this"
    command = [builder.programs / "terraform", "apply", "-auto-approve", cluster, "-var=deletion_protection=true"]
    subprocess.run(command, cwd=builder.workspace / "terraform", env=environment, capture_output=True, check=True)


def gcloud(builder: Builder, *words: str) -> None:
    command = [builder.programs / "gcloud", "compute", *words, "--project=tpu-project"]
    subprocess.run(command, env=builder.environment, capture_output=True, check=True)


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


@pytest.mark.parametrize(
    ("text", "step"),
    [
        ("buckets update", "state-bucket"),
        ("terraform init", "init"),
        ("terraform plan", "plan"),
        ("terraform apply", "apply"),
        ("get-credentials", "jobset"),
        ("--namespace=jobset-system", "jobset"),
        ("download/v0.16.6", "kueue"),
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
