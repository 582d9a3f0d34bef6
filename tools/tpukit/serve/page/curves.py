"""Loss and steps per second over all attempts of a job, from the ends of the logs of its first host."""

from __future__ import annotations

import json
import math
from typing import Any

from tpukit.core.errors import TpukitError
from tpukit.jobs.plan import Plan
from tpukit.jobs.records import Job
from tpukit.places import trainer_lines
from tpukit.places.base import Handle
from tpukit.serve.page.site import Site

BYTES_EACH = 512 * 1024
POINTS_MOST = 2000
OWN = "tpukit-progress "


def of_job(site: Site, job: Job) -> dict[str, Any]:
    """Return steps, and for each attempt its loss and rate at these steps; None where it has none."""
    points: dict[int, dict[int, tuple[float | None, float | None]]] = {}
    place = site.places.get(job.place)
    if place is None or not job.attempts:
        return {"steps": [], "attempts": [], "loss": [], "rate": []}
    try:
        plan = Plan.from_json(job.plan)
    except TpukitError:
        return {"steps": [], "attempts": [], "loss": [], "rate": []}
    for attempt in job.attempts:
        try:
            lines = place.tail(Handle.of(job, attempt.number), plan.host_names[0], BYTES_EACH)
        except TpukitError:
            continue
        points[attempt.number] = _points(lines, plan.spec.progress or "")
    steps = sorted({step for each in points.values() for step in each})
    steps = steps[:: max(1, math.ceil(len(steps) / POINTS_MOST))]
    numbers = sorted(number for number, each in points.items() if each)
    return {
        "steps": steps,
        "attempts": numbers,
        "loss": [[points[number].get(step, (None, None))[0] for step in steps] for number in numbers],
        "rate": [[points[number].get(step, (None, None))[1] for step in steps] for number in numbers],
    }


def _points(lines: Any, pattern: str) -> dict[int, tuple[float | None, float | None]]:
    """Return loss and steps per second by step, from untrusted lines of a log."""
    reader = trainer_lines.Reader(pattern)
    found: dict[int, tuple[float | None, float | None]] = {}
    for line in lines:
        step, loss, rate = _own(line)
        if step is None:
            said = reader.read(line)
            if said is None or said.step is None:
                continue
            step, loss, rate = said.step, said.loss, None
        if 0 <= step < 2**53:
            found[step] = (_finite(loss), _finite(rate))
    return found


def _own(line: str) -> tuple[int | None, float | None, float | None]:
    """Return step, loss and rate of a line that `tpukit.host` printed."""
    if OWN not in line:
        return None, None, None
    try:
        values = json.loads(line.partition(OWN)[2])
    except (ValueError, RecursionError):
        return None, None, None
    if not isinstance(values, dict) or type(values.get("step")) is not int:
        return None, None, None
    return values["step"], _number(values.get("loss")), _number(values.get("steps_per_s"))


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def _finite(number: float | None) -> float | None:
    return number if number is not None and math.isfinite(number) else None
