"""Who is at the other end of a connection on loopback, as the kernel knows it."""

from __future__ import annotations

import os
from pathlib import Path

_ESTABLISHED = "01"


def is_ours(caller: int, own: int) -> bool:
    """Whether the program that came from port `caller` to our port `own` belongs to the user that we run as.

    Linux lists both ends of such a connection, each with its user; where there is no such list, nobody is ours.
    """
    for table in ("tcp", "tcp6"):
        try:
            lines = Path(f"/proc/net/{table}").read_text(encoding="ascii").splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            _, local, remote, state, _, _, _, user, *_ = line.split()
            if state == _ESTABLISHED and _port(local) == caller and _port(remote) == own:
                return int(user) == os.geteuid()
    return False


def _port(address: str) -> int:
    return int(address.rpartition(":")[2], 16)
