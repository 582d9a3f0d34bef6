"""Ports for programs that must know in advance where they will listen."""

from __future__ import annotations

import random
import socket
from contextlib import suppress

RANGE = range(20000, 32000)
"""Ports below the ephemeral range, so that no outgoing connection takes one meanwhile."""


def free_port() -> int:
    while True:
        port = random.choice(RANGE)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
