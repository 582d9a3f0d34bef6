"""Making one of Google's clients and asking it: over REST, at Google or where the environment says otherwise."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from tpukit.core.errors import Denied, TpukitError
from tpukit.google.refusals import translated

TOKEN = "GOOGLE_OAUTH_ACCESS_TOKEN"  # noqa: S105 (a name)
SECONDS = 60.0
"""How long an answer may take. A create that was not answered may have been done: ask again under the same name."""
T = TypeVar("T")


def sign_in(client: Callable[..., T], variable: str, version: str) -> T:
    """`variable` may hold another address than Google's, as Terraform takes it: with the API's `version` at its end."""
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
    """What a call gives; what it raises becomes an error of tpukit, with what was `asked`."""
    try:
        return call()
    except TpukitError:
        raise
    except Exception as error:
        raise translated(error, asked) from error


def address(variable: str, google: str) -> str:
    """Of an API without a client of its own: Google's, or what a variable says."""
    return os.environ.get(variable, google).rstrip("/") + "/"


def session(scopes: Sequence[str]) -> Any:
    """For such an API: it signs what is sent."""
    from google.auth.transport.requests import AuthorizedSession

    if token := os.environ.get(TOKEN, ""):
        from google.oauth2.credentials import Credentials

        return AuthorizedSession(Credentials(token=token))
    import google.auth

    credentials, _ = ask("signing in to Google Cloud", lambda: google.auth.default(scopes=list(scopes)))
    return AuthorizedSession(credentials)


def ask_json(asked: str, call: Callable[[], Any]) -> dict[str, Any]:
    """The document that a call of a session answers with."""
    from google.api_core.exceptions import from_http_response

    def answer() -> dict[str, Any]:
        response = call()
        if response.status_code >= 300:
            raise from_http_response(response)
        found: dict[str, Any] = response.json()
        return found

    return ask(asked, answer)
