"""Decide which notices are due. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tpukit.core.quantities import duration
from tpukit.jobs.reasons import State
from tpukit.jobs.records import Job
from tpukit.serve.notices.rules import Rule

LATEST_SECONDS = 86_400.0
"""Age after which an end is no news."""


@dataclass(frozen=True, slots=True)
class Idle:
    """A slice that exists without a job."""

    name: str
    user: str  # its last user
    since: float
    usd: float | None  # an hour


@dataclass(frozen=True, slots=True)
class Notice:
    key: str  # the same for the same event and rule, in every process
    rule: str
    subject: str
    text: str


def due(rules: Sequence[Rule], jobs: Iterable[Job], idle: Iterable[Idle], now: float, since: float) -> list[Notice]:
    """Return the notices of what happened after `since`, when the rules were first read."""
    listed, free = list(jobs), list(idle)
    found = []
    for rule in rules:
        mine = [job for job in listed if rule.concerns(job.team, job.owner)]
        found += [one for job in mine for one in _of_job(rule, job, now, since)]
        if rule.idle and not rule.teams:  # a TPU VM has a user, and no team
            found += [_of_idle(rule, one, now) for one in free if _is_idle(rule, one, now)]
    return found


def _of_job(rule: Rule, job: Job, now: float, since: float) -> Iterable[Notice]:
    name = f"{job.team}/{job.id}"
    if job.state.ended:
        if job.state in rule.ended and job.ended >= max(since, now - LATEST_SECONDS):
            why = f": {job.message}" if job.message else ""
            yield Notice(
                *(f"{rule.name}.{job.id}.ended.{int(job.ended)}", rule.name, f"{name} {job.state}"),
                f"{name} of {job.owner} {job.state}{why}\ntpu job show {job.id}",
            )
        return
    attempt = job.attempt
    number = attempt.number if attempt else 0
    begun = (attempt.marks.since if attempt else 0.0) or job.created
    placed = (attempt.marks.placed or attempt.started) if attempt else 0.0
    if rule.waits and job.state is not State.RUNNING and not placed and now - begun >= rule.waits:
        why = f": {job.message}" if job.message else ""
        yield Notice(
            *(f"{rule.name}.{job.id}.waits.{number}", rule.name, f"{name} has waited for {duration(rule.waits)}"),
            f"{name} of {job.owner} has waited for {duration(now - begun)}{why}\ntpu job show {job.id}",
        )
    if attempt is None or attempt.ended or attempt.marks.stepped or not attempt.marks.announced:
        return
    if rule.idle and placed and now - placed >= rule.idle:
        yield Notice(
            *(f"{rule.name}.{job.id}.idle.{number}", rule.name, f"{name} has slices and no step"),
            f"{name} of {job.owner} has had its slices for {duration(now - placed)} without a step\n"
            f"tpu job logs {job.id} --tail 50",
        )


def _is_idle(rule: Rule, one: Idle, now: float) -> bool:
    return (not rule.owners or one.user in rule.owners) and one.since > 0 and now - one.since >= rule.idle


def _of_idle(rule: Rule, one: Idle, now: float) -> Notice:
    spent = "" if one.usd is None else f", {one.usd * (now - one.since) / 3600:,.2f} USD so far"
    return Notice(
        *(f"{rule.name}.{one.name}.idle.{int(one.since)}", rule.name, f"{one.name} is idle"),
        f"TPU VM {one.name} has had no job for {duration(now - one.since)}{spent}\ntpu vm delete {one.name}",
    )
