"""Cloud Storage: the ways of writing an object: at once, with a description, or in pieces that may be resumed."""

from __future__ import annotations

import json
import re

from tpukit.sandbox.google import object_versions, schemas, storage_objects
from tpukit.sandbox.google.api import Answer, Api, Call
from tpukit.sandbox.google.cloud import Cloud
from tpukit.sandbox.google.sources import GUESS
from tpukit.sandbox.google.state import Doc
from tpukit.sandbox.google.storage import SERVICE, check_preconditions, find_bucket

PATH = "storage/v1/b/{bucket}/o"

api = Api("upload", service=SERVICE, own_front=True)
resumable = Api("resumable", service=SERVICE, own_front=True)  # where gcloud begins uploads of large files


@api.on("POST PUT", PATH)
@resumable.on("POST PUT", "upload/" + PATH)
def _upload(cloud: Cloud, call: Call) -> Answer | Doc:
    find_bucket(cloud, call["bucket"])
    if "upload_id" in call.query:
        return _piece(cloud, call)
    kind = call.query.get("uploadType", "")
    if kind == "resumable":
        return _begin(cloud, call)
    if kind == "multipart":
        about, content = _parts(call)
    elif kind == "media":
        about, content = {"contentType": call.request.headers.get("content-type")}, call.request.content
    else:
        raise GUESS.invalid(f"Invalid uploadType {kind!r}: write media, multipart or resumable.")
    return _store(cloud, call, _named(call, about), content)


def _named(call: Call, about: Doc) -> Doc:
    known = schemas.check("storage", "Object", about, drop_unknown=True)
    return {**known, "name": call.query.get("name") or known.get("name", "")}


def _store(cloud: Cloud, call: Call, about: Doc, content: bytes) -> Doc:
    storage_objects.may_write(cloud, call, call["bucket"], about["name"])
    check_preconditions(call.query, object_versions.live(cloud, call["bucket"], about["name"]))
    return storage_objects.shown(call, object_versions.store(cloud, find_bucket(cloud, call["bucket"]), about, content))


def _parts(call: Call) -> tuple[Doc, bytes]:
    """The two parts of a multipart body. The line break before a boundary belongs to the boundary."""
    found = re.search(r"boundary=[\"']?([^\"';]+)", call.request.headers.get("content-type", ""))
    parts = call.request.content.split(b"--" + found[1].encode()) if found else []
    if len(parts) != 4:
        raise GUESS.invalid("A multipart upload has exactly two parts.")
    (_, about), (head, content) = (_split(part) for part in parts[1:3])
    described = json.loads(about)
    kind = re.search(rb"content-type:\s*([^\r\n]+)", head, re.IGNORECASE)
    if kind and not described.get("contentType"):
        described["contentType"] = kind[1].decode()
    return described, content


def _split(part: bytes) -> tuple[bytes, bytes]:
    gap = re.search(rb"\r?\n\r?\n", part)
    if gap is None:
        raise GUESS.invalid("A part of a multipart upload has no body.")
    return part[: gap.start()], re.sub(rb"\r?\n\Z", b"", part[gap.end() :])


def _begin(cloud: Cloud, call: Call) -> Answer:
    about = json.loads(call.request.content or b"{}")
    about = _named(call, about)
    about.setdefault("contentType", call.request.headers.get("x-upload-content-type"))
    storage_objects.may_write(cloud, call, call["bucket"], about["name"])
    check_preconditions(call.query, object_versions.live(cloud, call["bucket"], about["name"]))
    upload = f"{cloud.state.next():016x}"
    conditions = {key: value for key, value in call.query.items() if key.startswith("if")}
    cloud.state.put("upload", upload, {"bucket": call["bucket"], "about": about, "query": conditions})
    location = f"{call.request.base}/upload/storage/v1/b/{call['bucket']}/o?uploadType=resumable&upload_id={upload}"
    return Answer(200, b"", {"location": location, "x-guploader-uploadid": upload})


def _piece(cloud: Cloud, call: Call) -> Answer | Doc:
    upload = call.query["upload_id"]
    session = cloud.state.get("upload", upload)
    if session is None:
        raise GUESS.not_found("No such upload session.")
    have = cloud.state.pieces_end(upload)
    content = call.request.content
    told = re.fullmatch(r"bytes (?:(\d+)-(\d+)|\*)/(\d+|\*)", call.request.headers.get("content-range", ""))
    if not told or told[1]:
        start = int(told[1]) if told else 0
        if start > have:
            raise GUESS.refused(503, f"Pieces must follow each other: byte {have} is the next.")
        cloud.state.put_piece(upload, start, content)
        have = start + len(content)
    total = have if not told else None if told[3] == "*" else int(told[3])
    if total is None or have < total:
        return Answer(308, b"", {"range": f"bytes=0-{have - 1}"} if have else {})
    check_preconditions(session["query"], object_versions.live(cloud, session["bucket"], session["about"]["name"]))
    whole = cloud.state.pieces(upload)
    cloud.state.delete("upload", upload)
    cloud.state.delete_pieces(upload)
    return storage_objects.shown(
        call, object_versions.store(cloud, find_bucket(cloud, session["bucket"]), session["about"], whole)
    )


@api.on("DELETE", PATH)
def _cancel(cloud: Cloud, call: Call) -> Answer:
    upload = call.query.get("upload_id", "")
    cloud.state.delete("upload", upload)
    cloud.state.delete_pieces(upload)
    return Answer(499, b"")
