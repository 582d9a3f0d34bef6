"""Objects in Cloud Storage: writing and reading one, with one request.

https://cloud.google.com/storage/docs/json_api/v1/objects/insert (a simple upload),
https://cloud.google.com/storage/docs/json_api/v1/objects/get (alt=media). STORAGE_EMULATOR_HOST names an
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
    bucket, name = _parts(address)
    url = f"{_host()}/upload/storage/v1/b/{bucket}/o?uploadType=media&name={name}"
    _ask("POST", url, f"writing {address}", data=data, headers={"Content-Type": content_type})


def download(address: str) -> bytes:
    """What is in gs://BUCKET/NAME. NotFound where there is nothing."""
    bucket, name = _parts(address)
    return _ask("GET", f"{_host()}/storage/v1/b/{bucket}/o/{name}?alt=media", f"reading {address}")


def _parts(address: str) -> tuple[str, str]:
    bucket, _, name = address.removeprefix("gs://").partition("/")
    if not address.startswith("gs://") or not bucket or not name:
        raise Invalid(f"{address!r} is no gs://BUCKET/NAME")
    return quote(bucket), quote(name, safe="")


def _host() -> str:
    return os.environ.get("STORAGE_EMULATOR_HOST", "").rstrip("/") or "https://storage.googleapis.com"


def _ask(method: str, url: str, asked: str, **options: Any) -> bytes:
    try:
        answer = _session().request(method, url, timeout=SECONDS, **options)
        if answer.status_code >= 300:
            raise _Refusal(answer.status_code, answer.text[:500])
    except Exception as error:
        raise translated(error, asked) from error
    return bytes(answer.content)


def _session() -> Any:
    if os.environ.get("STORAGE_EMULATOR_HOST"):
        import requests

        return requests.Session()
    import google.auth
    from google.auth.transport.requests import AuthorizedSession

    credentials, _ = google.auth.default(scopes=[_SCOPE])
    return AuthorizedSession(credentials)
