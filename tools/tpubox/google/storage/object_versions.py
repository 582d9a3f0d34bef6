"""Cloud Storage: versions of objects. The live version is the newest that was not deleted; its content is a file.

A version's document is stored under its bucket, name and generation. Changes of files behind the API's back (Pods mount
buckets) are noticed at the next request: a new or changed file is a new version, a missing one was deleted. A version
replaced that way is lost, even if the bucket keeps versions.
"""

from __future__ import annotations

import base64
import hashlib

from tpubox.google.storage import object_retention
from tpubox.google.storage.bucket_folders import END
from tpubox.google.wire import etags
from tpubox.google.wire.cloud import Cloud
from tpubox.google.wire.sources import GUESS
from tpubox.google.wire.state import Doc

_MARK = "_mark"
"""Field with the mark of the file; a version without it has its content in the state."""


def live(cloud: Cloud, bucket: str, name: str) -> Doc | None:
    mark = cloud.files.mark(bucket, name)
    found = next((doc for doc in reversed(versions(cloud, bucket, name)) if "timeDeleted" not in doc), None)
    if mark == (found or {}).get(_MARK, ""):
        return found
    if found:
        erase(cloud, found)
    if not mark:
        return None
    return _record(cloud, _bucket(cloud, bucket), {"name": name}, cloud.files.read(bucket, name), mark)


def versions(cloud: Cloud, bucket: str, name: str) -> list[Doc]:
    """Return all versions, oldest first."""
    # Names may contain slashes, and every character except line breaks.
    return list(cloud.state.all("object", f"{bucket}/{name}{END}").values())


def notice(cloud: Cloud, bucket: str) -> None:
    """Notice the changes of all files of a bucket."""
    known = {doc["name"] for doc in cloud.state.all("object", f"{bucket}/").values() if _MARK in doc}
    for name in known | set(cloud.files.names(bucket)):
        live(cloud, bucket, name)


def store(cloud: Cloud, bucket: Doc, about: Doc, content: bytes, components: int = 0) -> Doc:
    """Write a new version of an object; `components` is the number of objects it was composed of."""
    name = about["name"]
    for field, right in _checksums(content).items():
        if about.get(field, right) != right:
            raise GUESS.invalid(f"Provided {field} '{about[field]}' doesn't match calculated {field} '{right}'.")
    old = live(cloud, bucket["name"], name)
    before = _to_keep(cloud, old)
    if old and before is None:
        object_retention.check_may_go(cloud, bucket, old)
    mark = cloud.files.write(bucket["name"], name, content)  # atomic: a reader finds the old or the new content
    _retire(cloud, old, before)
    made = _record(cloud, bucket, {**object_retention.at_first(bucket), **about}, content, mark, components)
    if not mark:
        cloud.state.put_content(key(made), content)
    return made


def content_of(cloud: Cloud, doc: Doc, start: int = 0, length: int | None = None) -> bytes:
    if _MARK in doc:
        return cloud.files.read(doc["bucket"], doc["name"], start, length)
    return cloud.state.content(key(doc), start, length)


def retire(cloud: Cloud, old: Doc) -> None:
    """Retire a live version: keep it if the bucket keeps versions, otherwise delete it."""
    before = _to_keep(cloud, old)
    if before is None:
        object_retention.check_may_go(cloud, _bucket(cloud, old["bucket"]), old)
    _retire(cloud, old, before)


def _to_keep(cloud: Cloud, old: Doc | None) -> bytes | None:
    versioned = old and _bucket(cloud, old["bucket"]).get("versioning", {}).get("enabled")
    return content_of(cloud, old) if old and versioned else None


def _retire(cloud: Cloud, old: Doc | None, content: bytes | None) -> None:
    if old is None:
        return
    erase(cloud, old)
    if content is not None:
        kept = {key: value for key, value in old.items() if key != _MARK}
        change(cloud, {**kept, "timeDeleted": cloud.stamp()})
        cloud.state.put_content(key(old), content)


def erase(cloud: Cloud, doc: Doc) -> None:
    cloud.state.delete("object", key(doc))
    cloud.state.delete_content(key(doc))
    if doc.get(_MARK) and doc[_MARK] == cloud.files.mark(doc["bucket"], doc["name"]):
        cloud.files.delete(doc["bucket"], doc["name"])


def change(cloud: Cloud, doc: Doc) -> None:
    """Store another document for the same version."""
    cloud.state.put("object", key(doc), doc)


def _record(cloud: Cloud, bucket: Doc, about: Doc, content: bytes, mark: str, components: int = 0) -> Doc:
    # Generations are microseconds in Google, and always increase.
    generation = str(int(cloud.clock.now()) * 1_000_000 + cloud.state.next())
    now = cloud.stamp()
    checksums: Doc = _checksums(content)
    if components:
        # Composite objects have no MD5: https://cloud.google.com/storage/docs/composite-objects
        checksums = {"crc32c": checksums["crc32c"], "componentCount": components}
    made = {
        "contentType": "application/octet-stream",
        "storageClass": bucket["storageClass"],
        **{key: value for key, value in about.items() if value is not None and key not in ("md5Hash", "crc32c")},
        "kind": "storage#object",
        "id": f"{bucket['name']}/{about['name']}/{generation}",
        "bucket": bucket["name"],
        "generation": generation,
        "metageneration": "1",
        "size": str(len(content)),
        **checksums,
        "etag": etags.of_numbers(int(generation), 1),
        "timeCreated": now,
        "updated": now,
        **({_MARK: mark} if mark else {}),
    }
    change(cloud, made)
    return made


def _bucket(cloud: Cloud, name: str) -> Doc:
    found = cloud.state.get("bucket", name)
    assert found is not None  # callers have an object or a folder of it
    return found


def key(doc: Doc) -> str:
    """Return the key in the state: objects in the order of their names, versions oldest first."""
    return f"{doc['bucket']}/{doc['name']}{END}{int(doc['generation']):020d}"


def _checksums(content: bytes) -> dict[str, str]:
    import google_crc32c

    digest = hashlib.md5(content, usedforsecurity=False).digest()
    checksum = int(google_crc32c.value(content)).to_bytes(4, "big")
    return {"md5Hash": base64.b64encode(digest).decode(), "crc32c": base64.b64encode(checksum).decode()}
