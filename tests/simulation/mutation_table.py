"""The table of mutations in README.md, written by `python -m simulation.mutations --table`.

A row keeps its last result until its mutation is run again, so a part of the mutations can be measured.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from simulation.cases import CASES
from simulation.mutation import Mutation

PAGE = Path(__file__).parent / "README.md"
BEGIN, END = "<!-- mutations -->\n", "<!-- end of mutations -->\n"
HEAD = "| case | failing test | change | mutation | layers | seed | seconds |\n|---|---|---|---|---|---|---|\n"
PENDING = "not run | "


def fixed_part(mutation: Mutation) -> str:
    """Return the columns of a row that do not depend on a run."""
    cases = mutation.cases.split()
    tests = ", ".join(dict.fromkeys(f"`{CASES[one].test}`" for one in cases))
    change = "; ".join(CASES[one].change for one in cases)
    layers = 1 + len(mutation.also)
    return f"| {', '.join(cases)} | {tests} | {change} | {mutation.name} ({mutation.scene or 'all'}) | {layers} | "


def results(page: str) -> dict[str, str]:
    """Return the measured part of each row, by its fixed part."""
    rows = page.partition(BEGIN)[2].partition(END)[0].splitlines()
    found = {}
    for row in rows:
        first, last = row.rsplit(" | ", 2)[0], row.rsplit(" | ", 2)[1:]
        found[f"{first} | "] = " | ".join(last).removesuffix(" |")
    return found


def table(mutations: Iterable[Mutation], measured: Mapping[str, str]) -> str:
    order = sorted(mutations, key=lambda one: (len(one.cases.split()[0]), one.cases))
    rows = [f"{(part := fixed_part(one))}{measured.get(part, PENDING)} |\n" for one in order]
    return HEAD + "".join(rows)


def write(mutations: Iterable[Mutation], new: Mapping[str, str]) -> None:
    page = PAGE.read_text(encoding="utf-8")
    before, _, rest = page.partition(BEGIN)
    after = rest.partition(END)[2]
    made = f"{before}{BEGIN}{table(mutations, results(page) | new)}{END}{after}"
    PAGE.write_text(made, encoding="utf-8")
