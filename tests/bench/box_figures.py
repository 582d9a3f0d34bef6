"""What the processes of a sandbox took, by component."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path

from tpubox.box import components
from tpubox.box.folder import Folder
from tpukit.places.local import processes as pods

GIB = 2**30


def cpu_seconds(place: Folder) -> dict[str, float]:
    """In which its processes, and those that they started, had a core. What others do on the machine is not in them."""
    found = {}
    for name, run in components.runs(place).items():
        found[name] = sum(_cpu(pid) for pid in {run.state.shim, run.state.pid, *pods.strays(run.folder)})
    return found


def memory(place: Folder) -> float:
    """GiB; a page that several processes share is counted once in the sum (PSS)."""
    return sum(components.memory(run) for run in components.runs(place).values()) / GIB


def idle(place: Folder, settle: float, seconds: float) -> Mapping[str, float]:
    """Percent of a core that each component takes while nobody asks anything."""
    time.sleep(settle)
    before, began = cpu_seconds(place), time.monotonic()
    time.sleep(seconds)
    after, passed = cpu_seconds(place), time.monotonic() - began
    return {name: 100 * (after[name] - before[name]) / passed for name in before}


def _cpu(pid: int) -> float:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except OSError:
        return 0.0
    # With the children that it waited for: they are in no list any more.
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
