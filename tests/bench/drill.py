"""Overhead of `tpu drill` compared with its runs.

`tpu run` makes the same two, unbroken and with a lost host, in turn.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from measure import command, in_turn, wall
from rows import Row, as_long

PROGRAMS = Path(__file__).resolve().parents[1] / "fixtures" / "drill_programs"
PAIRS = 7
STEP = 24  # the host is lost here, between two saves
LOSS = "kill-0-1"


def measure(tpu: str, env: Mapping[str, str], home: Path, cwd: Path) -> list[Row]:
    """Measure the overhead. `home` is an empty $TPUKIT_HOME."""
    env = {**env, "TPUKIT_HOME": str(home)}
    home.mkdir(parents=True, exist_ok=True)
    job = home / "job.yaml"
    fields = {"name": "drill", "tpu": "v4-16", "command": [sys.executable, "-S", "right.py"], "code": str(PROGRAMS)}
    job.write_text(json.dumps({**fields, "capacity": "spot"}), encoding="utf-8")
    drill = [tpu, "drill", str(job), "--only", LOSS, "--require", "exact"]
    ours = partial(wall, drill, env=env, cwd=cwd, shows=[LOSS, "exact"])

    def theirs() -> float:
        unbroken = command([tpu, "run", str(job)], env=env, cwd=cwd, shows=["drill-"])
        broken = command([tpu, "run", str(job), "--lose", f"0-1@{STEP}"], env=env, cwd=cwd, shows=["drill-"])
        return unbroken.wall + broken.wall

    pairs = in_turn(ours, theirs, PAIRS)
    shutil.rmtree(home)
    return [as_long("tpu drill / the sum of its runs by tpu run", pairs, at_most=1.2)]
