"""Problems in a file, each with its place, in the order of the file."""

from __future__ import annotations

from tpukit.core.errors import Problem
from tpukit.core.quantities import counted
from tpukit.jobs.spec.forms import Path
from tpukit.jobs.spec.located_yaml import Node
from tpukit.jobs.spec.words import dotted

MOST = 100
"""Most problems worth reporting at once: a file with more of them is not a spec."""


def placed(root: Node, path: Path, what: str, hint: str) -> Problem:
    place = root.place(path)
    # A flag already contains the name, and is what the user has to type again.
    if place == f"--set {dotted(path)}":
        return Problem(place, what.removeprefix(f"{dotted(path)}: "), hint.replace(f" {path[-1]}: ", f" {place}=", 1))
    if place.startswith("--") and not place.startswith("--set "):
        return Problem(place, what.removeprefix(f"{dotted(path)}: "), hint.replace(f" {path[0]}: ", f" {place} ", 1))
    return Problem(place, what, hint)


def from_the_top(problems: list[Problem]) -> list[Problem]:
    """Sort problems by line of the file, those without a line last."""
    problems = sorted(problems, key=_line)
    more = [Problem("", f"and {counted(len(problems) - MOST, 'more problem')}")] if len(problems) > MOST else []
    return problems[:MOST] + more


def _line(problem: Problem) -> float:
    line = problem.where.rpartition(":")[2]
    return int(line) if line.isascii() and line.isdigit() else float("inf")
