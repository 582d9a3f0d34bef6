"""The example JobSets for plain kubectl match the templates: UPDATE_GOLDEN=1 rewrites them."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from tpukit.jobs import plan, render
from tpukit.jobs.spec import JobSpec, Settings

FOLDER = Path(__file__).parents[3] / "examples" / "kubectl"
PROGRAM = """\
import jax
from tpukit import host

me = host.start()
world, chips = me.world, jax.device_count()
print(f"host {world.index} of {world.hosts}, slice {world.slice_index} of {world.slices}: {chips} chips", flush=True)
me.close()
"""
SLICES = {"single-slice": 1, "multislice": 2}
HEAD = """\
# kubectl apply -k examples/kubectl/{name}
#
# Made from jobset/jobset.yaml.j2. kustomization.yaml beside it has what people change; README.md says what else is.
"""
_OURS = r"""\n *"?(?:app\.kubernetes\.io/managed-by|tpukit\.dev/job)"?: [^\n]+(?=\n)"""


def rendered(name: str) -> str:
    """Render what `tpu run` would send, without the marks of ownership, because the user who applies it owns it."""
    job = {
        "name": "hello",
        "tpu": "v4-32",
        "slices": SLICES[name],
        "command": ["python", "-c", PROGRAM],
        "image": "train:1",
        "workdir": "gs://my-artifacts/hello",
    }
    made = plan.make(JobSpec.from_json(job), Settings(), "gke")
    text = render.text(replace(made, id=f"hello-{name}"))
    text = re.sub(rf"\n *labels:(?:{_OURS}){{2}}(?!\n *\"kueue)", "", text)
    text = re.sub(r"\n *metadata:(?=\n *spec:)", "", re.sub(_OURS, "", text))
    return HEAD.format(name=name) + text


@pytest.mark.parametrize("name", SLICES)
def test_jobset_for_kubectl_is_what_the_templates_make(name):
    file, text = FOLDER / name / "jobset.yaml", rendered(name)
    if os.environ.get("UPDATE_GOLDEN"):
        file.write_text(text)
    assert file.read_text() == text, f"{file} changed: UPDATE_GOLDEN=1 writes it anew"


@pytest.mark.parametrize("name", SLICES)
def test_jobset_for_kubectl_is_not_taken_for_one_that_tpu_sent(name):
    (jobset,) = [one for one in yaml.safe_load_all((FOLDER / name / "jobset.yaml").read_text()) if one]
    assert "managed-by" not in yaml.safe_dump(jobset)
    assert jobset["metadata"]["labels"] == {"kueue.x-k8s.io/queue-name": "tpu-training"}
    (job,) = jobset["spec"]["replicatedJobs"]
    assert (job["replicas"], job["template"]["spec"]["parallelism"]) == (SLICES[name], 4)


@pytest.mark.parametrize("name", SLICES)
def test_kustomization_changes_the_fields_that_its_comments_name(name):
    jobset = yaml.safe_load((FOLDER / name / "jobset.yaml").read_text())
    patched = {}
    for patch in yaml.safe_load((FOLDER / name / "kustomization.yaml").read_text())["patches"]:
        for change in yaml.safe_load(patch["patch"]):
            parent: Any = jobset
            *way, last = change["path"].strip("/").split("/")
            for step in way:
                parent = parent[int(step) if isinstance(parent, list) else step]
            patched[parent.get("name", last) if last == "value" else last] = (parent[last], change["value"])
    assert patched == {
        "replicas": (SLICES[name], SLICES[name]),
        "parallelism": (4, 4),
        "completions": (4, 4),
        "TPUKIT_WORKDIR": ("gs://my-artifacts/hello", "gs://my-artifacts/hello"),
    }
