"""Create Google's clients and call them over REST, at Google's address or one from the environment."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from tpukit.core.errors import Denied, TpukitError
from tpukit.google.refusals import translated

TOKEN = "GOOGLE_OAUTH_ACCESS_TOKEN"  # noqa: S105 (a name)
SECONDS = 60.0
"""Timeout of a call. A create without an answer may have succeeded: retry it under the same name."""
T = TypeVar("T")


def sign_in(client: Callable[..., T], variable: str, version: str) -> T:
    """Create a client.

    `variable` may hold another address than Google's, in Terraform's form: with the API's `version` at its end.
    """
    from google.api_core.client_options import ClientOptions

    endpoint = os.environ.get(variable, "").rstrip("/").removesuffix(f"/{version}")
    options: dict[str, Any] = {"transport": "rest"}
    if token := os.environ.get(TOKEN, ""):
        from google.oauth2.credentials import Credentials

        options["credentials"] = Credentials(token=token)
    elif endpoint.startswith("http:"):
        raise Denied(f"no token for {endpoint}", hint=f"set {TOKEN}, or unset {variable} to ask Google itself")
    if endpoint:
        options["client_options"] = ClientOptions(api_endpoint=endpoint)
    return ask("signing in to Google Cloud", lambda: client(**options))


def ask(asked: str, call: Callable[[], T]) -> T:
    """Return the result of a call. Raise its errors as errors of tpukit that name what was `asked`."""
    try:
        return call()
    except TpukitError:
        raise
    except Exception as error:
        raise translated(error, asked) from error


def address(variable: str, google: str) -> str:
    """Return the address of an API without its own client: Google's, or the one in a variable."""
    return os.environ.get(variable, google).rstrip("/") + "/"


def session(scopes: Sequence[str]) -> Any:
    """Return a session that signs requests, for an API without its own client."""
    from google.auth.transport.requests import AuthorizedSession

    if token := os.environ.get(TOKEN, ""):
        from google.oauth2.credentials import Credentials

        return AuthorizedSession(Credentials(token=token))
    import google.auth

    credentials, _ = ask("signing in to Google Cloud", lambda: google.auth.default(scopes=list(scopes)))
    return AuthorizedSession(credentials)


def ask_json(asked: str, call: Callable[[], Any]) -> dict[str, Any]:
    """Return the JSON document of a session's response."""
    from google.api_core.exceptions import from_http_response

    def answer() -> dict[str, Any]:
        response = call()
        if response.status_code >= 300:
            raise from_http_response(response)
        found: dict[str, Any] = response.json()
        return found

    return ask(asked, answer)
