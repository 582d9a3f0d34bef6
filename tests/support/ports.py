"""Ports for programs that are told where to listen before they do."""

from __future__ import annotations

import random
import socket
from contextlib import suppress

RANGE = range(20000, 32000)
"""Below those that the system gives to connections going out: one of them could take the port in the meantime."""


def free_port() -> int:
    while True:
        port = random.choice(RANGE)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
