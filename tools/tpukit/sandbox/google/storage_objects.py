"""Cloud Storage: objects, read whole or in part, listed by prefix, copied, composed and deleted."""

from __future__ import annotations

import re
from urllib.parse import quote

from tpukit.sandbox.google import etags, object_pages, object_versions, paging
from tpukit.sandbox.google.api import Answer, Api, Call, merged, public
from tpukit.sandbox.google.cloud import Cloud
from tpukit.sandbox.google.sources import EMULATOR, GUESS, OBJECT_NOT_FOUND
from tpukit.sandbox.google.state import Doc
from tpukit.sandbox.google.storage import BUCKET, SERVICE, api, check_etag, check_preconditions, find_bucket, need

OBJECT = BUCKET + "/o/{object+}"
_DESCRIBED = (
    *("cacheControl", "contentDisposition", "contentEncoding", "contentLanguage", "contentType", "customTime"),
    *("metadata", "storageClass"),
)
"""What a caller says of an object. All else is Cloud Storage's to say."""

download = Api("download", service=SERVICE, own_front=True)
root = Api("", service=SERVICE, own_front=True, xml_errors=True)


def find(cloud: Cloud, call: Call) -> Doc:
    find_bucket(cloud, call["bucket"])
    found = object_versions.live(cloud, call["bucket"], call["object"])
    if generation := call.query.get("generation"):
        every = object_versions.versions(cloud, call["bucket"], call["object"])
        found = next((doc for doc in every if doc["generation"] == generation), None)
    if found is None:
        raise OBJECT_NOT_FOUND.not_found(f"No such object: {call['bucket']}/{call['object']}")
    return found


def may_write(cloud: Cloud, call: Call, bucket: str, name: str) -> None:
    """Refuses who may not make this object; to replace one is to delete it as well."""
    need(cloud, call, "storage.objects.create", bucket, name)
    if object_versions.live(cloud, bucket, name):
        need(cloud, call, "storage.objects.delete", bucket, name)


def shown(call: Call, doc: Doc) -> Doc:
    """An object as its readers see it, with links that lead back here."""
    name = f"b/{doc['bucket']}/o/{quote(doc['name'], safe='')}"
    media = f"{call.request.base}/download/storage/v1/{name}?generation={doc['generation']}&alt=media"
    return {**public(doc), "selfLink": f"{call.request.base}/storage/v1/{name}", "mediaLink": media}


@api.on("GET", OBJECT)
@download.on("GET", "storage/v1/" + OBJECT)
def _show(cloud: Cloud, call: Call) -> Answer | Doc:
    need(cloud, call, "storage.objects.get", call["bucket"], call["object"])
    found = find(cloud, call)
    check_preconditions(call.query, found)
    check_etag(call, found)
    if call.query.get("alt") == "media" or call.request.path.startswith("download/"):
        return _media(cloud, call, found)
    return shown(call, found)


@root.on("GET HEAD", "{bucket}/{object+}")
def _read(cloud: Cloud, call: Call) -> Answer:
    """The path of the older XML API, by which Go programs read objects."""
    need(cloud, call, "storage.objects.get", call["bucket"], call["object"])
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
        return Answer(200, object_versions.content_of(cloud, found), headers)
    first, last = wanted[1], wanted[2]
    start = int(first) if first else max(0, size - int(last))
    end = min(int(last), size - 1) if first and last else size - 1
    if start > end:
        raise GUESS.refused(416, "The requested range cannot be satisfied.", status="OUT_OF_RANGE")
    headers["content-range"] = f"bytes {start}-{end}/{size}"
    return Answer(206, object_versions.content_of(cloud, found, start, end - start + 1), headers)


@api.on("GET", BUCKET + "/o", lists="")
def _listed(cloud: Cloud, call: Call) -> Doc:
    query = call.query
    if ignored := [name for name in ("matchGlob", "filter") if query.get(name)] + ["softDeleted"] * call.flag(
        "softDeleted"
    ):
        raise EMULATOR.invalid(f"The emulator cannot list by {', '.join(ignored)}.")
    bucket = find_bucket(cloud, call["bucket"])["name"]
    need(cloud, call, "storage.objects.list", bucket, query.get("prefix", ""))
    listed, following = object_pages.read(
        cloud, call, bucket, str(paging.begin(call.request) or ""), paging.length(call.request, 1000, 1000)
    )
    page: Doc = {"kind": "storage#objects", "items": [shown(call, one) for one in listed if isinstance(one, dict)]}
    if prefixes := [one for one in listed if isinstance(one, str)]:
        page["prefixes"] = prefixes
    if following is not None:
        page["nextPageToken"] = paging.token(call.request, following)
    return page


@api.on("PATCH PUT", OBJECT, body="Object")
def _patch(cloud: Cloud, call: Call) -> Doc:
    need(cloud, call, "storage.objects.update", call["bucket"], call["object"])
    old = find(cloud, call)
    check_preconditions(call.query, old)
    number = int(old["metageneration"]) + 1
    etag = etags.of_numbers(int(old["generation"]), number)
    count = {"metageneration": str(number), "etag": etag, "updated": cloud.stamp()}
    keep = {key: old[key] for key in ("name", "bucket", "generation", "size")}
    new = {**merged(old, call.body), **count, **keep}
    object_versions.change(cloud, new)
    return shown(call, new)


@api.on("DELETE", OBJECT)
def _delete(cloud: Cloud, call: Call) -> Answer:
    need(cloud, call, "storage.objects.delete", call["bucket"], call["object"])
    found = find(cloud, call)
    check_preconditions(call.query, found)
    if "generation" in call.query:
        object_versions.erase(cloud, found)
    else:
        object_versions.retire(cloud, found)
    return Answer(204, b"")


@api.on("POST", BUCKET + "/o/{object+}/compose", body="ComposeRequest")
def _compose(cloud: Cloud, call: Call) -> Doc:
    bucket = find_bucket(cloud, call["bucket"])["name"]
    may_write(cloud, call, bucket, call["object"])
    check_preconditions(call.query, object_versions.live(cloud, bucket, call["object"]))
    parts = []
    for source in call.body.get("sourceObjects", []):
        need(cloud, call, "storage.objects.get", bucket, source["name"])
        found = object_versions.live(cloud, bucket, source["name"])
        if found is None:
            raise OBJECT_NOT_FOUND.not_found(f"No such object: {bucket}/{source['name']}")
        parts.append(object_versions.content_of(cloud, found))
    if not 1 <= len(parts) <= 32:
        raise GUESS.invalid("From 1 to 32 source objects can be composed.")
    # gcloud sends the first source's description along: what it says of that one's content is not the result's.
    described = {key: value for key, value in call.body.get("destination", {}).items() if key in _DESCRIBED}
    about = {**described, "name": call["object"]}
    return shown(call, object_versions.store(cloud, find_bucket(cloud, bucket), about, b"".join(parts)))


@api.on("POST", BUCKET + "/o/{object+}/rewriteTo/b/{to}/o/{copy+}", body="Object")
@api.on("POST", BUCKET + "/o/{object+}/copyTo/b/{to}/o/{copy+}", body="Object")
def _copy(cloud: Cloud, call: Call) -> Doc:
    need(cloud, call, "storage.objects.get", call["bucket"], call["object"])
    may_write(cloud, call, call["to"], call["copy"])
    found = find(cloud, call)
    check_preconditions(call.query, found, what="Source")
    check_preconditions(call.query, object_versions.live(cloud, call["to"], call["copy"]))
    kept: Doc = {key: found[key] for key in ("contentType", "metadata") if key in found}
    about = {**kept, **call.body, "name": call["copy"]}
    made = shown(
        call,
        object_versions.store(cloud, find_bucket(cloud, call["to"]), about, object_versions.content_of(cloud, found)),
    )
    if "/copyTo/" in call.request.path:
        return made
    sizes = {"totalBytesRewritten": made["size"], "objectSize": made["size"], "done": True}
    return {**sizes, "resource": made}
