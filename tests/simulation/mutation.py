"""A piece of the product's source, and what stands there without a fix."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Mutation:
    cases: str  # letters of the table in README.md
    name: str
    file: str
    fixed: str
    broken: str
    scene: str = ""  # where it is looked for; empty: in all
    also: tuple[tuple[str, str, str], ...] = ()  # file, fixed, broken: a second line of defence against the same
