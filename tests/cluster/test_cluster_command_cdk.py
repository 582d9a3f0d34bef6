"""The construct for cdktn and cdktf: its calls of the root module, and its plan. Needs Node and a package index."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tpukit.cluster.calls import calls
from tpukit.cluster.spec import ClusterSpec
from tpukit.core import resources

ROOT = Path(__file__).resolve().parents[2]
SPEC = {
    "project_id": "my-project-1",
    "region": "us-central2",
    "zone": "us-central2-b",
    "artifact_repository_bucket_name": "my-artifacts",
    "network_name": "tpu-network",
    "subnet_name": "tpu-subnet",
    "cluster_name": "tpu-cluster",
}
SPECS = {
    "guide": SPEC,
    "everything": SPEC
    | {
        "region": "us-central1",
        "zone": "us-central1-c",
        "tpu_type": "tpu7x-16",
        "num_tpu_pools": 2,
        "capacity": "spot",
        "firestore_database": "tpu-jobs",
        "release_channel": "UNSPECIFIED",
        "cluster_description": "a ${b} %{c}",
        "labels": {"team": "research"},
        "authorized_networks": {"office": "203.0.113.0/24"},
        "gke_sa_roles": ["roles/logging.logWriter", "roles/storage.objectViewer"],
    },
}
PROGRAM = """\
import json, sys
from {library} import App
from tpukit.cluster import cdk
from tpukit.cluster.spec import ClusterSpec

app = App(outdir=sys.argv[1])
cdk.TrainingStack(app, "training", ClusterSpec.from_json(json.loads(sys.argv[2])))
app.synth()
"""


@pytest.fixture(scope="session", params=["cdktn", "cdktf"])
def library(request) -> tuple[str, Path]:
    """Return the library and a Python that has it. They are installed once and cached."""
    if shutil.which("node") is None:
        pytest.fail("node is not on PATH: install Node 22 or newer, which runs cdktn and cdktf")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = project["optional-dependencies"]["cdk"] if request.param == "cdktn" else ["cdktf>=0.21"]
    needed = sorted([*wanted, *(one for one in project["dependencies"] if one.startswith("pyyaml"))])
    name = hashlib.sha256(json.dumps([needed, sys.version]).encode()).hexdigest()[:16]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tpukit" / "cdk" / name
    if not (cache / "ready").exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", cache], check=True)
        pip = [cache / "bin" / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *needed]
        done = subprocess.run(pip, capture_output=True, text=True)
        if done.returncode:
            pytest.fail(f"{request.param} cannot be installed: {done.stderr.strip()}")
        (cache / "ready").touch()
    return request.param, cache / "bin" / "python"


def synthesised(library: tuple[str, Path], spec: dict, folder: Path) -> dict:
    name, python = library
    env = os.environ | {"PYTHONPATH": str(ROOT / "tools"), "JSII_SILENCE_WARNING_UNTESTED_NODE_VERSION": "1"}
    argv = [python, "-c", PROGRAM.format(library=name), folder, json.dumps(spec)]
    done = subprocess.run(argv, env=env, cwd=folder.parent, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads((folder / "stacks" / "training" / "cdk.tf.json").read_text())


@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
def test_stack_has_the_calls_of_the_root_module_and_the_state_in_its_bucket(library, spec, tmp_path):
    made = synthesised(library, spec, tmp_path / "out")
    found = {name: {key: word for key, word in call.items() if key != "//"} for name, call in made["module"].items()}
    expected = calls(ClusterSpec.from_json(spec), str(resources.folder("terraform") / "modules"))
    assert found == json.loads(json.dumps(expected))
    place = {"bucket": "my-project-1-tf-state", "prefix": "gke-tpu-training-environment/tpu-cluster"}
    assert made["terraform"]["backend"] == {"gcs": place}
    assert made["provider"]["google"] == [{"project": "my-project-1", "region": spec["region"]}]


@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
def test_calls_plan_what_the_root_module_plans(spec, tmp_path, terraform_environment):
    stack, root = tmp_path / "stack", tmp_path / "root"
    leave = shutil.ignore_patterns("backend.tf", "tests", ".terraform*")
    shutil.copytree(ROOT / "terraform", root, ignore=leave)
    (root / "spec.auto.tfvars.json").write_text(json.dumps(spec))
    stack.mkdir()
    provider = {"google": [{"project": spec["project_id"], "region": spec["region"]}]}
    made = calls(ClusterSpec.from_json(spec), str(root / "modules"))
    (stack / "cdk.tf.json").write_text(json.dumps({"provider": provider, "module": made}))
    ours, theirs = (planned(folder, terraform_environment) for folder in (stack, root))
    assert len(theirs) > 15
    assert ours == theirs


def planned(folder: Path, env: dict[str, str]) -> dict[str, object]:
    """Return every resource that a plan creates, with all its values."""
    for argv in (["init", "-input=false"], ["plan", "-input=false", "-out=it"]):
        done = subprocess.run(["terraform", *argv], cwd=folder, env=env, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
    show = subprocess.run(["terraform", "show", "-json", "it"], cwd=folder, env=env, capture_output=True, text=True)
    changes = json.loads(show.stdout)["resource_changes"]
    return {one["address"]: (one["change"]["after"], one["change"]["after_unknown"]) for one in changes}
