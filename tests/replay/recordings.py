"""Read recorded conversations. A file has exchanges; an exchange is a request and the answer from Google."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

FILE = "_http.log"
_BETWEEN = re.compile(r"\n---\n+(?=(?:GET|POST|PUT|PATCH|DELETE) )")
_REQUEST = re.compile(r"(GET|POST|PUT|PATCH|DELETE) (\S+)")
_STATUS = re.compile(r"([1-5][0-9][0-9]) ?[A-Za-z ]*")
_NOT_FOR_GOOGLE = ("alt", "prettyPrint", "fields", "$alt")
"""Query parameters about the form of the answer, which the sandbox's clients do not send."""


@dataclass(frozen=True, slots=True)
class Exchange:
    method: str
    host: str
    path: str  # without a leading slash
    query: dict[str, str]
    body: Any  # None: no body
    status: int
    answer: Any  # None: no JSON


def files(folder: Path) -> list[Path]:
    return sorted(folder.rglob(FILE))


def read(file: Path) -> list[Exchange]:
    """Return the exchanges of a file. Exchanges other than HTTP with JSON (gRPC) are left out."""
    parts = _BETWEEN.split(file.read_text(encoding="utf-8"))
    return [exchange for part in parts if (exchange := _exchange(part))]


def _exchange(text: str) -> Exchange | None:
    first, _, rest = text.lstrip("\n").partition("\n")
    found = _REQUEST.fullmatch(first.strip())
    if not found:
        return None
    blocks = list(_blocks(rest))
    at = next((number for number, block in enumerate(blocks) if _STATUS.fullmatch(block.partition("\n")[0])), None)
    if at is None:
        return None
    status = int(blocks[at][:3])
    url = urlsplit(found[2])
    query = {name: value for name, value in parse_qsl(url.query, keep_blank_values=True) if name not in _NOT_FOR_GOOGLE}
    sent, got = "\n\n".join(blocks[1:at]), "\n\n".join(blocks[at + 1 :])
    path = url.path.lstrip("/")
    return Exchange(found[1], url.netloc, unquote(path), query, _json(sent), status, _json(got))


def _blocks(text: str) -> Iterator[str]:
    """Yield the blocks between blank lines: headers, body, status with headers, body."""
    for block in re.split(r"\n\n+", text):
        if block.strip():
            yield block.strip("\n")


def _json(text: str) -> Any:
    if not text.strip():
        return None
    try:
        return json.loads(text)
    except ValueError:
        return None
