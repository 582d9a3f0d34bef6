"""Whose logs are read for progress: all hosts while there are few, else one of each job. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tpukit.places.gke.jobsets import Doc, host_of

ALL_HOSTS_MOST = 64
"""Hosts of all jobs together, up to which each is read."""


@dataclass(frozen=True, slots=True)
class Running:
    """An attempt whose hosts have begun."""

    pods: Sequence[Doc]  # of hosts, in any order
    first_host: str
    idle: float  # seconds for which those that are read did not move
    stall: float  # seconds after which that is a hang


def chosen(attempts: Mapping[str, Running]) -> dict[str, list[Doc]]:
    """By attempt. One that seems to hang has all its hosts read, so that the right one is blamed."""
    few = sum(len(one.pods) for one in attempts.values()) <= ALL_HOSTS_MOST
    return {key: list(one.pods) if few or one.idle > one.stall / 2 else _first(one) for key, one in attempts.items()}


def _first(running: Running) -> list[Doc]:
    ordered = sorted(running.pods, key=lambda pod: (host_of(pod) != running.first_host, pod["metadata"]["name"]))
    return ordered[:1]
