"""Capabilities of the places. Reading them loads no place."""

from __future__ import annotations

from dataclasses import dataclass

from tpukit.places import NAMES


@dataclass(frozen=True, slots=True)
class Capabilities:
    """The capabilities of a place, so that callers do not test its name."""

    uses_this_machine: bool = False  # its attempts use this machine's cores
    drives_itself: bool = False  # restarts and ends submitted attempts without a driver
    kills_hosts: bool = False  # can kill hosts (`--lose`)
    log_times: bool = False  # records when lines were printed
    executes: bool = False  # can run commands on hosts (`tpu job exec`)
    unmanaged: bool = False  # can list jobs that are in no store
    named_machines: bool = False  # the user may choose the machines of a job (`--on`)
    queues: bool = False  # its jobs wait in the queues of teams


LOCAL = Capabilities(uses_this_machine=True, kills_hosts=True, executes=True)
GKE = Capabilities(drives_itself=True, log_times=True, executes=True, unmanaged=True, queues=True)
TPU_VM = Capabilities(named_machines=True, kills_hosts=True, executes=True)
BY_NAME = dict(zip(NAMES, (LOCAL, GKE, TPU_VM), strict=True))


def has_queues(place: str) -> bool:
    """Return whether jobs at this place wait in queues. A place of another version has none."""
    return place in BY_NAME and BY_NAME[place].queues
