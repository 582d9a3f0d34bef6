"""Access to the REST front end: with its token, or as one of the named Google accounts."""

from __future__ import annotations

import hmac
import os
import secrets
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from tpukit.core.clock import SYSTEM
from tpukit.core.errors import Denied, Invalid, Unauthenticated

REMEMBERED_SECONDS = 60.0
"""Seconds for which a verified Google token is not verified again."""
REMEMBERED = 1000
SHORTEST_TOKEN = 16
_HINT = "send the header `Authorization: Bearer TOKEN`"


class Access:
    """Access checks by token or Google account. Thread-safe."""

    def __init__(
        self,
        token: str = "",
        emails: Sequence[str] = (),
        verify: Callable[[str], str] | None = None,
        now: Callable[[], float] = SYSTEM.monotonic,
    ) -> None:
        """Initialize; `verify` returns the verified address of an identity token, or raises Unauthenticated."""
        if not token and not (emails and verify):
            raise Invalid("no caller could use the queue: pass a token file, or accounts with --allow")
        self._token, self._emails, self._verify, self._now = token, frozenset(emails), verify, now
        self._verified: dict[str, tuple[float, str]] = {}

    def check(self, header: str) -> str:
        """Return the caller's name for the records.

        Raises Unauthenticated if the caller is unknown, Denied if it is not allowed.
        """
        scheme, _, shown = header.partition(" ")
        shown = shown.strip()
        if scheme.lower() != "bearer" or not shown:
            raise Unauthenticated("the request has no token", hint=_HINT)
        if self._token and hmac.compare_digest(shown.encode("utf-8", "replace"), self._token.encode()):
            return "token"
        if self._verify is None:
            raise Unauthenticated("the token is not valid for this service", hint=_HINT)
        email = self._email(shown)
        if email not in self._emails:
            raise Denied(
                f"{email} may not use this queue", hint="the operator of the queue allows accounts with --allow"
            )
        return email

    def _email(self, shown: str) -> str:
        assert self._verify
        now = self._now()
        due, email = self._verified.get(shown, (0.0, ""))
        if not email or now >= due:
            email = self._verify(shown)
            if len(self._verified) >= REMEMBERED:
                self._verified = {}
            self._verified[shown] = (now + REMEMBERED_SECONDS, email)
        return email


def read_token(path: Path) -> str:
    """Read the token from a file that may be provided from outside, such as a Kubernetes Secret."""
    try:
        token = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise Invalid(f"the token cannot be read from {path}: {error}") from error
    if len(token) < SHORTEST_TOKEN or not token.isascii() or any(letter.isspace() for letter in token):
        hint = "`openssl rand -hex 32` creates one"
        raise Invalid(f"{path} holds no token: {SHORTEST_TOKEN} or more letters and digits in one line", hint=hint)
    return token


def own_token(path: Path) -> str:
    """Return the token of this machine's front end, creating it if needed; only its user can read it.

    The file appears whole or not at all: of two processes that start at once, neither may read a partial token.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists():
        descriptor, new = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)  # 0600
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write(secrets.token_urlsafe(32) + "\n")
            with suppress(FileExistsError):
                os.link(new, path)
        finally:
            Path(new).unlink()
    return read_token(path)
