"""`tpu drill` over the pretraining example: bit-identical results after lost hosts and spoilt checkpoints."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from support import compiling
from support.box import ROOT

LOSSES = ("kill-1-0", "term", "save-half", "corrupt-newest")
CHANGES = (
    "tpu=v4-8",
    "config.training.steps=24",
    "config.training.checkpoint_every=6",
    "config.model.layers=1",
    "config.model.dtype=float32",
    f"env.PYTHONPATH={ROOT / 'tools'}",
    *(f"env.{name}={value}" for name, value in compiling.ENVIRONMENT.items()),
)
"""The rest of the model keeps its size: with shorter steps, a save on a busy machine would last until the next one."""


def test_drill_pretraining_is_exact_whatever_is_lost(tmp_path: Path):
    env = {
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
        "HOME": str(tmp_path),
        "PYTHONPATH": str(ROOT / "tools"),
        "TPUKIT_HOME": str(tmp_path / "home"),
        "TPUKIT_SETTINGS": str(tmp_path / "no-settings.yaml"),
    }
    argv = [sys.executable, "-m", "tpukit", "drill", str(ROOT / "examples" / "02-pretrain" / "job.yaml"), "--json"]
    sets = [word for change in CHANGES for word in ("--set", change)]
    only = [word for loss in LOSSES for word in ("--only", loss)]
    done = subprocess.run([*argv, *sets, *only], cwd=tmp_path, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["unbroken"]["saves"] == [6, 12, 18]
    assert {one["loss"]: one["verdict"] for one in result["losses"]} == dict.fromkeys(LOSSES, "exact"), result["losses"]
    spoilt = next(one for one in result["losses"] if one["loss"] == "corrupt-newest")
    assert spoilt["resumed_at"] == spoilt["saved"] + 1  # from the save before the overwritten one
    assert result["noise"] == 0
