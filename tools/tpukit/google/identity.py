"""Identify a caller by a Google identity token.

https://cloud.google.com/docs/authentication/get-id-token: `gcloud auth print-identity-token` or the metadata server of
a service account makes a token for an audience; Google signs it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tpukit.core.clock import SYSTEM
from tpukit.core.errors import TpukitError, Unauthenticated
from tpukit.google.refusals import translated

KEYS_SECONDS = 600.0
"""Time to cache Google's keys, so that wrong tokens do not cause a request each.

Keys change every few days (https://developers.google.com/identity/gsi/web/guides/verify-google-id-token).
"""
_ISSUERS = ("accounts.google.com", "https://accounts.google.com")


class IdentityTokens:
    """Verifier of tokens for `audience`. `transport` fetches Google's keys (default: its own client)."""

    def __init__(self, audience: str, transport: Any = None, now: Callable[[], float] = SYSTEM.monotonic) -> None:
        self._audience, self._transport, self._now = audience, transport, now
        self._keys: dict[str, tuple[float, Any]] = {}

    def email(self, token: str) -> str:
        """Return the address in a token.

        Raise Unauthenticated if Google did not sign it for this audience, or it expired.
        """
        from google.auth import exceptions
        from google.oauth2 import id_token

        try:
            claims = id_token.verify_oauth2_token(token, self._get_transport(), self._audience)
        except exceptions.TransportError as error:
            raise translated(error, "getting the keys of Google") from error
        except TpukitError:
            raise
        except Exception as error:  # any error: the token is untrusted input
            raise Unauthenticated("not an identity token of Google for this service") from error
        if claims.get("iss") not in _ISSUERS or claims.get("email_verified") is not True:
            raise Unauthenticated("the token has no verified e-mail address")
        return str(claims.get("email", ""))

    def _get_transport(self) -> Any:
        if self._transport is None:
            from google.auth.transport.requests import Request

            self._transport = Request()
        return self._cached

    def _cached(self, url: str, method: str = "GET", **options: Any) -> Any:
        due, answer = self._keys.get(url, (0.0, None))
        if answer is None or self._now() >= due:
            answer = self._transport(url, method=method, **options)
            if answer.status == 200:
                self._keys[url] = (self._now() + KEYS_SECONDS, answer)
        return answer
