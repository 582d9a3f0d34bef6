"""Reports about jobs for people: tables, JSON and the live screen, from records and from observations.

Nothing here raises because of the content of a record: it may come from another version, or hold a program's output.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from tpukit.core import quantities
from tpukit.jobs import history
from tpukit.jobs.reasons import Budget
from tpukit.jobs.records import Job
from tpukit.jobs.rules import SAY_PROGRESS
from tpukit.kernel.store import Event
from tpukit.places.base import HostView

duration = quantities.duration
UNSEEN_SECONDS = 300.0
"""Time without a step before a program is reported to show none: compiling takes minutes."""
_LARGEST = 2**63
"""Largest number shown: no step count exceeds it, and not every reader of JSON accepts more."""


def elapsed(start: float, end: float) -> str:
    """Format the time between two moments; `-` if the first is unknown or after the second."""
    return duration(end - start) if start > 0 else "-"


def clock_time(at: float) -> str:
    moment = _moment(at)
    return moment.astimezone().strftime("%Y-%m-%d %H:%M:%S") if moment else "-"


def iso(at: float) -> str | None:
    moment = _moment(at)
    return moment.isoformat(timespec="milliseconds") if moment else None


def count(number: int) -> str:
    """Format a number of steps, with all digits up to 10^12."""
    if abs(number) < 10**12:
        return str(number)
    return f"{number:.2e}" if abs(number) < _LARGEST else "?"


def measure(number: float, digits: int) -> str:
    """Format a measurement with `digits` decimals; very large and very small ones with an exponent."""
    size = abs(number)
    return f"{number:.{digits}f}" if size == 0 or 10**-digits <= size < 1e6 else f"{number:.2e}"


def shape(job: Job) -> str:
    """Return `2 × v4-16` as the user wrote it, with `?` for parts that this version cannot read."""
    name, slices = tpu(job) or "?", slice_count(job)
    if slices is None:
        return f"? × {name}"
    return name if slices == 1 else f"{slices} × {name}"


def tpu(job: Job) -> str | None:
    """Return the slice as the user wrote it; None if this version cannot read the record."""
    said = _spec(job).get("tpu")
    if isinstance(said, dict):
        said = said.get("type") or " ".join(str(said[key]) for key in ("generation", "topology") if said.get(key))
    return said if isinstance(said, str) and said else None


def slice_count(job: Job) -> int | None:
    slices = _spec(job).get("slices", 1)
    known = isinstance(slices, int) and not isinstance(slices, bool) and 0 < slices < _LARGEST
    return slices if known else None


def no_jobs(*, filtered: bool, active: bool = False) -> str:
    """Return the text for an empty list: no job was ever sent, or none matches."""
    if active:
        return "no active jobs; `tpu job list` shows those that ended"
    return "no such jobs; `tpu job list` shows all" if filtered else "no jobs yet; `tpu run FILE` sends one"


def restarts(job: Job) -> str:
    """Return `1 of 3 used; not charged: 2 preempted, 1 evicted`; empty without restarts."""
    last = job.attempt
    past = history.fold(job.folded, job.attempts[:-1])
    if not past.reasons or (last is not None and last.asked):
        return ""
    used = history.restarts(past)
    limits = _spec(job).get("max")
    allowed = limits.get("restarts", 0) if isinstance(limits, dict) else 0
    allowed = allowed if isinstance(allowed, int) and abs(allowed) < _LARGEST else "?"
    free = {reason: count for reason, count in past.reasons.items() if history.budget_of(reason) is Budget.HARDWARE}
    listed = ", ".join(f"{count} {reason}" for reason, count in free.items())
    return f"{used} of {allowed} used" + (f"; not charged: {listed}" if free else "")


def unseen(hosts: Sequence[HostView], started: float, until: float) -> str:
    """Return a warning if a program has run for a while and neither shows nor announced a step; else empty.

    Such a program is indistinguishable from one that hangs, and no step of it can be awaited.
    """
    if not hosts or not started or until - started < UNSEEN_SECONDS:
        return ""
    if any(host.step is not None or host.early for host in hosts):
        return ""
    return f"tpukit sees no steps of the program, so it cannot detect a hang: {SAY_PROGRESS}"


def progress(hosts: Sequence[HostView]) -> str:
    """Return `step 40 of 1000 (4 %), about 12m 5s left`, by the host furthest behind.

    Empty if no host reports its total steps.
    """
    known = [host for host in hosts if host.step is not None and host.total and host.step <= host.total]
    if not known:
        return ""
    last = min(known, key=lambda host: (host.step or 0) / (host.total or 1))
    step, total = last.step or 0, last.total or 1
    rates = [host.steps_per_s for host in known if host.steps_per_s and math.isfinite(host.steps_per_s)]
    running = any(host.state == "running" for host in known)
    left = f", about {duration((total - step) / min(rates))} left" if rates and min(rates) > 0 and running else ""
    return f"step {count(step)} of {count(total)} ({100 * step // total} %){left if step < total else ''}"


def job_json(job: Job) -> dict[str, Any]:
    """Return a job as `--json` prints it: times in ISO 8601, without the plan."""
    attempts = [
        {
            "number": attempt.number,
            "stage": attempt.stage,
            "state": attempt.state,
            "reason": attempt.reason,
            "host": attempt.host or None,
            "detail": attempt.detail or None,
            "saved_step": _saved(attempt.saved),
            "last_step": _saved(attempt.step),
            "warning": attempt.warning or None,
            "started": iso(attempt.started),
            "ended": iso(attempt.ended),
        }
        for attempt in job.attempts
    ]
    return {
        "id": job.id,
        "state": job.state,
        "reason": job.reason,
        "message": job.message or None,
        "place": job.place,
        "team": job.team,
        "owner": job.owner,
        "tpu": tpu(job),
        "slices": slice_count(job),
        "tags": list(job.tags),
        "created": iso(job.created),
        "ended": iso(job.ended),
        "attempts": attempts,
        **({"earlier_attempts": job.folded.count} if job.folded else {}),
    }


def host_json(host: HostView) -> dict[str, Any]:
    return {
        "name": host.name,
        "slice": host.slice,
        "state": host.state,
        "pid": host.pid or None,
        "node": host.node or None,
        "exit_code": host.code,
        "step": host.step if host.step is None or abs(host.step) < _LARGEST else None,
        "loss": _finite(host.loss),
        "steps_per_s": _finite(host.steps_per_s),
        "saved_step": _saved(host.saved),
        "total_steps": host.total,
    }


def event_json(event: Event) -> dict[str, Any]:
    return {"at": iso(event.at), "text": event.text}


def _spec(job: Job) -> dict[str, Any]:
    """Return the spec in a job's plan as stored; empty if there is none."""
    spec = job.plan.get("spec")
    return spec if isinstance(spec, dict) else {}


def _moment(at: float) -> datetime | None:
    """Return the moment, or None for 0 (never) and for times out of range."""
    try:
        return datetime.fromtimestamp(at, UTC) if at > 0 else None
    except (OverflowError, ValueError, OSError):
        return None


def _saved(step: int) -> int | None:
    return step if 0 <= step < _LARGEST else None


def _finite(number: float | None) -> float | None:
    """Return None for NaN and infinity, which JSON lacks."""
    return number if number is not None and math.isfinite(number) else None
