"""A client for Cloud Logging's REST API: authentication, errors and retries.

It uses application default credentials if there are any, else gcloud. The environment variables that point Google's
Terraform provider to an emulator apply here too.
"""

from __future__ import annotations

import http.client
import json
import os
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from typing import Any

from tpukit.core.clock import Clock
from tpukit.core.errors import Denied, Invalid, NotFound, TpukitError, Transient

ENDPOINT = "GOOGLE_LOGGING_CUSTOM_ENDPOINT"
TOKEN = "GOOGLE_OAUTH_ACCESS_TOKEN"  # noqa: S105 (a name)
_GOOGLE = "https://logging.googleapis.com"
_SCOPE = "https://www.googleapis.com/auth/logging.read"
_SECONDS = 20.0
_WAITS = (1.0, 4.0)


class LoggingApi:
    def __init__(self, clock: Clock) -> None:
        elsewhere = os.environ.get(ENDPOINT, "").rstrip("/").removesuffix("/v2")
        self._endpoint = elsewhere or _GOOGLE
        self._clock = clock
        self._identity: dict[str, str] = {}

    def ask(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Send a request, and retry transient errors, so that one of them does not discard a long log."""
        for wait in _WAITS:
            try:
                return self._ask(path, body)
            except Transient:
                self._clock.sleep(wait)
        return self._ask(path, body)

    def _ask(self, path: str, body: Mapping[str, Any], *, again: bool = True) -> dict[str, Any]:
        fresh = not self._identity
        self._identity = self._identity or identity(self._endpoint)
        headers = {"Content-Type": "application/json", **self._identity}
        content = json.dumps(body).encode()
        request = urllib.request.Request(f"{self._endpoint}/v2/{path}", content, headers)  # noqa: S310  https, or typed
        try:
            with urllib.request.urlopen(request, timeout=_SECONDS) as answer:  # noqa: S310
                page: dict[str, Any] = json.load(answer)
                return page
        except urllib.error.HTTPError as error:
            with error:
                if error.code == 401 and not fresh and again:
                    self._identity = {}  # a token lives for an hour
                    return self._ask(path, body, again=False)
                raise _translated(error.code, _explanation(error)) from error
        except (OSError, ValueError, http.client.HTTPException) as error:
            raise Transient(f"Cloud Logging does not respond: {error}") from error


def _translated(code: int, said: str) -> TpukitError:
    if code == 401:
        return Denied(
            f"not signed in to Cloud Logging: {said}",
            hint="run `gcloud auth application-default login` to sign in",
        )
    if code == 403:
        return Denied(
            f"Cloud Logging denies you the logs of this project: {said}",
            hint="ask its owner for roles/logging.viewer, and whether logging.googleapis.com is enabled",
        )
    if code == 404:
        return NotFound(f"not found in Cloud Logging: {said}")
    if code == 429 or code >= 500:
        return Transient(f"Cloud Logging is busy ({code}): {said}")
    return Invalid(f"Cloud Logging refuses the request ({code}): {said}")


def _explanation(error: urllib.error.HTTPError) -> str:
    try:
        text = error.read().decode(errors="replace")
        return str(json.loads(text)["error"]["message"])
    except (OSError, ValueError, KeyError, TypeError):
        return str(error.reason)


def identity(endpoint: str) -> dict[str, str]:
    """Return the authentication headers. Send Google's tokens over encrypted connections only."""
    own = os.environ.get(TOKEN, "")
    local = urllib.parse.urlsplit(endpoint).hostname in ("127.0.0.1", "localhost", "::1")
    encrypted = endpoint.startswith("https://")
    if own and (local or encrypted):
        return {"Authorization": f"Bearer {own}"}
    if not encrypted:
        raise Denied(f"no token for {endpoint}", hint=f"set {TOKEN}, or unset {ENDPOINT} to ask Google itself")
    return _default_identity() or {"Authorization": f"Bearer {_gcloud_token()}"}


def _default_identity() -> dict[str, str]:
    """Return headers from application default credentials; empty without them, or without Google's package."""
    try:
        import google.auth
        import google.auth.exceptions
        import google.auth.transport.requests
    except ImportError:
        return {}
    try:
        credentials, _ = google.auth.default(scopes=[_SCOPE])
        credentials.refresh(google.auth.transport.requests.Request())
    except google.auth.exceptions.TransportError as error:
        raise Transient(f"Google does not respond: {error}") from error
    except google.auth.exceptions.GoogleAuthError:
        return {}
    payer = getattr(credentials, "quota_project_id", None)
    return {"Authorization": f"Bearer {credentials.token}", **({"X-Goog-User-Project": payer} if payer else {})}


def _gcloud_token() -> str:
    argv = ["gcloud", "auth", "print-access-token", "--quiet"]
    hint = "run `gcloud auth login` to sign in"
    try:
        done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=_SECONDS)
    except FileNotFoundError as error:
        hint = "install gcloud, or google-auth with `gcloud auth application-default login`"
        raise Denied("this machine has no Google Cloud credentials", hint=hint) from error
    except subprocess.TimeoutExpired as error:
        raise Transient("gcloud gives no access token") from error
    if done.returncode or not done.stdout.strip():
        raise Denied(f"gcloud gives no access token: {done.stderr.strip()[-300:]}", hint=hint)
    return done.stdout.strip()
