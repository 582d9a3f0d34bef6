"""Addresses for hosts: one loopback network for each emulator on this machine, and its ports.

Linux answers on all of 127.0.0.0/8. An emulator claims 127.N.0.0/16 by holding one port of it, so that hosts of two
sandboxes never conflict; hosts listen on the ports of a real TPU VM if this user may, else on high ones.
"""

from __future__ import annotations

import socket
from dataclasses import dataclass

from tpukit.core.errors import Transient

FIRST = 77
_NETWORKS = (*range(FIRST, 128), *range(64, FIRST))
_CLAIM_PORT = 9821
SSH_PORTS = (22, 9822)
METADATA_PORTS = (80, 9880)


@dataclass(frozen=True, slots=True)
class Network:
    prefix: str  # "127.77"
    ssh_port: int
    metadata_port: int
    claim: socket.socket

    def close(self) -> None:
        self.claim.close()


def claim(last: str = "") -> Network:
    """Claim the previous network if it is still free, else the first free one."""
    prefixes = [f"127.{number}" for number in _NETWORKS]
    for prefix in dict.fromkeys([*filter(None, [last]), *prefixes]):
        claim_socket = _bound(f"{prefix}.255.254", _CLAIM_PORT)
        if claim_socket is None:
            continue
        ssh, metadata = (_usable(f"{prefix}.255.254", ports) for ports in (SSH_PORTS, METADATA_PORTS))
        return Network(prefix, ssh, metadata, claim_socket)
    raise Transient("all loopback networks from 127.64 to 127.127 are taken", hint="stop sandboxes that are not used")


def _bound(address: str, port: int) -> socket.socket | None:
    opened = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        opened.bind((address, port))
    except OSError:
        opened.close()
        return None
    return opened


def _usable(address: str, ports: tuple[int, int]) -> int:
    """Return the real port, unless this user may not listen on it or another server does so on all addresses."""
    probe = _bound(address, ports[0])
    if probe is None:
        return ports[1]
    probe.close()
    return ports[0]
