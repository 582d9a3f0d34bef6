"""`tpu fit` of the pretraining example with 1.3 billion parameters: cold, and from its cache.

The environment of the compiler is the one in the user's cache folder, and is installed first where it is missing.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import time
from pathlib import Path
from typing import Any

from rows import Row, below, counted

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "02-pretrain"
CACHED = 5
SECONDS = 2.0
"""Limit for the answer about an unchanged job."""


def measure(tpu: str, home: Path) -> list[Row]:
    """Measure `tpu fit` on one slice of v5e-16."""
    job = home / "job.yaml"
    job.parent.mkdir(parents=True, exist_ok=True)
    body = {
        "name": "pretrain",
        "tpu": "v5e-16",
        "command": ["python", "train.py", "--config=1b3-tpu"],
        "code": str(EXAMPLE),
    }
    job.write_text(json.dumps(body), encoding="utf-8")
    cold, report = _fit(tpu, job, "--fresh", "--timeout", "7200")
    times = [_fit(tpu, job)[0] for _ in range(CACHED)]
    cached = statistics.median(times)
    return [
        counted("fit, 1b3 on v5e-16, compiled", cold, " s", digits=0),
        counted("fit, 1b3 on v5e-16, peak memory", report["peak_memory"] / 2**30, " GiB"),
        below("fit, 1b3 on v5e-16, cached", cached, " s", SECONDS, digits=2),
        counted("fit, saved by the cache", cold - cached, " s", digits=0),
    ]


def _fit(tpu: str, job: Path, *options: str) -> tuple[float, Any]:
    began = time.perf_counter()
    ran = subprocess.run(
        [tpu, "fit", str(job), "--json", *options], capture_output=True, text=True, env=os.environ, check=False
    )
    seconds = time.perf_counter() - began
    if ran.returncode:
        raise SystemExit(f"bench: tpu fit failed: {ran.stderr[-2000:] or ran.stdout[-2000:]}")
    return seconds, json.loads(ran.stdout)
