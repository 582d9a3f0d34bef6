"""Cloud Storage: resumable uploads, which continue after a lost connection.

https://cloud.google.com/storage/docs/performing-resumable-uploads
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from tpubox.google.storage import object_fields, object_versions
from tpubox.google.storage import objects as storage_objects
from tpubox.google.storage import preconditions as storage_preconditions
from tpubox.google.storage.buckets import find_bucket
from tpubox.google.wire.api import Answer, Call
from tpubox.google.wire.cloud import Cloud
from tpubox.google.wire.sources import GUESS, UPLOAD_PIECE
from tpubox.google.wire.state import Doc

_UNIT = 256 << 10
"""Bytes; Cloud Storage keeps multiples of it, except for the last piece."""
_KNOWN_SECONDS = 3600.0
"""Time for which the object of a completed upload is returned to requests for the upload.

Google's uploads expire after a week.
"""


@dataclass(frozen=True, slots=True)
class _Piece:
    """Range of a request's bytes.

    `total` is None while it is unknown; `start` is None if the caller only asks for the progress.
    """

    start: int | None
    total: int | None

    def is_last(self, length: int) -> bool:
        return self.start is None or self.start + length == self.total


def begin(cloud: Cloud, call: Call) -> Answer:
    about = object_fields.uploaded(call, object_fields.parsed(call.request.content))
    about.setdefault("contentType", call.request.headers.get("x-upload-content-type"))
    storage_objects.may_write(cloud, call, call["bucket"], about["name"])
    storage_preconditions.check(call.query, object_versions.live(cloud, call["bucket"], about["name"]))
    upload = f"{cloud.state.next():016x}"
    conditions = {key: value for key, value in call.query.items() if key.startswith("if")}
    cloud.state.put("upload", upload, {"bucket": call["bucket"], "about": about, "query": conditions})
    location = f"{call.request.base}/upload/storage/v1/b/{call['bucket']}/o?uploadType=resumable&upload_id={upload}"
    return Answer(200, b"", {"location": location, "x-guploader-uploadid": upload})


def go_on(cloud: Cloud, call: Call) -> Answer | Doc:
    upload = call.query["upload_id"]
    if ended := cloud.state.get("ended_upload", upload):
        # The response to the last piece may have been lost.
        return storage_objects.shown(call, find_bucket(cloud, call["bucket"]), ended["object"])
    session = cloud.state.get("upload", upload)
    if session is None:
        raise GUESS.not_found("No such upload session.")
    piece = _told(call)
    have = _take(cloud, upload, piece, call.request.content)
    if piece.total is None or have < piece.total:
        return Answer(308, b"", {"range": f"bytes=0-{have - 1}"} if have else {})
    if have > piece.total:
        raise GUESS.invalid(f"Invalid request.  {have} bytes were uploaded already, which is more than {piece.total}.")
    return _end(cloud, call, upload, session)


def cancel(cloud: Cloud, call: Call) -> Answer:
    upload = call.query.get("upload_id", "")
    _forget(cloud, upload)
    cloud.state.delete("ended_upload", upload)
    return Answer(499, b"")


def _told(call: Call) -> _Piece:
    header, length = call.request.headers.get("content-range", ""), len(call.request.content)
    if not header:
        return _Piece(0, length)
    told = re.fullmatch(r"bytes (?:(\d+)-(\d+|\*)|\*)/(\d+|\*)", header)
    if not told:
        raise GUESS.invalid("Failed to parse Content-Range header.")
    total = None if told[3] == "*" else int(told[3])
    if told[1] is None:
        return _Piece(None, total)
    start = int(told[1])
    if told[2] == "*":  # the whole rest, as Google's client for Node.js writes it
        return _Piece(start, start + length if total is None else total)
    last = int(told[2])
    if last < start or (total is not None and last >= total):
        raise GUESS.invalid("Failed to parse Content-Range header.")
    if last - start + 1 != length:
        raise GUESS.invalid(
            f"Invalid request.  There were {length} byte(s) in the request body.  There should have been "
            f"{last - start + 1} byte(s) (starting at offset {start} and ending at offset {last}) according to the "
            "Content-Range header."
        )
    return _Piece(start, total)


def _take(cloud: Cloud, upload: str, piece: _Piece, content: bytes) -> int:
    """Store a piece and return the number of bytes received. Bytes that are sent again are ignored."""
    have = cloud.state.pieces_end(upload)
    if piece.start is None:
        return have
    if piece.start > have:
        raise GUESS.refused(503, f"Pieces must follow each other: byte {have} is the next.")
    end = piece.start + len(content)
    if not piece.is_last(len(content)):
        if len(content) < _UNIT:
            raise UPLOAD_PIECE.invalid(
                f"Invalid request.  The number of bytes uploaded is required to be equal or greater than {_UNIT}, "
                f"except for the final request (it's recommended to be the exact multiple of {_UNIT}).  The received "
                f"request contained {len(content)} bytes, which does not meet this requirement."
            )
        end -= end % _UNIT
    if end > have:
        cloud.state.put_piece(upload, have, content[have - piece.start : end - piece.start])
    return max(have, end)


def _end(cloud: Cloud, call: Call, upload: str, session: Doc) -> Doc:
    bucket, about = find_bucket(cloud, session["bucket"]), session["about"]
    storage_preconditions.check(session["query"], object_versions.live(cloud, bucket["name"], about["name"]))
    made = object_versions.store(cloud, bucket, about, cloud.state.pieces(upload))
    _forget(cloud, upload)
    now = cloud.clock.now()
    cloud.state.put("ended_upload", upload, {"object": made, "until": now + _KNOWN_SECONDS})
    while (oldest := cloud.state.first("ended_upload", "", "")) and _until(cloud, oldest) < now:
        cloud.state.delete("ended_upload", oldest)
    return storage_objects.shown(call, bucket, made)


def _until(cloud: Cloud, upload: str) -> float:
    found = cloud.state.get("ended_upload", upload)
    return float(found["until"]) if found else 0.0


def _forget(cloud: Cloud, upload: str) -> None:
    cloud.state.delete("upload", upload)
    cloud.state.delete_pieces(upload)
