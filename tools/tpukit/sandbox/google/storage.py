"""Cloud Storage: buckets. Terraform keeps its state in one, so this API is served at the root of the host too."""

from __future__ import annotations

import re
from typing import Any

from tpukit.sandbox.google import etags, held_permissions, object_versions, permissions, policy
from tpukit.sandbox.google.api import Answer, Api, Call, merged
from tpukit.sandbox.google.cloud import Cloud
from tpukit.sandbox.google.conditions import Facts
from tpukit.sandbox.google.emulator_settings import number_of
from tpukit.sandbox.google.sources import BUCKET_EXISTS, BUCKET_NOT_EMPTY, GUESS, PRECONDITION
from tpukit.sandbox.google.state import Doc

BUCKET = "b/{bucket}"
SERVICE = "storage.googleapis.com"

api = Api("storage", service=SERVICE, document="storage", title="Cloud Storage JSON API", own_front=True)


def find_bucket(cloud: Cloud, name: str) -> Doc:
    found = cloud.state.get("bucket", name)
    if found is None:
        raise GUESS.not_found("The specified bucket does not exist.")
    return found


def need(cloud: Cloud, call: Call, permission: str, bucket: str, name: str | None = None) -> None:
    """Refuses who may not do this with a bucket, or with the object of that name in it.

    Objects are listed by the policy of a managed folder only where the prefix lies inside it.
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
    """Whose policies say what may be done with the object or folder of that name: the nearest first."""
    project = f"projects/{cloud.project(find_bucket(cloud, bucket)['projectNumber'])}"
    folders = [one["name"] for one in cloud.state.all("folder", f"{bucket}/").values()]
    inside = sorted((one for one in folders if (name or "").startswith(one)), key=len, reverse=True)
    return [*(f"b/{bucket}/managedFolders/{one}" for one in inside), f"b/{bucket}", project]


def held(cloud: Cloud, call: Call, name: str | None = None) -> Doc:
    """Of the permissions that are asked about, those that the caller has on the bucket or on a folder of it."""
    full = f"projects/_/buckets/{call['bucket']}" + (f"/managedFolders/{name}" if name else "")
    asked = [one for one in call.query.get("permissions", "").split(",") if one]
    found = held_permissions.held(cloud, call, asked, scopes(cloud, call["bucket"], name), Facts(full))
    return {"kind": "storage#testIamPermissionsResponse", **({"permissions": found} if found else {})}


def check_preconditions(query: Any, found: Doc | None, *, what: str = "") -> None:
    """The conditions on which a caller wants something done; `what` is Source for the second thing of a request."""
    for field in ("generation", "metageneration"):
        value = str(found[field]) if found else "0"
        head = f"if{what}{field.capitalize()}"
        if query.get(f"{head}Match", value) != value:
            raise PRECONDITION.refused(412, "At least one of the pre-conditions you specified did not hold.")
        if query.get(f"{head}NotMatch") == value:
            raise PRECONDITION.refused(304, "")


def check_etag(call: Call, found: Doc) -> None:
    """If-Match and If-None-Match, of requests that read: others pass over them, and over an etag in a body.

    https://github.com/googleapis/python-storage/pull/489
    """
    wanted, unwanted = (_etags(call, name, without) for name, without in (("if-match", "*"), ("if-none-match", "")))
    if found["etag"] not in wanted and "*" not in wanted:
        raise PRECONDITION.refused(412, "At least one of the pre-conditions you specified did not hold.")
    if found["etag"] in unwanted or "*" in unwanted:
        raise PRECONDITION.refused(304, "")


def _etags(call: Call, header: str, without: str) -> list[str]:
    return [one.strip().strip('"') for one in call.request.headers.get(header, without).split(",")]


@api.on("POST", "b", body="Bucket")
def _create(cloud: Cloud, call: Call) -> Doc:
    project = cloud.project(call.query.get("project", ""))
    project_scope = f"projects/{project}"
    permissions.need(cloud, call, "storage.buckets.create", [project_scope], Facts(project_scope))
    name = call.body.get("name", "")
    if not re.fullmatch(r"[a-z0-9][-_.a-z0-9]{1,61}[a-z0-9]", name) or name.startswith("goog"):
        raise GUESS.invalid(f"Invalid bucket name: '{name}'")
    if cloud.state.get("bucket", name):
        raise BUCKET_EXISTS.refused(
            409, "Your previous request to create the named bucket succeeded and you already own it.", reason="conflict"
        )
    now = cloud.stamp()
    made = {
        "storageClass": "STANDARD",
        "iamConfiguration": {"publicAccessPrevention": "inherited", "uniformBucketLevelAccess": {"enabled": False}},
        "softDeletePolicy": {"retentionDurationSeconds": "604800", "effectiveTime": now},
        "rpo": "DEFAULT",
        **{key: value for key, value in call.body.items() if value is not None},
        "kind": "storage#bucket",
        "id": name,
        "selfLink": f"https://www.googleapis.com/storage/v1/b/{name}",
        "projectNumber": number_of(project),
        "location": call.body.get("location", "US").upper(),
        "locationType": "region" if "-" in call.body.get("location", "") else "multi-region",
        "timeCreated": now,
        "updated": now,
        "metageneration": "1",
        "etag": etags.of_numbers(1),
    }
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
    check_preconditions(call.query, {"generation": "0", **found})
    check_etag(call, found)
    return found


@api.on("PATCH PUT", BUCKET, body="Bucket")
def _patch(cloud: Cloud, call: Call) -> Doc:
    need(cloud, call, "storage.buckets.update", call["bucket"])
    old = find_bucket(cloud, call["bucket"])
    check_preconditions(call.query, {"generation": "0", **old})
    number = int(old["metageneration"]) + 1
    count = {"metageneration": str(number), "etag": etags.of_numbers(number), "updated": cloud.stamp()}
    new = {**merged(old, call.body), **count, "name": old["name"], "location": old["location"]}
    cloud.state.put("bucket", old["name"], new)
    return new


@api.on("DELETE", BUCKET)
def _delete(cloud: Cloud, call: Call) -> Answer:
    need(cloud, call, "storage.buckets.delete", call["bucket"])
    name = find_bucket(cloud, call["bucket"])["name"]
    object_versions.notice(cloud, name)
    # That managed folders hold a bucket too is a guess: they hold objects as folders of a file system do.
    if cloud.state.all("object", f"{name}/") or cloud.state.all("folder", f"{name}/"):
        raise BUCKET_NOT_EMPTY.refused(409, "The bucket you tried to delete is not empty.", reason="conflict")
    cloud.state.delete("bucket", name)
    cloud.files.remove(name)
    policy.forget(cloud, f"b/{name}")
    return Answer(204, b"")


@api.on("GET", BUCKET + "/iam")
def _get_policy(cloud: Cloud, call: Call) -> Doc:
    need(cloud, call, "storage.buckets.getIamPolicy", call["bucket"])
    name = find_bucket(cloud, call["bucket"])["name"]
    return {"kind": "storage#policy", **policy.get(cloud, f"b/{name}")}


@api.on("PUT", BUCKET + "/iam", body="Policy")
def _set_policy(cloud: Cloud, call: Call) -> Doc:
    need(cloud, call, "storage.buckets.setIamPolicy", call["bucket"])
    name = find_bucket(cloud, call["bucket"])["name"]
    return {"kind": "storage#policy", **policy.put(cloud, f"b/{name}", call.body)}


@api.on("GET", BUCKET + "/iam/testPermissions")
def _held(cloud: Cloud, call: Call) -> Doc:
    return held(cloud, call)


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
