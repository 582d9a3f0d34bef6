"""Cloud Storage: policies of buckets, and their common parts with policies of managed folders."""

from __future__ import annotations

from tpubox.google.iam import held_permissions, policy, policy_versions
from tpubox.google.iam.conditions import Facts
from tpubox.google.iam.policy_checks import PUBLIC
from tpubox.google.storage.buckets import BUCKET, api, find_bucket, need, scopes
from tpubox.google.wire.api import Call
from tpubox.google.wire.cloud import Cloud
from tpubox.google.wire.sources import CONDITION_VERSION, PUBLIC_ACCESS
from tpubox.google.wire.state import Doc


@api.on("GET", BUCKET + "/iam")
def _get_policy(cloud: Cloud, call: Call) -> Doc:
    need(cloud, call, "storage.buckets.getIamPolicy", call["bucket"])
    return read(cloud, f"b/{find_bucket(cloud, call['bucket'])['name']}", call)


@api.on("PUT", BUCKET + "/iam", body="Policy")
def _set_policy(cloud: Cloud, call: Call) -> Doc:
    need(cloud, call, "storage.buckets.setIamPolicy", call["bucket"])
    return write(cloud, f"b/{find_bucket(cloud, call['bucket'])['name']}", call)


@api.on("GET", BUCKET + "/iam/testPermissions")
def _held(cloud: Cloud, call: Call) -> Doc:
    return held(cloud, call)


def read(cloud: Cloud, resource: str, call: Call) -> Doc:
    return {"kind": "storage#policy", **policy.answer(cloud, resource, call)}


def write(cloud: Cloud, resource: str, call: Call) -> Doc:
    """Replace the policy of a bucket or of a folder in it, if the bucket accepts it."""
    config = find_bucket(cloud, call["bucket"])["iamConfiguration"]
    bindings = call.body.get("bindings", [])
    members = {member for binding in bindings for member in binding.get("members", [])}
    if config.get("publicAccessPrevention") == "enforced" and members & set(PUBLIC):
        raise PUBLIC_ACCESS.refused(
            412,
            "The member bindings allUsers and allAuthenticatedUsers are not allowed since public access prevention is "
            "enforced.",
        )
    if policy_versions.has_conditions(bindings) and not config.get("uniformBucketLevelAccess", {}).get("enabled"):
        # Only "enable uniform bucket-level access" is known of this text.
        raise CONDITION_VERSION.refused(
            412, "To set conditions in the policy of a bucket, enable uniform bucket-level access on it."
        )
    return {"kind": "storage#policy", **policy.put(cloud, resource, call.body)}


def held(cloud: Cloud, call: Call, name: str | None = None) -> Doc:
    """Return the requested permissions that the caller has on the bucket or on a folder of it."""
    full = f"projects/_/buckets/{call['bucket']}" + (f"/managedFolders/{name}" if name else "")
    asked = [one for one in call.query.get("permissions", "").split(",") if one]
    found = held_permissions.held(cloud, call, asked, scopes(cloud, call["bucket"], name), Facts(full))
    return {"kind": "storage#testIamPermissionsResponse", **({"permissions": found} if found else {})}
