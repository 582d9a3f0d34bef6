"""A piece of the product's source, and its replacement without a fix."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Mutation:
    cases: str  # letters of the table in README.md
    name: str
    file: str
    fixed: str
    broken: str
    scene: str = ""  # scene to search; empty: all
    also: tuple[tuple[str, str, str], ...] = ()  # file, fixed, broken: a second protection against the same defect
