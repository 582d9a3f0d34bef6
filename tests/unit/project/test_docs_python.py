"""Every Python block of every page runs as printed, with the definitions that the page leaves to its reader."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from support.page_commands import PAGES, ROOT, tokens
from support.waiting import PATIENCE

TRAINING = """
import json, jax.numpy as jnp
from pathlib import Path

class Batches:
    at = 0
    def __next__(self):
        self.at += 1
        return self.at
    def get_state(self): return {"at": self.at}
    def set_state(self, state): self.at = state["at"]

batches, steps = Batches(), 250
init = lambda: {"w": jnp.zeros(4)}
abstract_state = init()
train_step = lambda state, batch: ({"w": state["w"] + batch}, state["w"].sum())
"""
SHARD = """
import sys, numpy as np
sys.path.insert(0, "examples/04-activations")
import tensors
folder = Path("/tmp/tiny/activations/stream_000")
folder.mkdir(parents=True)
arrays = {"offsets": np.arange(0, 12, 2), "residual.2": np.zeros((12, 8), np.float32)}
tensors.written(folder / "shard_00000.safetensors", arrays, {"ids": "a b"})
"""
READER = {
    "README.md": TRAINING,
    "examples/04-activations/README.md": f"from pathlib import Path\n{SHARD}",
    "kueue/README.md": "",
    "tools/tpukit/jobs/README.md": """
import os, pathlib
os.makedirs("/tmp/tiny")
os.chdir("/tmp/tiny")
pathlib.Path("job.yaml").write_text('name: mine\\ntpu: v4-8\\nslices: 2\\ncommand: [echo]\\n')
""",
    "tools/tpukit/drill/README.md": """
from tpukit import host as tpu
host = tpu.start()
step, loss, tokens, params = 1, 0.5, [1, 2], {"w": [1.0]}
""",
}
"""Definitions that a page's readers have before they type the block."""


def blocks(page: Path) -> list[str]:
    return [token.content for token in tokens(page) if token.type == "fence" and token.info.strip() == "python"]


def test_pages_with_python_are_all_run():
    assert {str(page.relative_to(ROOT)) for page in PAGES if blocks(page)} == set(READER)


@pytest.mark.parametrize("page", READER)
def test_page_python_runs_as_printed(page, tmp_path):
    program = "\n".join([READER[page], *blocks(ROOT / page)]).replace("/tmp/tiny", str(tmp_path / "tiny"))
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT / "tools"), "JAX_PLATFORMS": "cpu"}
    env |= {
        "TPUKIT_WORKDIR": str(tmp_path / "work"),
        "TPUKIT_PROGRESS": str(tmp_path / "progress"),
        "HOME": str(tmp_path),
    }
    done = subprocess.run(
        [sys.executable, "-c", program], env=env, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE
    )
    assert done.returncode == 0, done.stderr
