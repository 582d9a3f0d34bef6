"""Select the logs to read for progress: of all hosts while there are few, else of one host per job. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tpukit.places.gke.jobsets import Doc, host_of

ALL_HOSTS_MOST = 64
"""Total number of hosts of all jobs up to which each is read."""


@dataclass(frozen=True, slots=True)
class Running:
    """An attempt whose hosts have begun."""

    pods: Sequence[Doc]  # of hosts, in any order
    first_host: str
    idle: float  # seconds without progress on the hosts that are read
    stall: float  # seconds after which that counts as a hang


def chosen(attempts: Mapping[str, Running]) -> dict[str, list[Doc]]:
    """Return the pods to read, by attempt. Read all hosts of an attempt that seems to hang, to blame the right one."""
    few = sum(len(one.pods) for one in attempts.values()) <= ALL_HOSTS_MOST
    return {key: list(one.pods) if few or one.idle > one.stall / 2 else _first(one) for key, one in attempts.items()}


def _first(running: Running) -> list[Doc]:
    ordered = sorted(running.pods, key=lambda pod: (host_of(pod) != running.first_host, pod["metadata"]["name"]))
    return ordered[:1]
