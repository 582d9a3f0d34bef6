"""Checkpoints damaged outside the program: which one a resume takes, and the case of none."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from support.waiting import PATIENCE

TOOLS = Path(__file__).parents[3] / "tools"
PROGRAM = """
import dataclasses, json, pathlib, shutil, sys
import jax, jax.numpy as jnp
from tpukit import host as tpu

class Data:
    at = 0
    def get_state(self): return {"at": self.at}
    def set_state(self, state): self.at = state["at"]

def cut(folder):
    for file in (folder / "state").rglob("*"):
        if file.is_file():
            file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])

def replace_arrays(work):
    shutil.rmtree(work / "2" / "state")
    shutil.copytree(work / "1" / "state", work / "2" / "state")

SPOIL = {
    "nothing": lambda work: None,
    "newest cut": lambda work: cut(work / "2"),
    "newest has other arrays": replace_arrays,
    "without checksums": lambda work: [shutil.rmtree(work / step / "checksum") for step in "12"],
    "without checksums, newest has other arrays": lambda work: (SPOIL["without checksums"](work), replace_arrays(work)),
    "all cut": lambda work: (cut(work / "1"), cut(work / "2")),
}
me, told = tpu.start(), {}
root = pathlib.Path(me.world.workdir)
for number, (name, spoil) in enumerate(SPOIL.items()):
    me.world = dataclasses.replace(me.world, workdir=str(root / str(number)))
    saving, data = tpu.Checkpoints(me, every=1), Data()
    for step in (1, 2):
        data.at = 10 * step
        saving.save(step, {"weights": jnp.full((64,), float(step))}, data)
    told["saved while the second save is written"] = saving.saved
    saving.close()
    spoil(root / str(number) / "checkpoints")
    resumed, data = tpu.Checkpoints(me, every=1), Data()
    abstract = jax.eval_shape(lambda: {"weights": jnp.zeros((64,))})
    try:
        state, step = resumed.restore_latest(abstract, data)
        told[name] = [step, float(state["weights"][0]), data.at]
    except Exception as error:
        told[name] = type(error).__name__
    if name == "newest cut":  # its step comes again, and is saved over it
        resumed.save(2, {"weights": jnp.full((64,), 2.0)}, data)
        resumed.close()
        again = tpu.Checkpoints(me, every=1)
        told["saved again"] = again.restore_latest(abstract, data)[1]
print(json.dumps(told))
"""


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Run one process for all cases, because importing JAX takes longer than the cases."""
    workdir = tmp_path_factory.mktemp("work")
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(TOOLS), "TPUKIT_WORKDIR": str(workdir)}
    env["TPUKIT_PROGRESS"] = str(workdir / "progress")
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=env, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize(
    ("spoilt", "resumes"),
    [
        ("nothing", [2, 2.0, 20]),
        ("newest cut", [1, 1.0, 10]),
        ("newest has other arrays", [1, 1.0, 10]),
        ("without checksums", [2, 2.0, 20]),
        ("without checksums, newest has other arrays", [2, 1.0, 20]),  # undetectable without checksums
        ("saved again", 2),
    ],
)
def test_restore_takes_the_newest_that_can_be_read_and_is_what_was_saved(told, spoilt, resumes):
    assert told[spoilt] == resumes


def test_restore_raises_where_nothing_that_was_saved_can_be_read(told):
    assert isinstance(told["all cut"], str)


def test_saved_is_the_save_before_while_the_next_one_is_written(told):
    assert told["saved while the second save is written"] in (1, 2)
