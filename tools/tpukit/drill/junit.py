"""Verdicts as JUnit XML for CI: one test case for each loss."""

from __future__ import annotations

from tpukit.core import junit
from tpukit.core.junit import Case
from tpukit.drill.advice import TEXT
from tpukit.drill.engine import Drill, Result
from tpukit.drill.verdicts import Word


def render(drill: Drill) -> str:
    found = [
        Case("unbroken", failure=(one.word, f"{one.word}: {one.text}; {one.cause}: {TEXT[one.cause]}"))
        for one in drill.findings
    ]
    left_out = [Case(name, skipped=why) for name, why in drill.left_out]
    return junit.render(f"tpu drill {drill.job}", [*found, *map(_case, drill.results), *left_out], drill.seconds)


def _case(result: Result) -> Case:
    verdict = result.verdict
    if verdict.word is Word.EXACT:
        return Case(verdict.loss.name, result.run.seconds)
    message = "; ".join([f"{verdict.word}: {verdict.text}", *(f"{cause}: {TEXT[cause]}" for cause in result.causes)])
    return Case(verdict.loss.name, result.run.seconds, (verdict.word, message))
