"""CPU time and memory of a sandbox's processes, by component."""

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
    """Return the CPU seconds of its processes and their children. Other work on the machine does not count."""
    found = {}
    for name, run in components.runs(place).items():
        found[name] = sum(_cpu(pid) for pid in {run.state.shim, run.state.pid, *pods.strays(run.folder)})
    return found


def memory(place: Folder) -> float:
    """Return the memory in GiB. The sum (PSS) counts a page that several processes share once."""
    return sum(components.memory(run) for run in components.runs(place).values()) / GIB


def idle(place: Folder, settle: float, seconds: float) -> Mapping[str, float]:
    """Return the percentage of a core that each component takes while the sandbox is idle."""
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
    # Includes children that have been waited for, which no process list shows any more.
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
