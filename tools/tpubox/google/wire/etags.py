"""Etags: checksums of what is shown, so that a change made from what somebody read long ago is not made.

"This checksum is computed by the server based on the value of other fields" (Firestore's and GKE's documents): so it is
computed when something is shown, also after a change that was made at the end of an operation.
"""

from __future__ import annotations

import base64
import json
import zlib

from tpubox.google.wire.api import public
from tpubox.google.wire.sources import GUESS
from tpubox.google.wire.state import Doc

_PASSING = ("conditions", "status", "statusMessage")
"""What comes and goes by itself. That it is no part of the checksum is a guess: else nobody could change a pool with an
etag that was read while it was made."""


def shown(doc: Doc) -> Doc:
    """As others see it, with its etag."""
    return {**public(doc), "etag": of(doc)}


def of(doc: Doc) -> str:
    """An etag that was stored is a mark by which a thing differs from an earlier one of its name."""
    seen = {key: value for key, value in public(doc).items() if key not in _PASSING}
    return f"{zlib.crc32(json.dumps(seen, sort_keys=True).encode()):08x}"


def check(asked: str | None, doc: Doc, *, code: int = 409, status: str = "ABORTED") -> None:
    """Refuses a change that was made from another version of a document. The words are a guess; ABORTED is what
    https://google.aip.dev/154 wants where an API's own pages say nothing."""
    if asked and asked != of(doc):
        name = doc.get("name", "the resource")
        raise GUESS.refused(
            code, f"The etag {asked} is not the current one of {name}.", status=status, reason="aborted"
        )


def of_numbers(*numbers: int) -> str:
    """As Cloud Storage writes them: the numbers of a version as a message of Protocol Buffers, CAE= where it is 1."""
    content = b"".join(bytes([(place << 3)]) + _varint(number) for place, number in enumerate(numbers, start=1))
    return base64.b64encode(content).decode()


def _varint(number: int) -> bytes:
    content = bytearray()
    while number > 0x7F:
        content.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*content, number])
