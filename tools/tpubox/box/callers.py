"""Identification of callers on loopback by the kernel's connection table, and of requests sent by web pages."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path

_ESTABLISHED = "01"
_HTTP = 80
_NOT_OTHER_SITES = ("none", "same-origin")

Address = tuple[str, int]


def is_ours(caller: Address, own: Address) -> bool:
    """Return whether the program that connects from `caller` to our `own` address runs as our user.

    Linux lists both ends of such a connection, each with its user; without that list, no caller is accepted. Whole
    addresses are compared: all of 127.0.0.0/8 is loopback, so other users can connect from the same port number.
    """
    for table in ("tcp", "tcp6"):
        try:
            lines = Path(f"/proc/net/{table}").read_text(encoding="ascii").splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            _, local, remote, state, _, _, _, user, *_ = line.split()
            if state == _ESTABLISHED and _address(local) == caller and _address(remote) == own:
                return int(user) == os.geteuid()
    return False


def is_from_a_page(headers: Mapping[str, str], own: Address, names: Sequence[str] = ("localhost",)) -> bool:
    """Return whether a browser may send this request for a web page: of another site, or by DNS rebinding.

    `names` are the host names that may lead here.
    """
    host, port = own
    others = headers.get("sec-fetch-site", "none") not in _NOT_OTHER_SITES
    right = {f"{name}:{port}" for name in (host, *names)} | ({host, *names} if port == _HTTP else set())
    return "origin" in headers or others or headers.get("host") not in right


def _address(text: str) -> Address:
    """Parse an address of the kernel's list, such as `0100007F:1F90`: words in the byte order of this machine.

    An IPv4 address within IPv6 is its last word.
    """
    words, _, port = text.partition(":")
    return socket.inet_ntoa(bytes.fromhex(words[-8:])[::-1]), int(port, 16)
