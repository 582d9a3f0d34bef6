"""The guide's commands for gcloud, Terraform and kubectl, as printed, in a sandbox.

They create the environment, install JobSet, Kueue and queues, then run jobs of one slice and of two. The tests run in
this order.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.box import ROOT, Box, sandbox, until
from support.quick_provider import quicken
from tpukit.core.errors import Transient

PROJECT, NAMESPACE, OWN_NAMESPACE = "my-project-1", "tpu-training", "mine"


def blocks(page: str, heading: str = "") -> list[str]:
    """Return the code blocks of a page from a heading on, or from its beginning."""
    text = (ROOT / page / "README.md").read_text()
    _, _, text = text.partition(f"\n## {heading}\n") if heading else ("", "", text)
    return re.findall(r"^```(?:console)?\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


NAMES, *CREATE = blocks("terraform", "Create")[:3]


class Person:
    """A user with a copy of the files, and a shell in which gcloud and Terraform use the sandbox."""

    def __init__(self, box: Box, folder: Path, environment: dict[str, str]) -> None:
        self.box, self.folder = box, folder
        for name in ("terraform", "kueue", "examples"):
            shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns(".terraform*", "*.tfstate*"))
        quicken(folder / "terraform")
        program = "import json, os; print(json.dumps(dict(os.environ)))"
        env = {**environment, "TPUKIT_HOME": str(box.home), "PYTHONPATH": str(ROOT / "tools")}
        shell = [sys.executable, "-m", "tpukit", "sandbox", "shell", "--name", box.name]
        printed = subprocess.run([*shell, "--", sys.executable, "-c", program], env=env, capture_output=True, text=True)
        assert printed.returncode == 0, printed.stderr
        self.environment = {**json.loads(printed.stdout), "CLOUDSDK_CORE_DISABLE_PROMPTS": "1", "TF_INPUT": "1"}

    def types(self, lines: str, answer: str = "") -> str:
        done = self.tries(lines, answer)
        assert done.returncode == 0, f"{lines}: {done.stderr}"
        return done.stdout

    def tries(self, lines: str, answer: str = "") -> subprocess.CompletedProcess[str]:
        """Run lines in a shell in which the variables of the first block are set."""
        script = "\n".join([line for line in NAMES.splitlines() if line.startswith("export ")] + [lines])
        return subprocess.run(
            ["bash", "-euo", "pipefail", "-c", script],
            cwd=self.folder,
            env=self.environment,
            input=answer,
            capture_output=True,
            text=True,
        )

    def types_until_known(self, line: str) -> None:
        """Retry until Google knows a new account, which takes some seconds."""

        def known() -> bool:
            done = self.tries(line)
            assert done.returncode == 0 or "does not exist" in done.stderr, done.stderr
            return done.returncode == 0

        until(known, line)

    def edits(self, path: str, what: str, into: str) -> None:
        file = self.folder / path
        text = re.sub(what, into, file.read_text(), flags=re.MULTILINE | re.DOTALL)
        assert text != file.read_text()
        file.write_text(text)

    def condition(self, name: str, namespace: str) -> str:
        """Return the condition that a JobSet ended with, or an empty string while it runs."""
        done = self.tries(f"kubectl get jobset {name} --namespace={namespace} --output=json")
        if done.returncode:  # a busy API server answers late
            raise Transient(done.stderr)
        jobset = json.loads(done.stdout)
        true = [one["type"] for one in jobset.get("status", {}).get("conditions", []) if one["status"] == "True"]
        return next((kind for kind in true if kind in ("Completed", "Failed")), "")


@pytest.fixture(scope="module")
def person(tmp_path_factory: pytest.TempPathFactory, terraform_environment: dict[str, str]) -> Iterator[Person]:
    with sandbox(tmp_path_factory.mktemp("guide"), "guide", f"--project={PROJECT}", addons=False) as box:
        environment = {**terraform_environment, "PATH": os.environ["PATH"]}
        yield Person(box, tmp_path_factory.mktemp("person"), environment)


def test_environment_is_made_by_the_lines_of_terraforms_page(person):
    person.types(NAMES)
    own = person.box.place.kubeconfig.read_bytes()
    for lines in CREATE:
        person.types(lines, answer="yes\n")
    nodes = json.loads(person.types("kubectl get nodes --selector=cloud.google.com/gke-tpu-topology=2x2x4 -o json"))
    assert len(nodes["items"]) == 8, "of two slices, in a cluster that has a DNS name alone"
    assert person.types("kubectl config current-context").startswith("gke_")
    assert person.box.place.kubeconfig.read_bytes() == own, "the sandbox lives by it"


def test_jobset_kueue_and_queues_come_by_the_lines_of_their_pages(person):
    person.types(blocks("jobset")[0])
    install, annotate, *_ = blocks("kueue")
    person.types(install)
    person.types(annotate)
    account = f"kubectl get serviceaccount cloud-tpu-sa --namespace={NAMESPACE} --output=json"
    assert json.loads(person.types(account))["metadata"]["annotations"]["iam.gke.io/gcp-service-account"] == (
        f"cloud-tpu-sa@{PROJECT}.iam.gserviceaccount.com"
    )
    assert "unchanged" in person.types("kubectl apply -k kueue")


def test_apply_of_kueue_makes_queue_and_account_in_a_namespace_that_was_set(person):
    person.edits(
        "kueue/local_queue.yaml", r'(kind: LocalQueue.*?)namespace: "tpu-training"', rf"\1namespace: {OWN_NAMESPACE}"
    )
    person.types("kubectl apply -k kueue")
    of_it = f"{OWN_NAMESPACE} --namespace={OWN_NAMESPACE}"
    assert json.loads(person.types(f"kubectl get localqueue {of_it} --output=json"))["spec"]["clusterQueue"] == "tpu"
    person.types(f"kubectl get serviceaccount cloud-tpu-sa --namespace={OWN_NAMESPACE}")


@pytest.mark.parametrize(
    ("name", "namespace", "hosts"), [("single-slice", OWN_NAMESPACE, 4), ("multislice", NAMESPACE, 8)]
)
def test_job_sent_with_kubectl_runs_to_its_end(person, name, namespace, hosts):
    if namespace != NAMESPACE:
        person.edits(f"examples/kubectl/{name}/kustomization.yaml", "^namespace: .*?$", f"namespace: {namespace}")
    typed = blocks("examples/kubectl")[0].splitlines()
    begin = f"kubectl apply -k examples/kubectl/{name}"
    assert any(line.startswith(begin) for line in typed)
    person.types(begin)
    assert until(lambda: person.condition(f"hello-{name}", namespace), f"hello-{name} to end") == "Completed"
    (logs,) = (line for line in typed if line.startswith("kubectl logs"))
    said = person.types(logs.replace(NAMESPACE, namespace).replace("multislice", name))
    assert len(set(re.findall(rf"host (\d) of {hosts}, slice \d of {hosts // 4}: {hosts * 4} chips", said))) == hosts
    person.types(f"kubectl delete -k examples/kubectl/{name}")


def test_account_of_serve_is_made_by_the_lines_of_its_page(person):
    _image, *lines = re.split(r"(?<!\\)\n", blocks("deploy/serve")[0].strip())  # a test of the README builds the image
    for line in lines:
        person.types_until_known(line.replace("my-project", PROJECT))
    account = f"tpukit-serve@{PROJECT}.iam.gserviceaccount.com"
    policy = json.loads(person.types("gcloud projects get-iam-policy $PROJECT_ID --format=json"))
    given = {one["role"] for one in policy["bindings"] if f"serviceAccount:{account}" in one["members"]}
    assert given == {"roles/datastore.user", "roles/logging.viewer"}
    (binding,) = json.loads(person.types(f"gcloud iam service-accounts get-iam-policy {account} --format=json"))[
        "bindings"
    ]
    settings = dict(line.split("=", 1) for line in (ROOT / "deploy/serve/config.env").read_text().split())
    assert settings["GOOGLE_SERVICE_ACCOUNT"].replace("my-project", PROJECT) == account
    assert binding["members"] == [f"serviceAccount:{PROJECT}.svc.id.goog[tpukit-serve/serve]"]
