"""Cloud Storage: managed folders, which are prefixes of a bucket with a policy of their own.

https://cloud.google.com/storage/docs/managed-folders
"""

from __future__ import annotations

from tpubox.google.iam import policy
from tpubox.google.storage import bucket_policies
from tpubox.google.storage.buckets import BUCKET, api, find_bucket, need
from tpubox.google.wire.api import Answer, Call
from tpubox.google.wire.cloud import Cloud
from tpubox.google.wire.sources import GUESS
from tpubox.google.wire.state import Doc

FOLDERS = BUCKET + "/managedFolders"
FOLDER = FOLDERS + "/{folder+}"


@api.on("POST", FOLDERS, body="ManagedFolder")
def _create(cloud: Cloud, call: Call) -> Doc:
    bucket = find_bucket(cloud, call["bucket"])
    name = call.body.get("name", "").rstrip("/") + "/"
    need(cloud, call, "storage.managedFolders.create", bucket["name"], name)
    if not bucket["iamConfiguration"].get("uniformBucketLevelAccess", {}).get("enabled"):
        raise GUESS.refused(
            412, "Managed folders need a bucket with uniform bucket-level access.", reason="conditionNotMet"
        )
    if name == "/" or name.startswith("/") or len(name.encode()) > 1024:
        raise GUESS.invalid(f"Invalid managed folder name {name!r}.")
    if cloud.state.get("folder", f"{bucket['name']}/{name}"):
        raise GUESS.refused(409, "The managed folder you tried to create already exists.", reason="conflict")
    made = {
        "kind": "storage#managedFolder",
        "id": f"{bucket['name']}/{name}",
        "selfLink": f"https://www.googleapis.com/storage/v1/b/{bucket['name']}/managedFolders/{name}",
        "name": name,
        "bucket": bucket["name"],
        "createTime": cloud.stamp(),
        "updateTime": cloud.stamp(),
        "metageneration": "1",
    }
    cloud.state.put("folder", made["id"], made)
    return made


@api.on("GET", FOLDERS)
def _listed(cloud: Cloud, call: Call) -> Doc:
    need(cloud, call, "storage.managedFolders.list", call["bucket"])
    prefix = f"{call['bucket']}/{call.query.get('prefix', '')}"
    return {"kind": "storage#managedFolders", "items": list(cloud.state.all("folder", prefix).values())}


@api.on("GET", FOLDER + "/iam")
def _get_policy(cloud: Cloud, call: Call) -> Doc:
    need(cloud, call, "storage.managedFolders.getIamPolicy", call["bucket"], call["folder"])
    return bucket_policies.read(cloud, _scope(_find(cloud, call)), call)


@api.on("PUT", FOLDER + "/iam", body="Policy")
def _set_policy(cloud: Cloud, call: Call) -> Doc:
    need(cloud, call, "storage.managedFolders.setIamPolicy", call["bucket"], call["folder"])
    return bucket_policies.write(cloud, _scope(_find(cloud, call)), call)


@api.on("GET", FOLDER + "/iam/testPermissions")
def _held(cloud: Cloud, call: Call) -> Doc:
    return bucket_policies.held(cloud, call, _find(cloud, call)["name"])


@api.on("GET", FOLDER)
def _show(cloud: Cloud, call: Call) -> Doc:
    need(cloud, call, "storage.managedFolders.get", call["bucket"], call["folder"])
    return _find(cloud, call)


@api.on("DELETE", FOLDER)
def _delete(cloud: Cloud, call: Call) -> Answer:
    need(cloud, call, "storage.managedFolders.delete", call["bucket"], call["folder"])
    found = _find(cloud, call)
    if cloud.state.all("object", found["id"]) and not call.flag("allowNonEmpty"):
        raise GUESS.refused(409, "The managed folder you tried to delete is not empty.", reason="conflict")
    cloud.state.delete("folder", found["id"])
    policy.forget(cloud, _scope(found))
    return Answer(204, b"")


def _find(cloud: Cloud, call: Call) -> Doc:
    name = call["folder"].rstrip("/") + "/"
    found = cloud.state.get("folder", f"{find_bucket(cloud, call['bucket'])['name']}/{name}")
    if found is None:
        raise GUESS.not_found("The specified managed folder does not exist.")
    return found


def _scope(folder: Doc) -> str:
    return f"b/{folder['bucket']}/managedFolders/{folder['name']}"
