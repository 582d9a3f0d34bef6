"""Logs of attempts whose pods are gone, from Cloud Logging: which lines there are of an attempt."""

from __future__ import annotations

from collections.abc import Iterator

from tpukit.places.base import Handle, Line
from tpukit.places.gke import cloud_logging
from tpukit.places.gke.attempts import Position
from tpukit.places.gke.log_lines import PROGRESS

SLACK_SECONDS = 60.0
"""Clocks of hosts and of the control plane differ, and an attempt prints before all its hosts have started."""


def read(handle: Handle, host: str) -> Iterator[Line]:
    plan, attempt = handle.plan, handle.attempt
    where = cloud_logging.Where.of(
        plan.cluster.context if plan.cluster else "", getattr(plan.settings, "project", None)
    )
    known = Position.of(attempt.learned)
    lines = cloud_logging.read(
        where,
        plan.team,
        plan.id,
        restart=known.restarts if known else None,
        host=host,
        since=attempt.started - SLACK_SECONDS * 10 if attempt.started else None,
        until=attempt.ended + SLACK_SECONDS if attempt.ended else None,
    )
    return (Line(one.host, one.text) for one in lines if not one.text.startswith(PROGRESS))
