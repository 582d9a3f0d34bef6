"""Cloud Storage: the kinds of upload: at once, with a description, or in resumable pieces."""

from __future__ import annotations

import re

from tpubox.google.storage import object_fields, object_versions, resumable_uploads
from tpubox.google.storage import objects as storage_objects
from tpubox.google.storage import preconditions as storage_preconditions
from tpubox.google.storage.buckets import SERVICE, check_acl, find_bucket
from tpubox.google.wire.api import Answer, Api, Call
from tpubox.google.wire.cloud import Cloud
from tpubox.google.wire.sources import GUESS
from tpubox.google.wire.state import Doc

PATH = "storage/v1/b/{bucket}/o"

api = Api("upload", service=SERVICE, own_front=True)
resumable = Api("resumable", service=SERVICE, own_front=True)  # where gcloud starts uploads of large files


@api.on("POST PUT", PATH)
@resumable.on("POST PUT", "upload/" + PATH)
def _upload(cloud: Cloud, call: Call) -> Answer | Doc:
    bucket = find_bucket(cloud, call["bucket"])
    if "upload_id" in call.query:
        return resumable_uploads.go_on(cloud, call)
    check_acl(call, bucket)
    kind = call.query.get("uploadType", "")
    if kind == "resumable":
        return resumable_uploads.begin(cloud, call)
    if kind == "multipart":
        about, content = _parts(call)
    elif kind == "media":
        about, content = {"contentType": call.request.headers.get("content-type")}, call.request.content
    else:
        raise GUESS.invalid(f"Invalid uploadType {kind!r}: write media, multipart or resumable.")
    return _store(cloud, call, object_fields.uploaded(call, about), content)


def _store(cloud: Cloud, call: Call, about: Doc, content: bytes) -> Doc:
    bucket = find_bucket(cloud, call["bucket"])
    storage_objects.may_write(cloud, call, bucket["name"], about["name"])
    storage_preconditions.check(call.query, object_versions.live(cloud, bucket["name"], about["name"]))
    return storage_objects.shown(call, bucket, object_versions.store(cloud, bucket, about, content))


def _parts(call: Call) -> tuple[Doc, bytes]:
    """Return the two parts of a multipart body. The line break before a boundary belongs to the boundary."""
    found = re.search(r"boundary=[\"']?([^\"';]+)", call.request.headers.get("content-type", ""))
    parts = call.request.content.split(b"--" + found[1].encode()) if found else []
    if len(parts) != 4:
        raise GUESS.invalid("A multipart upload has exactly two parts.")
    (_, about), (head, content) = (_split(part) for part in parts[1:3])
    described = object_fields.parsed(about)
    kind = re.search(rb"content-type:\s*([^\r\n]+)", head, re.IGNORECASE)
    if kind and not described.get("contentType"):
        described["contentType"] = kind[1].decode()
    return described, content


def _split(part: bytes) -> tuple[bytes, bytes]:
    gap = re.search(rb"\r?\n\r?\n", part)
    if gap is None:
        raise GUESS.invalid("A part of a multipart upload has no body.")
    return part[: gap.start()], re.sub(rb"\r?\n\Z", b"", part[gap.end() :])


@api.on("DELETE", PATH)
def _cancel(cloud: Cloud, call: Call) -> Answer:
    return resumable_uploads.cancel(cloud, call)
