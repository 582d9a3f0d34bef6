"""Etags: checksums of the visible fields, to refuse changes based on an outdated read.

"This checksum is computed by the server based on the value of other fields" (Firestore's and GKE's documents): it is
therefore computed on each read, and is also right after a change at the end of an operation.
"""

from __future__ import annotations

import base64
import json
import zlib

from tpubox.google.wire.api import public
from tpubox.google.wire.sources import GUESS
from tpubox.google.wire.state import Doc

_PASSING = ("conditions", "status", "statusMessage")
"""Fields that change by themselves.

Leaving them out of the checksum is a guess: otherwise a pool could not be changed with an etag read during its
creation.
"""


def shown(doc: Doc) -> Doc:
    """Return the public document with its etag."""
    return {**public(doc), "etag": of(doc)}


def of(doc: Doc) -> str:
    """Return the etag. A stored one is part of the checksum, to distinguish resources that had the same name."""
    seen = {key: value for key, value in public(doc).items() if key not in _PASSING}
    return f"{zlib.crc32(json.dumps(seen, sort_keys=True).encode()):08x}"


def check(asked: str | None, doc: Doc, *, code: int = 409, status: str = "ABORTED") -> None:
    """Refuse a change based on another version of a document.

    The error text is a guess; https://google.aip.dev/154 requires ABORTED where an API's own pages do not specify it.
    """
    if asked and asked != of(doc):
        name = doc.get("name", "the resource")
        raise GUESS.refused(
            code, f"The etag {asked} is not the current one of {name}.", status=status, reason="aborted"
        )


def of_numbers(*numbers: int) -> str:
    """Return an etag as Cloud Storage writes it: the version numbers as a Protocol Buffers message, CAE= for 1."""
    content = b"".join(bytes([(place << 3)]) + _varint(number) for place, number in enumerate(numbers, start=1))
    return base64.b64encode(content).decode()


def _varint(number: int) -> bytes:
    content = bytearray()
    while number > 0x7F:
        content.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*content, number])
