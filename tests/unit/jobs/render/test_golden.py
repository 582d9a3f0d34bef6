"""Whole manifests, reviewed once and kept: UPDATE_GOLDEN=1 rewrites them after an intended change."""

import os
from dataclasses import replace
from pathlib import Path

import kubernetes_validate
import pytest

from tpukit import catalogue
from tpukit.core import resources
from tpukit.jobs import plan, render
from tpukit.jobs.plan import Snapshot
from tpukit.jobs.render import template
from tpukit.jobs.spec import JobSpec, Settings

GOLDEN = Path(__file__).parents[3] / "golden"
IMAGE = "us-central2-docker.pkg.dev/my-project-1/images/train@sha256:" + "0123456789abcdef" * 4
SETTINGS = {
    "artifacts": "gs://my-artifacts",
    "tensorboard": "projects/my-project-1/locations/us-central1/tensorboards/123",
    "tools_image": IMAGE.replace("/train@", "/tpukit@"),
}
NASTY = (
    "'\"` $(id) ${HOME} $$ {{ 7*7 }} {% raw %} {# #} \\n \\ a: b # c - d [e] {f: g} !!python & * | > ~ yes 0x10 1e3"
    "\n---\nkind: Evil\t\x7f\x85\u2028\ufeff\U0001f600 \u00fc"
)

JOBS = {
    "v4-32-two-slices-tensorboard": {
        "name": "pretrain",
        "tpu": "v4-32",
        "slices": 2,
        "command": ["python", "train.py", "--steps=500"],
        "team": "research",
        "priority": "high",
        "config": {"training": {"learning_rate": 0.01}},
        "env": {"LIBTPU_INIT_ARGS": "--xla_tpu_enable_async_collective_fusion=true"},
        "workdir": "gs://my-runs/pretrain",
        "tensorboard": True,
        "max": {"runtime": "12h", "restarts": 20},
        "tags": ["sweep-3"],
    },
    "v5e-8-one-host": {"name": "serve", "tpu": "v5litepod-8", "command": ["python", "train.py"]},
    "v5e-8-two-hosts": {
        "name": "serve",
        "tpu": {"type": "v5e-8", "machine_type": "ct5lp-hightpu-4t"},
        "command": ["python", "train.py"],
    },
    "v6e-256-spot": {
        "name": "sweep",
        "tpu": "v6e-256",
        "command": ["python", "train.py"],
        "capacity": "spot",
        "max": {"restarts": 3, "grace": "25s"},
    },
    "tpu7x-128-four-slices-reservation": {
        "name": "ironwood",
        "tpu": "tpu7x-128",
        "slices": 4,
        "command": ["python", "train.py"],
        "capacity": {"reservation": "projects/owner-1/reservations/training"},
        "rule": "resume",
    },
    "v5p-8-one-host": {"name": "small", "tpu": "v5p-8", "command": ["python", "train.py"], "capacity": "flex-start"},
    "buckets-as-folders": {
        "name": "folders",
        "tpu": "v4-8",
        "command": ["python", "train.py"],
        "workdir": "/runs/first",
        "tensorboard": True,
        "mounts": [
            {"bucket": "my-data", "path": "/data"},
            {"bucket": "my-runs", "path": "/runs", "read_only": False},
        ],
    },
    "v5e-8-code": {
        "name": "shipped",
        "tpu": "v5e-8",
        "command": ["python", "train.py"],
        "code": ".",
    },
    "nasty-values": {
        "name": "nasty",
        "tpu": "v4-8",
        "command": [NASTY, ""],
        "config": {"text": NASTY, "list": [1, 2.5, True, None]},
        "env": {"N": NASTY, "Y": "no"},
        "workdir": "gs://my-runs/{{ 7 }}/a: 'b'",
    },
}


def planned(name):
    made = plan.make(JobSpec.from_json({"image": IMAGE, **JOBS[name]}), Settings.from_json(SETTINGS), "gke")
    snapshot = Snapshot("0123456789abcdef" * 4, "c" * 40, dirty=True) if made.spec.code else None
    return replace(made, id=f"{made.spec.name}-abcde", snapshot=snapshot)


def same(file, text):
    if os.environ.get("UPDATE_GOLDEN"):
        file.write_text(text, encoding="utf-8")
    assert text == file.read_text(encoding="utf-8"), f"{file.name} changed: UPDATE_GOLDEN=1 writes it anew"


@pytest.mark.parametrize("name", JOBS)
def test_text_is_the_golden_file(name):
    same(GOLDEN / f"{name}.yaml", render.text(planned(name)))


def test_golden_folder_holds_no_file_without_a_job():
    assert {file.stem for file in GOLDEN.glob("*.yaml")} == set(JOBS)


@pytest.mark.parametrize("name", JOBS)
def test_golden_jobs_are_valid_for_kubernetes(name):
    (document,) = template.parse((GOLDEN / f"{name}.yaml").read_text(encoding="utf-8"))
    for job in document["spec"]["replicatedJobs"]:
        meta = {**job["template"]["metadata"], "name": job["name"]}
        whole = {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": job["template"]["spec"]}
        for version in ("1.33", kubernetes_validate.latest_version()):
            kubernetes_validate.validate(whole, version, strict=True)


def test_kueue_files_are_what_the_templates_make_for_the_guides_environment():
    """The environment: two v4-32 slices, a CPU pool of three n1-standard-4 (half of it for jobs), one namespace."""
    files = render.queue_files({catalogue.find("v4-32"): 2}, ("tpu-training",), cpus=6, memory_gb=24)
    files["account.yaml"] = render.account_file("tpu-training", "cloud-tpu-sa")
    for name, text in files.items():
        same(resources.folder("kueue") / name, text)
