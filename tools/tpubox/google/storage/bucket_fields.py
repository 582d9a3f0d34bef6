"""Cloud Storage: the bucket fields that callers may set. All others are ignored."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from tpubox.google.storage import classes as storage_classes
from tpubox.google.storage import object_retention
from tpubox.google.wire.api import merged
from tpubox.google.wire.label_rules import is_resource_word
from tpubox.google.wire.regions import REGIONS
from tpubox.google.wire.sources import BUCKET_LABELS, BUCKET_LOCATION, GUESS
from tpubox.google.wire.state import Doc

_REPLACED = (
    *("billing", "cors", "defaultEventBasedHold", "encryption", "labels", "lifecycle", "logging", "retentionPolicy"),
    *("versioning", "website"),
)
_CHANGED = (
    *_REPLACED,
    *("acl", "autoclass", "defaultObjectAcl", "iamConfiguration", "ipFilter", "rpo", "softDeletePolicy"),
    "storageClass",
)
_ALWAYS = ("iamConfiguration", "rpo", "softDeletePolicy", "storageClass")
"""Fields of every bucket, which cannot be removed."""
_MADE = (*_CHANGED, "customPlacementConfig", "hierarchicalNamespace", "name", "objectRetention")
_MULTI_REGIONS = ("ASIA", "EU", "US")
_DUAL_REGIONS = ("ASIA1", "EUR4", "EUR5", "EUR7", "EUR8", "NAM4")
_ACTIONS = ("AbortIncompleteMultipartUpload", "Delete", "SetStorageClass")
_COUNTS = ("age", "daysSinceCustomTime", "daysSinceNoncurrentTime", "numNewerVersions")
_DAY = 86_400


def made(body: Doc, now: str) -> Doc:
    """Return a new bucket from the request, with Google's defaults."""
    sent = {key: value for key, value in body.items() if key in _MADE and value is not None}
    location = str(body.get("location") or "US").upper()
    placed = {"location": location, "locationType": _location_type(location, sent)}
    at_first: Doc = {
        "storageClass": "STANDARD",
        "iamConfiguration": {"publicAccessPrevention": "inherited", "uniformBucketLevelAccess": {"enabled": False}},
        "softDeletePolicy": {"retentionDurationSeconds": "604800"},
        "rpo": "DEFAULT",
    }
    found = _checked({}, {**merged(at_first, sent), **placed}, now)
    storage_classes.check_location(found["storageClass"], found["locationType"])
    return found


def changed(old: Doc, body: Doc, now: str, *, whole: bool) -> Doc:
    """Return the changed bucket; with `whole`, fields missing in the body are removed.

    That the fields of every bucket are kept is a guess.
    """
    sent = {key: value for key, value in body.items() if key in _CHANGED and (value is not None or key not in _ALWAYS)}
    if whole:
        left = {key: value for key, value in old.items() if key not in _REPLACED}
        return _checked(old, {**left, **{key: value for key, value in sent.items() if value is not None}}, now)
    return _checked(old, merged(old, sent), now)


def _location_type(location: str, sent: Doc) -> str:
    if location.lower() in REGIONS:
        return "region"
    if location in _DUAL_REGIONS or (location in _MULTI_REGIONS and sent.get("customPlacementConfig")):
        return "dual-region"
    if location in _MULTI_REGIONS:
        return "multi-region"
    raise BUCKET_LOCATION.invalid("The specified location constraint is not valid.")


def _checked(old: Doc, new: Doc, now: str) -> Doc:
    """Return the new bucket with derived fields, or refuse it."""
    found = {**new, "storageClass": storage_classes.checked(new["storageClass"])}
    if new.get("labels") != old.get("labels"):
        _check_labels(new.get("labels") or {})
    for rule in (new.get("lifecycle") or {}).get("rule") or []:
        _check_rule(rule.get("action") or {}, rule.get("condition") or {})
    found["iamConfiguration"] = _access(old.get("iamConfiguration") or {}, new["iamConfiguration"], now)
    found["softDeletePolicy"] = _soft_delete(old.get("softDeletePolicy"), new.get("softDeletePolicy") or {}, now)
    policy = object_retention.policy(old.get("retentionPolicy"), new.get("retentionPolicy"), new["name"], now)
    found.pop("retentionPolicy", None)
    return found if policy is None else {**found, "retentionPolicy": policy}


def _access(old: Doc, wanted: Doc, now: str) -> Doc:
    """Return the access configuration with the older name of uniform access, and the time limit for its revocation."""
    uniform = wanted.get("uniformBucketLevelAccess") or wanted.get("bucketPolicyOnly") or {}
    before = old.get("uniformBucketLevelAccess") or {}
    if not uniform.get("enabled"):
        shown: Doc = {"enabled": False}
    elif before.get("enabled"):
        shown = before
    else:
        until = datetime.fromisoformat(now) + timedelta(days=90)
        shown = {"enabled": True, "lockedTime": until.isoformat(timespec="milliseconds").replace("+00:00", "Z")}
    return {**wanted, "uniformBucketLevelAccess": shown, "bucketPolicyOnly": shown}


def _soft_delete(old: Doc | None, wanted: Doc, now: str) -> Doc:
    """Return the soft delete policy.

    https://cloud.google.com/storage/docs/soft-delete
    """
    seconds = int(wanted.get("retentionDurationSeconds") or 0)
    if seconds and not 7 * _DAY <= seconds <= 90 * _DAY:
        raise GUESS.invalid("Soft delete policies must have a retention duration of 0 or from 7 to 90 days.")
    if old and seconds == int(old["retentionDurationSeconds"]):
        return old
    return {"retentionDurationSeconds": str(seconds), "effectiveTime": now}


def _check_rule(action: Doc, condition: Doc) -> None:
    """Refuse an invalid lifecycle rule.

    https://cloud.google.com/storage/docs/lifecycle
    """
    if action.get("type") not in _ACTIONS or any(int(condition.get(name) or 0) < 0 for name in _COUNTS):
        raise GUESS.invalid("Invalid argument.")
    if action["type"] == "SetStorageClass":
        storage_classes.checked(action.get("storageClass") or "")


def _check_labels(labels: dict[str, Any]) -> None:
    """Refuse invalid labels.

    https://cloud.google.com/storage/docs/tags-and-labels#bucket-labels
    """
    keys = all(key[:1].isalpha() and is_resource_word(key) for key in labels)
    if len(labels) > 64 or not keys or not all(is_resource_word(str(value)) for value in labels.values()):
        raise BUCKET_LABELS.invalid("Invalid argument.")
