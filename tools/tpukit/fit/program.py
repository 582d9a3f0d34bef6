"""Program of a job, in the form that the worker runs. Programs that cannot be run are refused with a reason."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tpukit.catalogue import Slice
from tpukit.core.errors import Invalid, Problem
from tpukit.jobs.plan import Plan

FUNCTION_HINT = (
    "or write `fit: FILE.py:FUNCTION` in the job file: a function that returns the step and its abstract arguments"
)
_VALUES = ("-W", "-X")


@dataclass(frozen=True, slots=True)
class Program:
    """Program for the worker. `site` has the package folders of the program's own Python."""

    folder: str
    mode: str  # script, module, function
    argv: tuple[str, ...]
    site: tuple[str, ...]
    topology: str
    slices: int
    bounds: tuple[int, ...]
    masked: tuple[str, ...]
    change: str = ""  # change to try out, by its name in the worker

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def of(plan: Plan, change: str = "") -> Program:
    folder = str(Path(plan.spec.code or ".").resolve())
    python, mode, argv = _words(plan)
    return Program(
        folder,
        mode,
        argv,
        tuple(_site(python, folder, plan.spec.env)),
        f"{plan.slice.generation}:{plan.slice.topology}",
        plan.spec.slices,
        bounds(plan.slice),
        tuple(value for value in plan.spec.env.values() if len(value) > 6),
        change,
    )


def bounds(slice_: Slice) -> tuple[int, ...]:
    """Return the number of chips of a host along each axis, because libtpu may assume another."""
    axes = len(slice_.topology.split("x"))
    if axes == 2:
        return {1: (1, 1, 1), 8: (2, 4, 1)}.get(slice_.chips_per_host, (2, 2, 1))
    return {1: (1, 1, 1)}.get(slice_.chips_per_host, (2, 2, 1))


def _words(plan: Plan) -> tuple[str, str, tuple[str, ...]]:
    if plan.spec.fit:
        return "python3", "function", (plan.spec.fit,)
    python, *rest = plan.command
    if not Path(python).name.startswith("python"):
        what = f"command: {Path(python).name} is not Python, so `tpu fit` cannot run its program up to the first step"
        raise Invalid(Problem("", what, f"write command: [python, FILE.py, ...], {FUNCTION_HINT}"))
    while rest and rest[0].startswith("-") and rest[0] not in ("-m", "-c", "-"):
        rest = rest[2:] if rest[0] in _VALUES else rest[1:]
    if rest[:1] == ["-m"] and len(rest) > 1:
        return python, "module", tuple(rest[1:])
    if not rest or rest[0].startswith("-"):
        what = "command: it has no Python file that `tpu fit` can run up to the first step"
        raise Invalid(Problem("", what, f"write command: [python, FILE.py, ...], {FUNCTION_HINT}"))
    return python, "script", tuple(rest)


def _site(python: str, folder: str, env: dict[str, str]) -> list[str]:
    """Return the package folders of the program's own Python; empty if that Python is missing here."""
    found = shutil.which(python, path=env.get("PATH")) or (
        str(Path(folder, python)) if Path(folder, python).exists() else ""
    )
    if not found:
        return []
    code = "import sys; print('\\n'.join(p for p in sys.path if p.endswith('-packages')))"
    try:
        ran = subprocess.run([found, "-c", code], capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError):
        return []
    return ran.stdout.splitlines()
