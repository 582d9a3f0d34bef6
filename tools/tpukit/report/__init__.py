"""What people see of jobs: tables, JSON and the live screen, all made from the store's records and a place's looks."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from typing import Any

from tpukit.places.base import HostView
from tpukit.reasons import MEANINGS, Budget
from tpukit.store import Event, Job


def duration(seconds: float) -> str:
    """`3s`, `12m 5s`, `4h 0m`: two units at most."""
    whole = int(seconds)
    for unit, size, below in (("d", 86400, 3600), ("h", 3600, 60), ("m", 60, 1)):
        if whole >= size:
            smaller = {"d": "h", "h": "m", "m": "s"}[unit]
            return f"{whole // size}{unit} {whole % size // below}{smaller}"
    return f"{whole}s"


def number(value: float, digits: int) -> str:
    """With so many digits behind the point; a number that would fill the screen in powers of ten."""
    return f"{value:.{digits}f}" if abs(value) < 1e9 else f"{value:.{digits}e}"


def clock_time(at: float) -> str:
    return datetime.fromtimestamp(at).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def iso(at: float) -> str | None:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds") if at else None


def shape(job: Job) -> str:
    """`2 × v4-16`, as the user wrote it."""
    spec = job.plan["spec"]
    tpu = spec["tpu"]
    name = tpu if isinstance(tpu, str) else tpu.get("type") or f"{tpu['generation']} {tpu['topology']}"
    slices = spec.get("slices", 1)
    return name if slices == 1 else f"{slices} × {name}"


def restarts(job: Job) -> str:
    """`1 of 3 used; not charged: 2 preempted, 1 evicted`; empty where there was none."""
    asked = max((index for index, attempt in enumerate(job.attempts) if attempt.asked), default=0)
    reasons = [attempt.reason for attempt in job.attempts[asked:-1] if attempt.reason]
    if not reasons:
        return ""
    used = sum(1 for reason in reasons if MEANINGS[reason].budget is Budget.USER)
    allowed = job.plan["spec"].get("max", {}).get("restarts", 0)
    free = Counter(reason for reason in reasons if MEANINGS[reason].budget is Budget.HARDWARE)
    listed = ", ".join(f"{count} {reason}" for reason, count in free.items())
    return f"{used} of {allowed} used" + (f"; not charged: {listed}" if free else "")


def job_json(job: Job) -> dict[str, Any]:
    """A job as `--json` prints it: times in ISO 8601, the plan left out."""
    attempts = [
        {
            "number": attempt.number,
            "stage": attempt.stage,
            "state": attempt.state,
            "reason": attempt.reason,
            "host": attempt.host or None,
            "detail": attempt.detail or None,
            "saved_step": attempt.saved if attempt.saved >= 0 else None,
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
        "tags": list(job.tags),
        "created": iso(job.created),
        "ended": iso(job.ended),
        "attempts": attempts,
    }


def host_json(host: HostView) -> dict[str, Any]:
    return {
        "name": host.name,
        "slice": host.slice,
        "state": host.state,
        "pid": host.pid or None,
        "node": host.node or None,
        "exit_code": host.code,
        "step": host.step,
        "loss": host.loss,
        "steps_per_s": host.steps_per_s,
        "saved_step": host.saved if host.saved >= 0 else None,
    }


def event_json(event: Event) -> dict[str, Any]:
    return {"at": iso(event.at), "text": event.text}
