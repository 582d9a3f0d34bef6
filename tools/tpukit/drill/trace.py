"""What a run reported, step by step: the one form in which runs are compared."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Report:
    """One host said that it has done a step."""

    attempt: int
    host: int  # counted over all slices
    step: int
    loss: float | None = None
    batch: str = ""  # digest of what it was trained on; empty where the program does not say
    params: str = ""  # digest of the parameters after it
    saved: int = -1  # newest step that the program says is saved
    at: float = 0.0  # when it was read


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a host's log or trace file."""

    attempt: int
    host: int
    text: str
    at: float = 0.0
    own: bool = False  # of the trace file, which only programs with `tpukit.host` write


Trace = tuple[Report, ...]

_NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d{1,3})?"
_LOSS = re.compile(rf"(?i)(?<!\w)(?:train[_/ ])?loss['\"]?\s{{0,4}}[:=]?\s{{0,4}}['\"]?({_NUMBER}|nan|inf)")
_STEP = re.compile(r"(?i)(?<!\w)(?:step|iter|iteration)['\"]?\s{0,4}[:=]?\s{0,4}['\"]?(\d{1,15})")
_SAVED = re.compile(r"(?i)(?<!\w)saved['\"]?\s{0,4}[:=]?\s{0,4}['\"]?(?:step\s{0,4})?(\d{1,15})")
_OTHER = re.compile(r"(?i)\b(?:eval|valid|validation|test|running)\b")
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_LONGEST = 4096
_PREFIX = "tpukit-progress "


def build(lines: Iterable[Line]) -> Trace:
    """Every report in these lines. Of a host that wrote a trace file, its log says nothing more."""
    lines = list(lines)
    own = {(line.attempt, line.host) for line in lines if line.own}
    reports = []
    for line in lines:
        if line.own == ((line.attempt, line.host) in own) and (report := read(line)):
            reports.append(report)
    return tuple(reports)


def read(line: Line) -> Report | None:
    values = _values(line.text[:_LONGEST])
    if values is None:
        return None
    step, loss, saved = _count(values.get("step")), _number(values.get("loss")), _count(values.get("saved"))
    if step is None:
        return None
    at = _number(values.get("time"))
    return Report(
        line.attempt,
        line.host,
        step,
        loss,
        batch=str(values.get("batch") or ""),
        params=str(values.get("params") or ""),
        saved=-1 if saved is None else saved,
        at=line.at if at is None else at,
    )


def _values(text: str) -> dict[str, object] | None:
    text = _COLOUR.sub("", text).strip().removeprefix(_PREFIX)
    if text.startswith("{"):
        try:
            values = json.loads(text, parse_constant=lambda _: None)
        except (ValueError, RecursionError):
            return None
        return values if isinstance(values, dict) else None
    if _OTHER.search(text):
        return None
    step, loss, saved = _STEP.search(text), _LOSS.search(text), _SAVED.search(text)
    if not step or not loss:
        return None
    batch = re.search(r"(?<!\w)batch[ =:]{1,3}(\w{1,64})", text)
    return {
        "step": int(step[1]),
        "loss": float(loss[1]),
        "saved": int(saved[1]) if saved else None,
        "batch": batch[1] if batch else "",
    }


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:
        return None


def _count(value: object) -> int | None:
    number = _number(value)
    return int(number) if number is not None and number.is_integer() and 0 <= number < 2**63 else None


def by_step(trace: Iterable[Report], host: int, attempt: int | None = None) -> dict[int, Report]:
    """The last report of each step by one host."""
    return {one.step: one for one in trace if one.host == host and attempt in (None, one.attempt)}


def hosts(trace: Iterable[Report]) -> list[int]:
    return sorted({one.host for one in trace})
