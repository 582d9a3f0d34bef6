"""Check that the hosts of an attempt on this machine are connected.

JAX processes that train together hold connections to each other; those that each train alone hold none, and both
complete.

Only hosts that have JAX loaded and report steps are checked: by then `jax.distributed.initialize()` has returned.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

SECONDS = 2.0
"""Time between two checks. Hosts without a connection in two of them train alone."""
_ESTABLISHED = "01"
_PROC = Path("/proc")

Connection = tuple[str, str]
"""The two ends of a connection, the local one first, as the kernel writes them."""


@dataclass(slots=True)
class Meeting:
    """The state of the checks of one attempt."""

    due: float = 0.0
    met: bool = False
    times_alone: int = 0

    @property
    def warning(self) -> str:
        if self.times_alone < 2:
            return ""
        return (
            "its hosts have no connection to each other: each trains alone; call jax.distributed.initialize() first, "
            "or set the option of the program that does so"
        )

    def check(self, hosts: Mapping[str, Sequence[int]], now: float) -> None:
        """Check the connections, if due.

        `hosts`: the processes of each, all of which report steps. `now` is on the monotonic clock.
        """
        if self.met or now < self.due or len(hosts) < 2:
            return
        self.due = now + SECONDS
        if not all(any(_loads_jax(pid) for pid in pids) for pids in hosts.values()):
            return
        lonely = alone({host: connections(pids) for host, pids in hosts.items()})
        self.met = not lonely
        self.times_alone = self.times_alone + 1 if lonely else 0


def alone(hosts: Mapping[str, set[Connection]]) -> list[str]:
    """Return hosts without a connection to any other. Pure."""
    ends = {name: {(there, here) for here, there in own} for name, own in hosts.items()}
    return [name for name in hosts if not any(ends[name] & own for other, own in hosts.items() if other != name)]


def connections(pids: Sequence[int]) -> set[Connection]:
    """Return the connections of all these processes together."""
    inodes = {inode for pid in pids for inode in _sockets(pid)}
    return {ends for table in ("tcp", "tcp6") for inode, ends in _table(table) if inode in inodes}


def _sockets(pid: int) -> list[str]:
    found = []
    with suppress(OSError):
        for handle in (_PROC / str(pid) / "fd").iterdir():
            with suppress(OSError):
                target = str(handle.readlink())
                if target.startswith("socket:["):
                    found.append(target[8:-1])
    return found


def _table(name: str) -> list[tuple[str, Connection]]:
    try:
        lines = (_PROC / "net" / name).read_text(encoding="ascii").splitlines()[1:]
    except OSError:
        return []
    rows = [line.split() for line in lines]
    return [(row[9], (_end(row[1]), _end(row[2]))) for row in rows if len(row) > 9 and row[3] == _ESTABLISHED]


def _end(text: str) -> str:
    """Normalize an address: IPv4 may be written as IPv6."""
    address, _, port = text.partition(":")
    return f"{address[-8:]}:{port}"


def _loads_jax(pid: int) -> bool:
    try:
        return "/jaxlib/" in (_PROC / str(pid) / "maps").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
