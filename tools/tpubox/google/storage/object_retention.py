"""Cloud Storage: objects that cannot be deleted or replaced yet, because of a hold or a bucket's retention policy.

https://cloud.google.com/storage/docs/bucket-lock and https://cloud.google.com/storage/docs/object-holds
"""

from __future__ import annotations

from datetime import datetime

from tpubox.google.wire.cloud import Cloud, stamp
from tpubox.google.wire.sources import GUESS, RETENTION
from tpubox.google.wire.state import Doc

_HOLDS = {"temporaryHold": "Temporary", "eventBasedHold": "Event-Based"}
_SINCE = "_retained_since"
"""Field with the start of an object's retention, if it differs from the creation time."""
_LONGEST = 3_155_760_000
"""100 years in seconds."""


def check_may_go(cloud: Cloud, bucket: Doc, found: Doc) -> None:
    name = f"{found['bucket']}/{found['name']}"
    for field, kind in _HOLDS.items():
        if found.get(field):
            raise GUESS.refused(
                403,
                f"Object '{name}' is under active {kind} hold and cannot be deleted, overwritten or archived until "
                "hold is removed.",
                reason="objectUnderActiveHold",
            )
    until = _until(bucket, found)
    if until > cloud.clock.now():
        raise RETENTION.refused(
            403,
            f"Object '{name}' is subject to bucket's retention policy and cannot be deleted, overwritten or archived "
            f"until {stamp(until)}",
        )


def shown(bucket: Doc, found: Doc) -> Doc:
    """Return Google's additions to a retained object. Under an event-based hold the expiration is unknown."""
    until = _until(bucket, found)
    return {"retentionExpirationTime": stamp(until)} if until and not found.get("eventBasedHold") else {}


def at_first(bucket: Doc) -> Doc:
    return {"eventBasedHold": True} if bucket.get("defaultEventBasedHold") else {}


def at_change(old: Doc, new: Doc, now: str) -> Doc:
    """Restart the retention period when the event-based hold is released."""
    return {_SINCE: now} if old.get("eventBasedHold") and not new.get("eventBasedHold") else {}


def policy(old: Doc | None, wanted: Doc | None, bucket: str, now: str) -> Doc | None:
    """Return the new policy of a bucket with the old one. A locked policy can only be extended."""
    period = _period(wanted)
    if wanted is not None and not 0 < period <= _LONGEST:
        raise GUESS.invalid("Invalid argument.")
    if old and old.get("isLocked") and period < _period(old):
        raise GUESS.refused(
            403, f"Cannot reduce retention duration of a locked Retention Policy for bucket '{bucket}'."
        )
    if wanted is None:
        return None
    kept = {key: value for key, value in (old or {}).items() if key in ("effectiveTime", "isLocked")}
    since = kept if period == _period(old) else {**kept, "effectiveTime": now}
    return {**since, "retentionPeriod": str(period)}


def locked(found: Doc | None, bucket: str) -> Doc:
    if not found:
        raise GUESS.invalid(f"Bucket '{bucket}' does not have a Retention Policy.")
    return {**found, "isLocked": True}


def _until(bucket: Doc, found: Doc) -> float:
    if not bucket.get("retentionPolicy"):
        return 0.0
    since = datetime.fromisoformat(found[_SINCE if _SINCE in found else "timeCreated"])
    return since.timestamp() + _period(bucket["retentionPolicy"])


def _period(found: Doc | None) -> int:
    return int((found or {}).get("retentionPeriod") or 0)
