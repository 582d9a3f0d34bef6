"""`tpu drill` over programs with planted mistakes: every verdict is right, and no wrong cause is named."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import groupby, islice

import pytest

from support.drill_corpus import AT_ONCE, Outcome, Program, drill, table

SEED = 1
"""One of the three seeds of `make bench ONLY=drill`."""
OF_A_KIND, OF_ORBAX = 5, 1
"""Programs with Orbax are killed before their first save on a busy machine, so only the right one is drilled here."""
PROGRAMS = [
    one
    for kind, each in groupby(table(), key=lambda one: one.kind)
    for one in islice(each, OF_ORBAX if kind == "orbax alone" else OF_A_KIND)
]
"""The first programs of each kind. `make bench ONLY=drill` has all."""
SILENT_MOST = 4


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Future[Outcome]]]:
    folder = tmp_path_factory.mktemp("programs")
    with ThreadPoolExecutor(AT_ONCE) as pool:
        yield {one.name: pool.submit(drill, one, SEED, folder / one.name.replace(" ", "-")) for one in PROGRAMS}


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda one: one.name)
def test_drill_program_gets_its_verdict_and_no_wrong_cause(outcomes: dict[str, Future[Outcome]], program: Program):
    outcome = outcomes[program.name].result()
    assert outcome.verdict_right, outcome.explained
    assert not outcome.cause_wrong, outcome.explained
    if program.is_right:
        assert {one["verdict"] for one in outcome.result["losses"]} <= {"exact", "did not happen"}, outcome.explained


def test_drill_names_the_causes_of_most_programs(outcomes: dict[str, Future[Outcome]]):
    silent = [name for name, future in outcomes.items() if not future.result().cause_right]
    assert len(silent) <= SILENT_MOST, silent
