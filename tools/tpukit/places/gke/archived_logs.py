"""Logs of attempts whose pods are gone, selected from Cloud Logging."""

from __future__ import annotations

from collections.abc import Iterator

from tpukit.places.base import Handle, Line
from tpukit.places.gke import cloud_logging, hosts
from tpukit.places.gke.attempts import Position
from tpukit.places.gke.cloud_logging import Wanted, Where
from tpukit.places.gke.log_lines import PROGRESS

SLACK_SECONDS = 60.0
"""Tolerance for clock differences between hosts and the control plane."""
START_SECONDS = 600.0
"""Hosts print before all of them have started."""


def read(handle: Handle, host: str) -> Iterator[Line]:
    plan, attempt = handle.plan, handle.attempt
    where = Where.of(plan.cluster.context if plan.cluster else "", plan.settings.project)
    known = Position.of(attempt.learned)
    wanted = Wanted(
        plan.team,
        plan.id,
        restart=known.restarts if known else None,
        host=host,
        since=_since(handle),
        until=attempt.ended + SLACK_SECONDS if attempt.ended else None,
    )
    lines = cloud_logging.read(where, wanted)
    return (Line(one.host, one.text, one.at) for one in lines if not one.text.startswith(PROGRESS))


def _since(handle: Handle) -> float | None:
    """Return a start time, since after an eviction the pods of two attempts have the same restart count."""
    began = [one.began for one in hosts.recorded(handle.attempt.learned).values() if one.began]
    if began:
        return min(began) - SLACK_SECONDS
    return handle.attempt.started - START_SECONDS if handle.attempt.started else None
