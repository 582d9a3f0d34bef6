"""Ends of the logs of hosts that hang, with the stack of each process."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from pathlib import Path

from tpukit.core.clock import Clock
from tpukit.drill import processes
from tpukit.drill.sites import Host

STACK_SECONDS = 5.0
"""Most seconds that processes may take to write their stacks."""
TAIL_BYTES, TAIL_LINES = 16_000, 60


def of_hosts(hosts: Sequence[Host], clock: Clock) -> dict[str, str]:
    """Make hosts write their stacks, which ends them, and return the end of the log of each.

    Python writes its stack on SIGABRT if PYTHONFAULTHANDLER is set.
    """
    pids = processes.family(pid for host in hosts for pid in host.pids)
    processes.signal_all(pids, signal.SIGABRT)
    processes.signal_all(pids, signal.SIGCONT)  # a stopped process writes nothing
    due = clock.monotonic() + STACK_SECONDS
    while any(map(processes.lives, pids)) and clock.monotonic() < due:
        clock.sleep(0.02)
    return {f"{host.slice}-{host.index}": _tail(host.logs[-1]) for host in hosts if host.logs}


def _tail(log: Path) -> str:
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - TAIL_BYTES))
            lines = file.read().decode(errors="replace").splitlines()
    except OSError:
        return ""
    return "\n".join(lines[-TAIL_LINES:])
