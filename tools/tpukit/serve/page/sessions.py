"""Access to the page: a token in a file that only this user can read, one-time links, and sessions."""

from __future__ import annotations

import hmac
import json
import os
import secrets
import threading
from collections.abc import Callable
from pathlib import Path

LINK_SECONDS = 60.0
SESSION_SECONDS = 12 * 3600.0
MOST = 1000


class Sessions:
    """One-time links and sessions; thread-safe. `clock` returns monotonic seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.token = secrets.token_urlsafe(32)
        self._clock = clock
        self._lock = threading.Lock()
        self._links: dict[str, float] = {}
        self._sessions: dict[str, float] = {}

    def link(self, token: str) -> str:
        """Return a code that opens one session, or "" if the token is wrong."""
        if not hmac.compare_digest(token.encode(), self.token.encode()):
            return ""
        return self._add(self._links, LINK_SECONDS)

    def enter(self, code: str) -> str:
        """Return a new session for a one-time code, or "" if the code is invalid."""
        with self._lock:
            ends = self._links.pop(code, 0.0)
        return self._add(self._sessions, SESSION_SECONDS) if ends > self._clock() else ""

    def knows(self, session: str) -> bool:
        with self._lock:
            return self._sessions.get(session, 0.0) > self._clock()

    def _add(self, to: dict[str, float], seconds: float) -> str:
        name, now = secrets.token_urlsafe(32), self._clock()
        with self._lock:
            for old in [one for one, ends in to.items() if ends <= now]:
                del to[old]
            while len(to) >= MOST:
                del to[next(iter(to))]
            to[name] = now + seconds
        return name


def write(file: Path, port: int, token: str) -> None:
    """Write the page's port and token for `tpu page`, readable by this user only."""
    file.parent.mkdir(parents=True, exist_ok=True)
    draft = file.with_name(f"{file.name}.{os.getpid()}.new")
    handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    with os.fdopen(handle, "w", encoding="utf-8") as out:
        json.dump({"port": port, "token": token, "pid": os.getpid()}, out)
    draft.replace(file)


def read(file: Path) -> tuple[int, str] | None:
    """Return the port and the token that a `tpu serve` of this user last wrote."""
    try:
        said = json.loads(file.read_text(encoding="utf-8"))
        return int(said["port"]), str(said["token"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
