"""Cloud Storage: objects, read whole or in part, listed by prefix, copied, composed and deleted, each in its versions.

An object's document is kept under its bucket, name and generation; the live one is the newest that was not deleted.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from urllib.parse import quote

from tpukit.sandbox.google.api import Answer, Api, Call, merged, public
from tpukit.sandbox.google.cloud import Cloud
from tpukit.sandbox.google.refusal import Refused, invalid
from tpukit.sandbox.google.state import Doc
from tpukit.sandbox.google.storage import BUCKET, SERVICE, api, check_preconditions, find_bucket

OBJECT = BUCKET + "/o/{object+}"

download = Api("download", service=SERVICE)
root = Api("", service=SERVICE)


def live(cloud: Cloud, bucket: str, name: str) -> Doc | None:
    versions = [doc for doc in _versions(cloud, bucket, name) if "timeDeleted" not in doc]
    return versions[-1] if versions else None


def _versions(cloud: Cloud, bucket: str, name: str) -> list[Doc]:
    # Names may contain slashes and anything else but line breaks.
    return list(cloud.state.all("object", f"{bucket}/{name}\n").values())


def find(cloud: Cloud, call: Call) -> Doc:
    find_bucket(cloud, call["bucket"])
    generation = call.query.get("generation")
    if generation:
        versions = _versions(cloud, call["bucket"], call["object"])
        found = next((doc for doc in versions if doc["generation"] == generation), None)
    else:
        found = live(cloud, call["bucket"], call["object"])
    if found is None:
        raise Refused(404, f"No such object: {call['bucket']}/{call['object']}")
    return found


def store(cloud: Cloud, bucket: str, about: Doc, content: bytes) -> Doc:
    """Writes a new version of an object."""
    name = about.get("name", "")
    if not name or len(name.encode()) > 1024 or "\r" in name or "\n" in name:
        raise invalid(f"Invalid object name: {name!r}")
    digest = base64.b64encode(hashlib.md5(content, usedforsecurity=False).digest()).decode()
    checksum = base64.b64encode(_crc32c(content).to_bytes(4, "big")).decode()
    for field, right in (("md5Hash", digest), ("crc32c", checksum)):
        if about.get(field, right) != right:
            raise invalid(f"Provided {field} '{about[field]}' doesn't match calculated {field} '{right}'.")
    _retire(cloud, bucket, live(cloud, bucket, name))
    # Generations are microseconds in Google, and grow in any case.
    generation = str(int(cloud.clock.now()) * 1_000_000 + cloud.state.next())
    now = cloud.stamp()
    given = {key: value for key, value in about.items() if value is not None}
    made = {
        "contentType": "application/octet-stream",
        "storageClass": find_bucket(cloud, bucket)["storageClass"],
        **given,
        "kind": "storage#object",
        "id": f"{bucket}/{name}/{generation}",
        "bucket": bucket,
        "name": name,
        "generation": generation,
        "metageneration": "1",
        "size": str(len(content)),
        "md5Hash": digest,
        "crc32c": checksum,
        "etag": base64.b64encode(generation.encode()).decode(),
        "timeCreated": now,
        "updated": now,
    }
    cloud.state.put("object", _key(made), made)
    cloud.state.put_content(_key(made), content)
    return made


def shown(call: Call, doc: Doc) -> Doc:
    """An object as its readers see it, with links that lead back here."""
    name = f"b/{doc['bucket']}/o/{quote(doc['name'], safe='')}"
    media = f"{call.request.base}/download/storage/v1/{name}?generation={doc['generation']}&alt=media"
    return {**public(doc), "selfLink": f"{call.request.base}/storage/v1/{name}", "mediaLink": media}


def _key(doc: Doc) -> str:
    return f"{doc['bucket']}/{doc['name']}\n{int(doc['generation']):020d}"


def _retire(cloud: Cloud, bucket: str, old: Doc | None) -> None:
    """What happens to a version that is no longer the live one: kept where the bucket keeps versions, else gone."""
    if old is None:
        return
    if find_bucket(cloud, bucket).get("versioning", {}).get("enabled"):
        cloud.state.put("object", _key(old), {**old, "timeDeleted": cloud.stamp()})
    else:
        _erase(cloud, old)


def _erase(cloud: Cloud, doc: Doc) -> None:
    cloud.state.delete("object", _key(doc))
    cloud.state.delete_content(_key(doc))


@api.on("GET", OBJECT)
@download.on("GET", "storage/v1/" + OBJECT)
def _show(cloud: Cloud, call: Call) -> Answer | Doc:
    found = find(cloud, call)
    check_preconditions(call.query, found)
    if call.query.get("alt") == "media" or call.request.path.startswith("download/"):
        return _media(cloud, call, found)
    return shown(call, found)


@root.on("GET HEAD", "{bucket}/{object+}")
def _read(cloud: Cloud, call: Call) -> Answer:
    """The path of the older XML API, by which Go programs read objects."""
    found = find(cloud, call)
    return _media(cloud, call, found)


def _media(cloud: Cloud, call: Call, found: Doc) -> Answer:
    size = int(found["size"])
    headers = {
        "content-type": found["contentType"],
        "x-goog-generation": found["generation"],
        "x-goog-metageneration": found["metageneration"],
        "x-goog-hash": f"crc32c={found['crc32c']},md5={found['md5Hash']}",
        "x-goog-stored-content-length": found["size"],
        "x-goog-stored-content-encoding": "identity",
        "etag": found["etag"],
        "accept-ranges": "bytes",
    }
    wanted = re.fullmatch(r"bytes=(\d*)-(\d*)", call.request.headers.get("range", ""))
    if not wanted or wanted[0] == "bytes=-":
        return Answer(200, cloud.state.content(_key(found)), headers)
    first, last = wanted[1], wanted[2]
    start = int(first) if first else max(0, size - int(last))
    end = min(int(last), size - 1) if first and last else size - 1
    if start > end:
        raise Refused(416, "The requested range cannot be satisfied.", status="OUT_OF_RANGE")
    headers["content-range"] = f"bytes {start}-{end}/{size}"
    return Answer(206, cloud.state.content(_key(found), start, end - start + 1), headers)


@api.on("GET", BUCKET + "/o")
def _listed(cloud: Cloud, call: Call) -> Doc:
    bucket = find_bucket(cloud, call["bucket"])["name"]
    query = call.query
    prefix, delimiter = query.get("prefix", ""), query.get("delimiter", "")
    every = query.get("versions") == "true"
    items, prefixes = [], []
    for doc in cloud.state.all("object", f"{bucket}/{prefix}").values():
        if "timeDeleted" in doc and not every:
            continue
        name = doc["name"]
        if name < query.get("startOffset", "") or (query.get("endOffset") and name >= query["endOffset"]):
            continue
        cut = name.find(delimiter, len(prefix)) if delimiter else -1
        if cut >= 0:
            prefixes.append(name[: cut + len(delimiter)])
        else:
            items.append(shown(call, doc))
    start = int(query.get("pageToken") or 0)
    most = min(int(query.get("maxResults") or 1000), 1000)
    page: Doc = {"kind": "storage#objects", "items": items[start : start + most]}
    if prefixes and start == 0:
        page["prefixes"] = sorted(set(prefixes))
    if len(items) > start + most:
        page["nextPageToken"] = str(start + most)
    return page


@api.on("PATCH PUT", OBJECT, body="")
def _patch(cloud: Cloud, call: Call) -> Doc:
    old = find(cloud, call)
    check_preconditions(call.query, old)
    count = {"metageneration": str(int(old["metageneration"]) + 1), "updated": cloud.stamp()}
    keep = {key: old[key] for key in ("name", "bucket", "generation", "size")}
    new = {**merged(old, call.body), **count, **keep}
    cloud.state.put("object", _key(new), new)
    return shown(call, new)


@api.on("DELETE", OBJECT)
def _delete(cloud: Cloud, call: Call) -> Answer:
    found = find(cloud, call)
    check_preconditions(call.query, found)
    if "generation" in call.query:
        _erase(cloud, found)
    else:
        _retire(cloud, call["bucket"], found)
    return Answer(204, b"")


@api.on("POST", BUCKET + "/o/{object+}/compose", body="")
def _compose(cloud: Cloud, call: Call) -> Doc:
    bucket = find_bucket(cloud, call["bucket"])["name"]
    check_preconditions(call.query, live(cloud, bucket, call["object"]))
    parts = []
    for source in call.body.get("sourceObjects", []):
        found = live(cloud, bucket, source["name"])
        if found is None:
            raise Refused(404, f"No such object: {bucket}/{source['name']}")
        parts.append(cloud.state.content(_key(found)))
    if not 1 <= len(parts) <= 32:
        raise invalid("From 1 to 32 source objects can be composed.")
    about = {**call.body.get("destination", {}), "name": call["object"]}
    return shown(call, store(cloud, bucket, about, b"".join(parts)))


@api.on("POST", BUCKET + "/o/{object+}/rewriteTo/b/{to}/o/{copy+}", body="")
@api.on("POST", BUCKET + "/o/{object+}/copyTo/b/{to}/o/{copy+}", body="")
def _copy(cloud: Cloud, call: Call) -> Answer | Doc:
    found = find(cloud, call)
    check_preconditions(call.query, found, what="Source")
    check_preconditions(call.query, live(cloud, call["to"], call["copy"]))
    kept: Doc = {key: found[key] for key in ("contentType", "metadata") if key in found}
    about = {**kept, **call.body, "name": call["copy"]}
    made = shown(call, store(cloud, call["to"], about, cloud.state.content(_key(found))))
    if "/copyTo/" in call.request.path:
        return made
    sizes = {"totalBytesRewritten": made["size"], "objectSize": made["size"], "done": True}
    return Answer(200, json.dumps({**sizes, "resource": made}).encode(), {"content-type": "application/json"})


def _crc32c(content: bytes) -> int:
    import google_crc32c

    return int(google_crc32c.value(content))
