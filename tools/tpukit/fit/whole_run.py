"""Hours and dollars of a whole run on each shape, from the estimate of a step. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tpukit.fit.check import Report
from tpukit.fit.shapes import Shape

STEPS = 1000
"""Steps of a run whose length is not given."""


@dataclass(frozen=True, slots=True)
class Length:
    """Length of the run: a number of steps, or a number of tokens if the batch depends on the number of chips."""

    steps: float = STEPS
    tokens: float | None = None

    def __str__(self) -> str:
        if self.tokens is not None:
            return f"{self.tokens:,.0f} tokens"
        return "1 step" if self.steps == 1 else f"{self.steps:,.0f} steps"


@dataclass(frozen=True, slots=True)
class Row:
    """A job on one shape. Hours and dollars are estimates, by roofline and list price."""

    shape: Shape
    report: Report
    hours: float | None
    usd: float | None
    best: bool = False  # no other shape that fits is both faster and cheaper

    def to_json(self) -> dict[str, Any]:
        return {**self.report.to_json(), "hours": self.hours, "usd": self.usd, "best": self.best}


def rows(reports: Mapping[Shape, Report], length: Length) -> list[Row]:
    """Return a row for each shape: those that fit first, the cheapest of them first."""
    found = [Row(shape, report, *cost(report, length)) for shape, report in reports.items()]
    best = _best(found)
    marked = [Row(one.shape, one.report, one.hours, one.usd, one.shape in best) for one in found]
    return sorted(marked, key=_rank)


def cost(report: Report, length: Length) -> tuple[float | None, float | None]:
    """Return hours and dollars; None where an estimate or a price is missing."""
    guess = report.estimate
    if guess is None or not report.can_run:
        return None, None
    steps: float | None = length.steps
    if length.tokens is not None:
        steps = length.tokens / guess.tokens if guess.tokens else None
    if steps is None:
        return None, None
    hours = steps * guess.roofline_seconds / 3600
    return hours, hours * report.usd_per_hour if report.usd_per_hour is not None else None


def batches_differ(found: Iterable[Row]) -> bool:
    """Return whether a step trains on different numbers of tokens, so that equal numbers of steps do not compare."""
    return len({one.report.estimate.tokens for one in found if one.report.can_run and one.report.estimate}) > 1


def _best(found: list[Row]) -> set[Shape]:
    known = [(one.shape, one.hours, one.usd) for one in found if one.hours is not None and one.usd is not None]
    return {
        shape
        for shape, hours, usd in known
        if not any(h <= hours and d <= usd and (h, d) != (hours, usd) for _, h, d in known)
    }


def _rank(row: Row) -> tuple[Any, ...]:
    infinite = float("inf")
    usd = row.usd if row.usd is not None else infinite
    hours = row.hours if row.hours is not None else infinite
    return not row.report.can_run, usd, hours, row.shape.chips, str(row.shape)
