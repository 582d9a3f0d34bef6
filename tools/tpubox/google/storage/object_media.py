"""Cloud Storage: the content of an object, whole or in part, decompressed for callers that do not accept gzip.

https://cloud.google.com/storage/docs/transcoding
"""

from __future__ import annotations

import gzip
import re
import zlib

from tpubox.google.storage import object_versions
from tpubox.google.wire.api import Answer, Call
from tpubox.google.wire.cloud import Cloud
from tpubox.google.wire.sources import GUESS
from tpubox.google.wire.state import Doc

_HEADERS = {
    "cacheControl": "cache-control",
    "contentDisposition": "content-disposition",
    "contentEncoding": "content-encoding",
    "contentLanguage": "content-language",
}


def read(cloud: Cloud, call: Call, found: Doc) -> Answer:
    headers = {
        "content-type": found.get("contentType", "application/octet-stream"),
        **{header: found[field] for field, header in _HEADERS.items() if found.get(field)},
        "x-goog-generation": found["generation"],
        "x-goog-metageneration": found["metageneration"],
        "x-goog-hash": f"crc32c={found['crc32c']}" + (f",md5={found['md5Hash']}" if "md5Hash" in found else ""),
        "x-goog-stored-content-length": found["size"],
        "x-goog-stored-content-encoding": found.get("contentEncoding") or "identity",
        "etag": found["etag"],
        "accept-ranges": "bytes",
    }
    if _is_unpacked(call, found):
        content = object_versions.content_of(cloud, found)
        try:
            content = gzip.decompress(content)
        except (OSError, EOFError, zlib.error):
            pass  # not really gzip; that Google returns it unchanged is a guess
        else:
            del headers["content-encoding"], headers["accept-ranges"]
            return Answer(200, content, {**headers, "warning": "214 UploadServer gunzipped"})  # the range is ignored
    return _part(cloud, call, found, headers)


def _is_unpacked(call: Call, found: Doc) -> bool:
    return (
        found.get("contentEncoding") == "gzip"
        and "gzip" not in call.request.headers.get("accept-encoding", "")
        and "no-transform" not in found.get("cacheControl", "")
    )


def _part(cloud: Cloud, call: Call, found: Doc, headers: dict[str, str]) -> Answer:
    size = int(found["size"])
    wanted = re.fullmatch(r"bytes=(\d*)-(\d*)", call.request.headers.get("range", ""))
    if not wanted or wanted[0] == "bytes=-":
        return Answer(200, object_versions.content_of(cloud, found), headers)
    first, last = wanted[1], wanted[2]
    start = int(first) if first else max(0, size - int(last))
    end = min(int(last), size - 1) if first and last else size - 1
    if start > end:
        raise GUESS.refused(416, "The requested range cannot be satisfied.", status="OUT_OF_RANGE")
    headers["content-range"] = f"bytes {start}-{end}/{size}"
    return Answer(206, object_versions.content_of(cloud, found, start, end - start + 1), headers)
