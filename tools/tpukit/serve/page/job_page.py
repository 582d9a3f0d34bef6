"""The view of one job: its attempts as a timeline, its hosts, events, spec and cost."""

from __future__ import annotations

import shlex
from typing import Any

import msgspec

from tpukit import places
from tpukit.core.errors import TpukitError
from tpukit.goodput import accounts, sums
from tpukit.goodput.causes import Cause, Span
from tpukit.jobs import render as rendering
from tpukit.jobs import report
from tpukit.jobs.plan import Plan
from tpukit.jobs.records import JOBS, Job
from tpukit.places.base import Handle, HostView
from tpukit.serve.page import overview
from tpukit.serve.page.site import SHARED_SECONDS, Site

WIDTH = 1000
"""Width of the timeline, in units of the drawing."""
EVENTS_MOST = 200
HOSTS_MOST = 256
LINES_MOST = 400
TAIL_BYTES = 128 * 1024
LAST_LINE_BYTES = 4 * 1024
LAST_LINES_MOST = 64
"""Hosts whose last lines are shown: each costs a request to its place."""
LINES_SECONDS = 5.0


def find(site: Site, job_id: str) -> Job:
    """Return a job. Raise NotFound if there is none."""
    return site.store.get(JOBS, job_id).value


def context(site: Site, job_id: str) -> dict[str, Any]:
    job, now = find(site, job_id), site.clock.now()
    account = accounts.of_job(job, now)
    plan = _plan(job)
    hosts, trouble = site.shared(f"hosts {job.id}", SHARED_SECONDS, lambda: _hosts(site, job))
    events = list(site.store.events(JOBS, job.id))
    return {
        "job": overview.row(job, now),
        "created": job.created,
        "ended": job.state.ended,
        "stopping": job.wanted == "stop",
        "attempts": _attempts(job, now),
        "line": _line(sums.spans(job, now)),
        "earlier": job.folded.count if job.folded else 0,
        "spent": _spent(account),
        "cost": accounts.usd(account.bill, account.rate.usd),
        "price": account.rate.note,
        "useful": account.bill.useful_share,
        "advice": accounts.lines(account.bill, account),
        "hosts": hosts[:HOSTS_MOST],
        "more_hosts": max(0, len(hosts) - HOSTS_MOST),
        "trouble": trouble,
        "progress": report.progress(hosts),
        "events": list(reversed(events[-EVENTS_MOST:])),
        "program": shlex.join(plan.command) if plan else "",
        "code": str(plan.snapshot) if plan and plan.snapshot else "",
        "workdir": _workdir(site, plan, job),
        "now": now,
    }


def spec_text(job: Job) -> str:
    """Return the stored spec as indented JSON."""
    return msgspec.json.format(msgspec.json.encode(job.plan.get("spec", {})), indent=2).decode()


def manifest_text(job: Job) -> str:
    """Return the manifests as they were sent. Jobs on TPU VMs and on this machine have none."""
    plan = _plan(job)
    if plan is None or job.place != places.RENDERED:
        return ""
    try:
        return rendering.text(plan)
    except TpukitError as error:
        return f"the manifests cannot be shown: {error}"


def last_lines(site: Site, job: Job) -> list[tuple[str, str]]:
    """Return the last line of each host, for the first hosts."""
    return site.shared(f"lines {job.id}", LINES_SECONDS, lambda: [_last(site, job, name) for name in _first(job)])


def _first(job: Job) -> list[str]:
    return host_names(job)[:LAST_LINES_MOST]


def _last(site: Site, job: Job, host: str) -> tuple[str, str]:
    lines, why = log(site, job, host, None, "", LAST_LINE_BYTES)
    return host, next((line for line in reversed(lines) if line.strip()), why)


def host_names(job: Job) -> list[str]:
    plan = _plan(job)
    return plan.host_names[:HOSTS_MOST] if plan else []


def log(
    site: Site, job: Job, host: str, attempt: int | None, words: str, size: int = TAIL_BYTES
) -> tuple[list[str], str]:
    """Return the last lines of a host that contain `words`, and the reason if there are none."""
    if job.place not in site.places or not job.attempts:
        return [], "it has not started"
    try:
        lines = site.places[job.place].tail(Handle.of(job, attempt), host, size)
    except TpukitError as error:
        return [], str(error)
    wanted = [line for line in lines if words.lower() in line.lower()]
    return wanted[-LINES_MOST:], "" if wanted else "no such lines"


def _plan(job: Job) -> Plan | None:
    try:
        return Plan.from_json(job.plan)
    except (TpukitError, ValueError, TypeError):
        return None


def _hosts(site: Site, job: Job) -> tuple[list[HostView], str]:
    if not job.attempts or job.place not in site.places:
        return [], ""
    try:
        (seen,) = site.places[job.place].observe([Handle.of(job)])
        if isinstance(seen, TpukitError):
            raise seen
    except TpukitError as error:
        return [], f"hosts are not shown: {error}"
    return list(seen.hosts), ""


def _workdir(site: Site, plan: Plan | None, job: Job) -> str:
    if plan is None:
        return ""
    origin = job.attempt.origin if job.attempt else 0
    place = site.places.get(job.place)
    return place.workdir(plan, origin) if place else plan.workdir_of(origin)


def _attempts(job: Job, now: float) -> list[dict[str, Any]]:
    spans = sums.spans(job, now)
    return [
        {
            "number": one.number,
            "stage": one.stage,
            "state": str(one.state),
            "reason": str(one.reason or ""),
            "host": one.host,
            "saved": report.count(one.saved) if one.saved >= 0 else "–",
            "ran": report.elapsed(one.started, one.ended or now),
            "warning": one.warning,
            "line": _line([span for span in spans if span.attempt == one.number]),
        }
        for one in job.attempts
    ]


def _line(spans: list[Span]) -> list[dict[str, Any]]:
    """Return spans as parts of a drawing that is WIDTH wide."""
    if not spans:
        return []
    first, last = spans[0].start, max(span.end for span in spans)
    scale = WIDTH / max(1, last - first)
    return [
        {
            "cause": span.cause,
            "x": round((span.start - first) * scale, 2),
            "width": round(max(span.length * scale, 0.5), 2),
            "seconds": span.length / 1000,
            "attempt": span.attempt,
        }
        for span in spans
    ]


def _spent(account: accounts.Account) -> list[dict[str, Any]]:
    bill = account.bill
    wall = bill.goodput.wall or 1
    return [
        {
            "cause": cause,
            "seconds": bill.goodput.spent[cause] / 1000,
            "share": bill.goodput.spent[cause] / wall,
            "usd": bill.usd.get(cause, 0.0) if account.rate.usd is not None else None,
        }
        for cause in Cause
        if cause in bill.goodput.spent
    ]
