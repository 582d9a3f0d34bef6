"""Write, read and list objects in Cloud Storage, with one request each.

https://cloud.google.com/storage/docs/json_api/v1/objects/insert (a simple upload),
https://cloud.google.com/storage/docs/json_api/v1/objects/get (alt=media). STORAGE_EMULATOR_HOST selects an emulator, as
for Google's own clients.
"""

from __future__ import annotations

import base64
import hashlib
import json
import logging
import os
import random
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from tpukit.core import fence, retry
from tpukit.core.clock import SYSTEM
from tpukit.core.errors import Conflict, Invalid, LeaseLost, Transient
from tpukit.google.refusals import translated

SECONDS = 60.0
TRIES = 6
LONGEST_PAUSE = 30.0
"""Longest pause in seconds, even if Cloud Storage asks for more."""
_SCOPE = "https://www.googleapis.com/auth/devstorage.read_write"


class _Refusal(Exception):
    def __init__(self, response: Any) -> None:
        self.response, self.code, self.message = response, response.status_code, response.text[:500]
        super().__init__(self.message)


def upload(address: str, data: bytes, content_type: str = "text/plain; charset=utf-8") -> None:
    """Write gs://BUCKET/NAME, replacing an existing object."""
    bucket, name = _parts(address)
    url = f"{_host()}/upload/storage/v1/b/{bucket}/o?uploadType=media&name={name}"
    _ask("POST", url, f"writing {address}", data=data, headers={"Content-Type": content_type})


def create(address: str, data: bytes, content_type: str = "text/plain; charset=utf-8") -> None:
    """Write gs://BUCKET/NAME unless it exists, for example from a request whose answer was lost.

    Needs no permission to replace or to delete.
    """
    bucket, name = _parts(address)
    url = f"{_host()}/upload/storage/v1/b/{bucket}/o?uploadType=media&ifGenerationMatch=0&name={name}"
    try:
        _ask("POST", url, f"writing {address}", data=data, headers={"Content-Type": content_type})
    except LeaseLost:
        raise
    except Conflict:  # it exists
        pass


def download(address: str) -> bytes:
    """Return the content of gs://BUCKET/NAME. Raise NotFound if it does not exist."""
    bucket, name = _parts(address)
    return _ask("GET", f"{_host()}/storage/v1/b/{bucket}/o/{name}?alt=media", f"reading {address}")


def upload_file(address: str, file: Path) -> None:
    """Write gs://BUCKET/NAME from a file of any size, unless it is there already.

    Raise Transient if the received content differs from the file.
    """
    sum_ = _md5(file)
    if listed(address).get("", ("", 0))[0] == sum_:
        return
    bucket, name = _parts(address)
    url = f"{_host()}/upload/storage/v1/b/{bucket}/o?uploadType=media&name={name}"
    with file.open("rb") as content:
        answer = _ask(
            "POST", url, f"writing {address}", data=content, headers={"Content-Type": "application/octet-stream"}
        )
    if json.loads(answer)["md5Hash"] != sum_:
        raise Transient(f"{address} differs from {file}: the upload was damaged, or the file changed meanwhile")


def names(address: str, most: int) -> list[str]:
    """Return the names of up to `most` objects below gs://BUCKET/PREFIX, without the prefix."""
    return [name for name, _ in islice(_items(address, "name"), most)]


def listed(address: str) -> dict[str, tuple[str, int]]:
    """Return MD5 and size of all objects below gs://BUCKET/PREFIX, by name without the prefix."""
    found = _items(address, "name,size,md5Hash")
    return {name: (one.get("md5Hash", ""), int(one["size"])) for name, one in found}


def metadata(address: str) -> dict[str, Mapping[str, str]]:
    """Return the custom metadata of all objects below gs://BUCKET/PREFIX, by name without the prefix."""
    return {name: one.get("metadata", {}) for name, one in _items(address, "name,metadata")}


def _items(address: str, fields: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    bucket, _, prefix = address.removeprefix("gs://").partition("/")
    page = ""
    while True:
        query = urlencode({"prefix": prefix, "fields": f"items({fields}),nextPageToken", "pageToken": page})
        answer = json.loads(_ask("GET", f"{_host()}/storage/v1/b/{quote(bucket)}/o?{query}", f"listing {address}"))
        yield from ((one["name"].removeprefix(prefix), one) for one in answer.get("items", ()))
        page = answer.get("nextPageToken", "")
        if not page:
            return


def _md5(file: Path) -> str:
    """Return the MD5 as Cloud Storage writes it: https://cloud.google.com/storage/docs/data-validation."""
    with file.open("rb") as content:
        digest = hashlib.file_digest(content, lambda: hashlib.md5(usedforsecurity=False))
    return base64.b64encode(digest.digest()).decode()


def _parts(address: str) -> tuple[str, str]:
    bucket, _, name = address.removeprefix("gs://").partition("/")
    if not address.startswith("gs://") or not bucket or not name:
        raise Invalid(f"{address!r} is not of the form gs://BUCKET/NAME")
    return quote(bucket), quote(name, safe="")


def _host() -> str:
    named = os.environ.get("STORAGE_EMULATOR_HOST") or os.environ.get("API_ENDPOINT_OVERRIDE") or ""
    return named.rstrip("/") or "https://storage.googleapis.com"


def _ask(method: str, url: str, asked: str, **options: Any) -> bytes:
    """Send a request, and retry it on transient errors: every request here is safe to repeat.

    Each try checks the fence, and takes no longer than what is left of the lease.
    """
    try:
        session = _session()
    except Exception as error:
        raise translated(error, asked) from error
    data: Any = options.get("data")

    def ask() -> bytes:
        if hasattr(data, "seek"):
            data.seek(0)
        return _asked_once(session, method, url, asked, **options)

    growing = (retry.growing(tries, 0.5, LONGEST_PAUSE) for tries in range(1, TRIES))
    pauses = (retry.spread(pause, random.random()) for pause in growing)  # noqa: S311
    return retry.call(ask, pauses, SYSTEM.sleep, longest=LONGEST_PAUSE)


def _asked_once(session: Any, method: str, url: str, asked: str, **options: Any) -> bytes:
    seconds = fence.deadline(SECONDS)
    try:
        answer = session.request(method, url, timeout=seconds, **options)
        if answer.status_code >= 300:
            raise _Refusal(answer)
    except Exception as error:
        raise translated(error, asked) from error
    return bytes(answer.content)


def _session() -> Any:
    if os.environ.get("STORAGE_EMULATOR_HOST"):
        import requests

        return requests.Session()
    import google.auth
    from google.auth.transport.requests import AuthorizedSession

    logging.getLogger("google.auth._default").setLevel(logging.ERROR)  # the error has the same warning
    credentials, _ = google.auth.default(scopes=[_SCOPE])
    return AuthorizedSession(credentials)
