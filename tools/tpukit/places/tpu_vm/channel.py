"""Requests to the supervisors of many hosts at once, each with its own answer or error."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Protocol

import tpukit
from tpukit.core.errors import TpukitError

Answer = dict[str, Any]
SECONDS = 30.0
"""Time limit for a host's answer."""
_READING = ("status", "prepare")
_SIGNALS = ("start", "stop", "lose")


@dataclass(frozen=True, slots=True)
class Login:
    """A host, and the keys that identify it."""

    address: str
    user: str
    host_keys: tuple[str, ...]  # public keys that it published through Google: any other host is refused


@dataclass(frozen=True, slots=True)
class Call:
    login: Login
    request: Answer
    content: bytes = field(default=b"", repr=False)  # it may be a secret
    seconds: float = SECONDS

    @property
    def changes(self) -> bool:
        """True if the call changes the host, so that the caller's lease is checked before it is sent."""
        return self.request.get("do") not in _READING

    def within(self, rest: float) -> float:
        """Return the seconds that it may take while the lease is held for `rest`.

        Uploads and set-ups may outlast a lease: they start nothing, and the host does them once.
        """
        return min(self.seconds, rest) if self.request.get("do") in _SIGNALS else self.seconds


class Channel(Protocol):
    def public_key(self) -> str:
        """Return the key that hosts must authorize, as a line of authorized_keys."""

    def ask(self, calls: Sequence[Call]) -> list[Answer | TpukitError]:
        """Send all calls at once. An answer with `refused` is an answer, because the host was reachable.

        Raises:
            LeaseLost: Another driver owns the job. Calls that change something were not sent.
        """

    def attached(self, login: Login, argv: Sequence[str], *, terminal: bool) -> int:
        """Run a command on a host with the input and output of this process, and return its exit code."""

    def close(self) -> None: ...


@cache
def programs() -> dict[str, str]:
    """Return the programs that a host needs before any request, by their paths in its folder of programs."""
    package = Path(tpukit.__file__).parent
    files = {
        "supervisor.py": package / "host" / "supervisor.py",
        "shim.py": package / "places" / "local" / "processes" / "shim.py",
        "checkpoint_folder.py": package / "places" / "checkpoint_folder.py",
    }
    files |= {f"supervision/{file.name}": file for file in (package / "host" / "supervision").glob("*.py")}
    return {name: file.read_text(encoding="utf-8") for name, file in files.items()}


@cache
def version() -> str:
    """Return the version of these programs, since two versions of tpukit can use one host."""
    digest = hashlib.sha256()
    for name, text in sorted(programs().items()):
        digest.update(f"{name}\0{text}\0".encode())
    return digest.hexdigest()[:16]
