"""Cloud Storage: objects, read whole or in part, listed by prefix, copied, composed and deleted."""

from __future__ import annotations

from urllib.parse import quote

from tpubox.google.storage import object_fields, object_media, object_pages, object_retention, object_versions
from tpubox.google.storage import preconditions as storage_preconditions
from tpubox.google.storage.buckets import BUCKET, SERVICE, api, check_acl, find_bucket, need
from tpubox.google.wire import etags, paging
from tpubox.google.wire.api import Answer, Api, Call, public
from tpubox.google.wire.cloud import Cloud
from tpubox.google.wire.sources import EMULATOR, GUESS, OBJECT_NOT_FOUND
from tpubox.google.wire.state import Doc

OBJECT = BUCKET + "/o/{object+}"

download = Api("download", service=SERVICE, own_front=True)
root = Api("", service=SERVICE, own_front=True, xml_errors=True)


def find(cloud: Cloud, call: Call) -> Doc:
    find_bucket(cloud, call["bucket"])
    return _version(cloud, call["bucket"], call["object"], call.query.get("generation"))


def _version(cloud: Cloud, bucket: str, name: str, generation: str | None) -> Doc:
    """Return the requested version, by default the live one."""
    found = object_versions.live(cloud, bucket, name)
    if generation:
        every = object_versions.versions(cloud, bucket, name)
        found = next((doc for doc in every if doc["generation"] == generation), None)
    if found is None:
        raise OBJECT_NOT_FOUND.not_found(f"No such object: {bucket}/{name}")
    return found


def may_write(cloud: Cloud, call: Call, bucket: str, name: str) -> None:
    """Refuse a caller who may not create this object; replacing one also needs the permission to delete."""
    need(cloud, call, "storage.objects.create", bucket, name)
    if object_versions.live(cloud, bucket, name):
        need(cloud, call, "storage.objects.delete", bucket, name)


def shown(call: Call, bucket: Doc, doc: Doc) -> Doc:
    """Return an object as readers see it, with links to this server."""
    name = f"b/{doc['bucket']}/o/{quote(doc['name'], safe='')}"
    media = f"{call.request.base}/download/storage/v1/{name}?generation={doc['generation']}&alt=media"
    links = {"selfLink": f"{call.request.base}/storage/v1/{name}", "mediaLink": media}
    return {**public(doc), **object_retention.shown(bucket, doc), **links}


@api.on("GET", OBJECT)
@download.on("GET", "storage/v1/" + OBJECT)
def _show(cloud: Cloud, call: Call) -> Answer | Doc:
    need(cloud, call, "storage.objects.get", call["bucket"], call["object"])
    found = find(cloud, call)
    storage_preconditions.check(call.query, found, reads=True)
    storage_preconditions.check_etag(call, found)
    if call.query.get("alt") == "media" or call.request.path.startswith("download/"):
        return object_media.read(cloud, call, found)
    return shown(call, find_bucket(cloud, call["bucket"]), found)


@root.on("GET HEAD", "{bucket}/{object+}")
def _read(cloud: Cloud, call: Call) -> Answer:
    """Read an object by the path of the older XML API, which Go programs use."""
    need(cloud, call, "storage.objects.get", call["bucket"], call["object"])
    found = find(cloud, call)
    storage_preconditions.check_headers(call, found)
    return object_media.read(cloud, call, found)


@api.on("GET", BUCKET + "/o", lists="")
def _listed(cloud: Cloud, call: Call) -> Doc:
    query = call.query
    if ignored := [name for name in ("matchGlob", "filter") if query.get(name)] + ["softDeleted"] * call.flag(
        "softDeleted"
    ):
        raise EMULATOR.invalid(f"The emulator cannot list by {', '.join(ignored)}.")
    found = find_bucket(cloud, call["bucket"])
    bucket = found["name"]
    need(cloud, call, "storage.objects.list", bucket, query.get("prefix", ""))
    listed, following = object_pages.read(
        cloud, call, bucket, str(paging.begin(call.request) or ""), paging.length(call.request, 1000, 1000)
    )
    items = [shown(call, found, one) for one in listed if isinstance(one, dict)]
    page: Doc = {"kind": "storage#objects", "items": items}
    if prefixes := [one for one in listed if isinstance(one, str)]:
        page["prefixes"] = prefixes
    if following is not None:
        page["nextPageToken"] = paging.token(call.request, following)
    return page


@api.on("PATCH PUT", OBJECT, body="Object")
def _patch(cloud: Cloud, call: Call) -> Doc:
    need(cloud, call, "storage.objects.update", call["bucket"], call["object"])
    bucket, old = find_bucket(cloud, call["bucket"]), find(cloud, call)
    check_acl(call, bucket)
    storage_preconditions.check(call.query, old)
    number = int(old["metageneration"]) + 1
    now = cloud.stamp()
    etag = etags.of_numbers(int(old["generation"]), number)
    new = object_fields.changed(old, call.body, whole=call.request.method == "PUT")
    new = {**new, "metageneration": str(number), "etag": etag, "updated": now}
    new |= object_retention.at_change(old, new, now)
    object_versions.change(cloud, new)
    return shown(call, bucket, new)


@api.on("DELETE", OBJECT)
def _delete(cloud: Cloud, call: Call) -> Answer:
    need(cloud, call, "storage.objects.delete", call["bucket"], call["object"])
    found = find(cloud, call)
    storage_preconditions.check(call.query, found)
    if "generation" in call.query:
        object_retention.check_may_go(cloud, find_bucket(cloud, call["bucket"]), found)
        object_versions.erase(cloud, found)
    else:
        object_versions.retire(cloud, found)
    return Answer(204, b"")


@api.on("POST", BUCKET + "/o/{object+}/compose", body="ComposeRequest")
def _compose(cloud: Cloud, call: Call) -> Doc:
    bucket = find_bucket(cloud, call["bucket"])
    check_acl(call, bucket)
    may_write(cloud, call, bucket["name"], call["object"])
    storage_preconditions.check(call.query, object_versions.live(cloud, bucket["name"], call["object"]))
    sources = [_source(cloud, call, one) for one in call.body.get("sourceObjects", [])]
    if not 1 <= len(sources) <= 32:
        raise GUESS.invalid("From 1 to 32 source objects can be composed.")
    # gcloud sends the first source's description, whose content fields do not apply to the result.
    sent = call.body.get("destination") or {}
    about = {key: value for key, value in sent.items() if key in object_fields.DESCRIBED}
    whole = b"".join(object_versions.content_of(cloud, one) for one in sources)
    count = sum(one.get("componentCount", 1) for one in sources)
    made = object_versions.store(cloud, bucket, object_fields.made(about, call["object"]), whole, count)
    return shown(call, bucket, made)


def _source(cloud: Cloud, call: Call, asked: Doc) -> Doc:
    """Return a source object of a composition, subject to its own preconditions."""
    bucket, name = call["bucket"], asked.get("name") or ""
    if not name:
        raise GUESS.refused(400, "Required", reason="required")
    need(cloud, call, "storage.objects.get", bucket, name)
    found = _version(cloud, bucket, name, asked.get("generation"))
    storage_preconditions.check(asked.get("objectPreconditions") or {}, found)
    return found


@api.on("POST", BUCKET + "/o/{object+}/rewriteTo/b/{to}/o/{copy+}", body="Object")
@api.on("POST", BUCKET + "/o/{object+}/copyTo/b/{to}/o/{copy+}", body="Object")
def _copy(cloud: Cloud, call: Call) -> Doc:
    need(cloud, call, "storage.objects.get", call["bucket"], call["object"])
    may_write(cloud, call, call["to"], call["copy"])
    bucket = find_bucket(cloud, call["to"])
    check_acl(call, bucket)
    # The query names the source's version in a parameter of its own.
    find_bucket(cloud, call["bucket"])
    found = _version(cloud, call["bucket"], call["object"], call.query.get("sourceGeneration"))
    storage_preconditions.check(call.query, found, what="Source")
    storage_preconditions.check(call.query, object_versions.live(cloud, call["to"], call["copy"]))
    about = object_fields.made(object_fields.copied(found, call.body), call["copy"])
    content = object_versions.content_of(cloud, found)
    made = object_versions.store(cloud, bucket, about, content, found.get("componentCount", 0))
    if "/copyTo/" in call.request.path:
        return shown(call, bucket, made)
    sizes = {"totalBytesRewritten": made["size"], "objectSize": made["size"], "done": True}
    return {"kind": "storage#rewriteResponse", **sizes, "resource": shown(call, bucket, made)}
