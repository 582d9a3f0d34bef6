"""Cloud Storage: buckets. Terraform keeps its state in one, so this API is also served at the root of the host."""

from __future__ import annotations

from tpubox.google.iam import permissions, policy
from tpubox.google.iam.conditions import Facts
from tpubox.google.storage import bucket_fields, bucket_names, object_retention, object_versions
from tpubox.google.storage import preconditions as storage_preconditions
from tpubox.google.wire import etags
from tpubox.google.wire.api import Answer, Api, Call
from tpubox.google.wire.cloud import Cloud
from tpubox.google.wire.settings import number_of
from tpubox.google.wire.sources import BUCKET_EXISTS, BUCKET_NOT_EMPTY, GUESS, UNIFORM_ACCESS
from tpubox.google.wire.state import Doc

BUCKET = "b/{bucket}"
SERVICE = "storage.googleapis.com"
_ACLS = ("predefinedAcl", "predefinedDefaultObjectAcl", "destinationPredefinedAcl")
"""Parameters that grant access to a single resource, which uniform access forbids."""

api = Api("storage", service=SERVICE, document="storage", title="Cloud Storage JSON API", own_front=True)


def find_bucket(cloud: Cloud, name: str) -> Doc:
    found = cloud.state.get("bucket", name)
    if found is None:
        raise GUESS.not_found("The specified bucket does not exist.")
    return found


def need(cloud: Cloud, call: Call, permission: str, bucket: str, name: str | None = None) -> None:
    """Refuse a caller without the permission on a bucket, or on the named object in it.

    The policy of a managed folder permits listing only if the prefix lies inside it.
    https://cloud.google.com/storage/docs/managed-folders
    """
    if call.request.principal == permissions.OWNER:
        return
    full = f"projects/_/buckets/{bucket}"
    kind = "storage.googleapis.com/Bucket"
    if name and permission != "storage.objects.list":
        full, kind = f"{full}/objects/{name}", "storage.googleapis.com/Object"
    permissions.need(cloud, call, permission, scopes(cloud, bucket, name), Facts(full, kind))


def scopes(cloud: Cloud, bucket: str, name: str | None) -> list[str]:
    """Return the resources whose policies apply to the named object or folder, nearest first."""
    project = f"projects/{cloud.project(find_bucket(cloud, bucket)['projectNumber'])}"
    folders = [one["name"] for one in cloud.state.all("folder", f"{bucket}/").values()]
    inside = sorted((one for one in folders if (name or "").startswith(one)), key=len, reverse=True)
    return [*(f"b/{bucket}/managedFolders/{one}" for one in inside), f"b/{bucket}", project]


def check_acl(call: Call, bucket: Doc) -> None:
    """Refuse ACL parameters for a bucket with uniform access.

    https://cloud.google.com/storage/docs/uniform-bucket-level-access
    """
    uniform = bucket["iamConfiguration"].get("uniformBucketLevelAccess", {}).get("enabled")
    if uniform and any(call.query.get(name) for name in _ACLS):
        raise UNIFORM_ACCESS.invalid(
            "Cannot insert legacy ACL for an object when uniform bucket-level access is enabled. Read more at "
            "https://cloud.google.com/storage/docs/uniform-bucket-level-access"
        )


@api.on("POST", "b", body="Bucket")
def _create(cloud: Cloud, call: Call) -> Doc:
    project = cloud.project(call.query.get("project", ""))
    project_scope = f"projects/{project}"
    permissions.need(cloud, call, "storage.buckets.create", [project_scope], Facts(project_scope))
    name = call.body.get("name") or ""
    bucket_names.check(name)
    if cloud.state.get("bucket", name):
        raise BUCKET_EXISTS.refused(
            409, "Your previous request to create the named bucket succeeded and you already own it.", reason="conflict"
        )
    now = cloud.stamp()
    made = {
        **bucket_fields.made(call.body, now),
        "kind": "storage#bucket",
        "id": name,
        "selfLink": f"https://www.googleapis.com/storage/v1/b/{name}",
        "projectNumber": number_of(project),
        "timeCreated": now,
        "updated": now,
        "generation": str(int(cloud.clock.now() * 1_000_000)),
        "metageneration": "1",
        "etag": etags.of_numbers(1),
    }
    check_acl(call, made)
    cloud.state.put("bucket", name, made)
    cloud.files.add(name)
    return made


@api.on("GET", "b")
def _listed(cloud: Cloud, call: Call) -> Doc:
    project = cloud.project(call.query.get("project", ""))
    number = number_of(project)
    permissions.need(cloud, call, "storage.buckets.list", [f"projects/{project}"], Facts(f"projects/{project}"))
    prefix = call.query.get("prefix", "")
    mine = [doc for doc in cloud.state.all("bucket", prefix).values() if doc["projectNumber"] == number]
    return {"kind": "storage#buckets", "items": mine}


@api.on("GET", BUCKET)
def _show(cloud: Cloud, call: Call) -> Doc:
    need(cloud, call, "storage.buckets.get", call["bucket"])
    found = find_bucket(cloud, call["bucket"])
    storage_preconditions.check_bucket(call, found)
    storage_preconditions.check_etag(call, found)
    return found


@api.on("PATCH PUT", BUCKET, body="Bucket")
def _patch(cloud: Cloud, call: Call) -> Doc:
    need(cloud, call, "storage.buckets.update", call["bucket"])
    old = find_bucket(cloud, call["bucket"])
    storage_preconditions.check_bucket(call, old)
    whole = call.request.method == "PUT"
    new = bucket_fields.changed(old, call.body, cloud.stamp(), whole=whole)
    check_acl(call, new)
    return _changed(cloud, new)


@api.on("POST", BUCKET + "/lockRetentionPolicy")
def _lock(cloud: Cloud, call: Call) -> Doc:
    need(cloud, call, "storage.buckets.update", call["bucket"])
    old = find_bucket(cloud, call["bucket"])
    if "ifMetagenerationMatch" not in call.query:
        raise GUESS.refused(400, "Required parameter: ifMetagenerationMatch", reason="required")
    storage_preconditions.check_bucket(call, old)
    return _changed(cloud, {**old, "retentionPolicy": object_retention.locked(old.get("retentionPolicy"), old["name"])})


def _changed(cloud: Cloud, new: Doc) -> Doc:
    number = int(new["metageneration"]) + 1
    new = {**new, "metageneration": str(number), "etag": etags.of_numbers(number), "updated": cloud.stamp()}
    cloud.state.put("bucket", new["name"], new)
    return new


@api.on("DELETE", BUCKET)
def _delete(cloud: Cloud, call: Call) -> Answer:
    need(cloud, call, "storage.buckets.delete", call["bucket"])
    found = find_bucket(cloud, call["bucket"])
    storage_preconditions.check_bucket(call, found)
    name = found["name"]
    object_versions.notice(cloud, name)
    # That managed folders prevent deletion is a guess: they hold objects like folders of a file system.
    if cloud.state.all("object", f"{name}/") or cloud.state.all("folder", f"{name}/"):
        raise BUCKET_NOT_EMPTY.refused(409, "The bucket you tried to delete is not empty.", reason="conflict")
    cloud.state.delete("bucket", name)
    cloud.files.remove(name)
    policy.forget(cloud, f"b/{name}")
    return Answer(204, b"")


@api.on("GET", BUCKET + "/anywhereCaches")
@api.on("GET", BUCKET + "/anywhereCaches/")
def _caches(cloud: Cloud, call: Call) -> Doc:
    need(cloud, call, "storage.buckets.get", call["bucket"])
    find_bucket(cloud, call["bucket"])
    return {"kind": "storage#anywhereCaches", "items": []}


@api.on("GET", BUCKET + "/storageLayout")
def _layout(cloud: Cloud, call: Call) -> Doc:
    need(cloud, call, "storage.objects.list", call["bucket"], call.query.get("prefix", ""))
    found = find_bucket(cloud, call["bucket"])
    shown = {key: found[key] for key in ("location", "locationType")}
    return {"kind": "storage#storageLayout", "bucket": found["name"], **shown}
