"""Reports of a run, step by step: the form in which runs are compared."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise

from tpukit.places import trainer_lines


@dataclass(frozen=True, slots=True)
class Report:
    """Report of one host that it finished a step."""

    attempt: int
    host: int  # counted over all slices
    step: int
    loss: float | None = None
    batch: str = ""  # digest of the batch; empty if the program does not report it
    params: str = ""  # digest of the parameters afterwards, or norms printed with the loss
    named: tuple[tuple[str, str], ...] = ()  # digests of parameters by name
    saved: int = -1  # newest step that the program reports as saved
    at: float = 0.0  # when it was read

    @property
    def is_restore(self) -> bool:
        """Return whether it reports a restore and not a step."""
        return bool(self.params) and self.loss is None and not self.batch


@dataclass(frozen=True, slots=True)
class Line:
    """Line of a host's log or trace file."""

    attempt: int
    host: int
    text: str
    at: float = 0.0
    own: bool = False  # from the trace file, which only programs with `tpukit.host` write


Trace = tuple[Report, ...]

_LONGEST = 4096
_PREFIX = "tpukit-progress "
_NORM = re.compile(r"(?<![a-z_])(?:raw_grad|grad|param)_norm['\"]?[:=][ '\"]{0,20}[-+.\de]{1,30}", re.IGNORECASE)
"""Norms that trainers print with more digits than the three of the loss."""


class Reader:
    """Reader for all hosts of a run. `pattern` is `progress:` of the job file."""

    def __init__(self, pattern: str = "") -> None:
        self._pattern = pattern
        self._logs: dict[tuple[int, int], trainer_lines.Reader] = {}
        self._last: dict[tuple[int, int], Report] = {}

    def read(self, line: Line) -> Report | None:
        """Return the report in a line. A save reported apart from a step belongs to the last one."""
        host = line.attempt, line.host
        values = _values(line.text if line.own else line.text[:_LONGEST]) or self._said(host, line.text)
        if values is None:
            return None
        step, saved, at = _count(values.get("step")), _count(values.get("saved")), _number(values.get("time"))
        last = self._last.get(host)
        if step is None and (saved is None or last is None):
            return None
        if last is not None and step in (None, last.step):
            report = _with(last, values, saved)
        else:
            report = Report(
                line.attempt,
                line.host,
                step or 0,
                _value(values.get("loss")),
                batch=str(values.get("batch") or ""),
                params=_params(values),
                named=_named(values),
                saved=(last.saved if last else -1) if saved is None else saved,
                at=line.at if at is None else at,
            )
        self._last[host] = report
        return report

    def _said(self, host: tuple[int, int], text: str) -> dict[str, object] | None:
        if host not in self._logs:
            self._logs[host] = trainer_lines.Reader(self._pattern)
        said = self._logs[host].read(text)
        if said is None:
            return None
        norms = " ".join(_NORM.findall(trainer_lines.plain(text))) if said.step is not None else ""
        return {"step": said.step, "loss": said.loss, "saved": said.saved, "params": norms}


def _with(last: Report, values: Mapping[str, object], saved: int | None) -> Report:
    """Add values to the step that was reported last."""
    loss = _value(values.get("loss"))
    return replace(
        last,
        loss=last.loss if loss is None else loss,
        batch=str(values.get("batch") or last.batch),
        params=_params(values) or last.params,
        named=_named(values) or last.named,
        saved=last.saved if saved is None else saved,
    )


def build(lines: Iterable[Line], pattern: str = "") -> Trace:
    """Return every report in these lines. If a host wrote a trace file, ignore its log."""
    log, own = Reader(pattern), Reader()
    reports = [(line.own, report) for line in lines if (report := (own if line.own else log).read(line))]
    return settled(reports)


def settled(reports: Iterable[tuple[bool, Report]]) -> Trace:
    """Return the reports, without those from a log where a trace file exists."""
    reports = list(reports)
    own = {(report.attempt, report.host) for is_own, report in reports if is_own}
    return tuple(report for is_own, report in reports if is_own == ((report.attempt, report.host) in own))


def _values(text: str) -> dict[str, object] | None:
    text = text.strip().removeprefix(_PREFIX)
    if not text.startswith("{"):
        return None
    try:
        values = json.loads(text, parse_constant=float)
    except (ValueError, RecursionError):
        return None
    return values if isinstance(values, dict) and ("step" in values or "saved" in values) else None


def _value(value: object) -> float | None:
    """Return a loss. NaN and infinity are values: JSON has them as words, if at all."""
    if isinstance(value, str):
        try:
            return float(value[:60])
        except ValueError:
            return None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        return float(value)
    except OverflowError:
        return math.inf


def _params(values: Mapping[str, object]) -> str:
    """Return one digest for all parameters."""
    named = _named(values)
    return " ".join(f"{name}={digest}" for name, digest in named) if named else str(values.get("params") or "")


def _named(values: Mapping[str, object]) -> tuple[tuple[str, str], ...]:
    params = values.get("params")
    return tuple(sorted((str(name), str(one)) for name, one in params.items())) if isinstance(params, dict) else ()


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
    """Return the last report of each step by one host."""
    return {one.step: one for one in trace if one.host == host and attempt in (None, one.attempt)}


def printed_every(steps: Iterable[int]) -> int:
    """Return the number of steps between two reported ones."""
    return min((later - earlier for earlier, later in pairwise(sorted(set(steps)))), default=1)


def hosts(trace: Iterable[Report]) -> list[int]:
    return sorted({one.host for one in trace})
