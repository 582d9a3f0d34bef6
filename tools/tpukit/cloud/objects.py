"""Objects in Cloud Storage: writing one, with one request.

https://cloud.google.com/storage/docs/json_api/v1/objects/insert (a simple upload). STORAGE_EMULATOR_HOST names an
emulator, as for Google's own clients.
"""

from __future__ import annotations

import os
from typing import Any
from urllib.parse import quote

from tpukit.cloud.refusals import translated
from tpukit.errors import Invalid

SECONDS = 60.0
_SCOPE = "https://www.googleapis.com/auth/devstorage.read_write"


class _Refusal(Exception):
    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code, self.message = code, message


def upload(address: str, data: bytes, content_type: str = "text/plain; charset=utf-8") -> None:
    """Write gs://BUCKET/NAME, over what is there."""
    bucket, _, name = address.removeprefix("gs://").partition("/")
    if not address.startswith("gs://") or not bucket or not name:
        raise Invalid(f"{address!r} is no gs://BUCKET/NAME")
    host = os.environ.get("STORAGE_EMULATOR_HOST", "").rstrip("/") or "https://storage.googleapis.com"
    url = f"{host}/upload/storage/v1/b/{quote(bucket)}/o?uploadType=media&name={quote(name, safe='')}"
    try:
        answer = _session().post(url, data=data, headers={"Content-Type": content_type}, timeout=SECONDS)
        if answer.status_code >= 300:
            raise _Refusal(answer.status_code, answer.text[:500])
    except Exception as error:
        raise translated(error, f"writing {address}") from error


def _session() -> Any:
    if os.environ.get("STORAGE_EMULATOR_HOST"):
        import requests

        return requests.Session()
    import google.auth
    from google.auth.transport.requests import AuthorizedSession

    credentials, _ = google.auth.default(scopes=[_SCOPE])
    return AuthorizedSession(credentials)
