"""Making one of Google's clients and asking it: over REST, at Google or where the environment says otherwise."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, TypeVar

from tpukit.cloud.refusals import translated
from tpukit.errors import Denied, TpukitError

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
