"""Translate errors of Google's clients to errors of tpukit, classed by what the caller does next.

Reads only numbers and words, so that it loads none of Google's packages.
"""

from __future__ import annotations

import re

from tpukit.core.errors import (
    Conflict,
    Denied,
    Invalid,
    NoCapacity,
    NotFound,
    TpukitError,
    Transient,
    Unauthenticated,
    seconds_of,
)

SIGN_IN = "run `gcloud auth application-default login`; in a cluster, set up Workload Identity"
_NO_ROOM = re.compile(
    r"GCE_STOCKOUT|ZONE_RESOURCE_POOL_EXHAUSTED|does not have enough resources|no more capacity|Insufficient reserved",
    re.IGNORECASE,
)
_QUOTA = re.compile(r"quota", re.IGNORECASE)
_BUSY = re.compile(r"Too many operations|concurrent operations quota|Quota exceeded for quota metric", re.IGNORECASE)
"""Limit on concurrent requests or operations: it passes by itself, unlike a quota of chips."""
_TPU_PERMISSION = re.compile(r"\btpu\.\w+\.(\w+)")
_UNDER_WAY = re.compile(r"incompatible operation|is currently|Please wait|try again", re.IGNORECASE)


def is_stockout(message: str) -> bool:
    return bool(_NO_ROOM.search(message))


def is_quota(message: str) -> bool:
    return bool(_QUOTA.search(message)) and not _BUSY.search(message)


def is_failed_precondition(error: BaseException | None) -> bool:
    """Return whether Google refuses a valid request because of the current state.

    Over REST, both this and an invalid request are a 400; the status word tells them apart
    (https://cloud.google.com/apis/design/errors).
    """
    response = getattr(error, "response", None)
    try:
        return bool(response.json()["error"]["status"] == "FAILED_PRECONDITION") if response is not None else False
    except (ValueError, LookupError, TypeError, AttributeError):
        return False


def translated(error: Exception, asked: str) -> TpukitError:
    """Return the error of tpukit for an error of a generated client, its sign-in or its connection."""
    message = str(getattr(error, "message", "") or error) or type(error).__name__
    code = getattr(error, "code", None)
    status = int(code) if isinstance(code, int) else 0
    if "google.auth" in type(error).__module__:
        gone = "Transport" in type(error).__name__
        return Transient(f"{asked}: {message}") if gone else Unauthenticated(f"{asked}: {message}", hint=SIGN_IN)
    if status == 0:
        return Transient(f"{asked} got no response: {message}")
    found = _of_status(status, f"{asked}: {message}")
    pause = seconds_of((getattr(getattr(error, "response", None), "headers", None) or {}).get("Retry-After", ""))
    if pause and isinstance(found, Transient):
        found.retry_after = pause
    return found


def _role_hint(text: str) -> str:
    """Return the role to request, if the refusal names a permission of the TPU API."""
    page = "deploy/README.md lists all roles"
    found = _TPU_PERMISSION.search(text)
    if found is None:
        return f"ask an owner of the project for the role; {page}"
    role = "roles/tpu.viewer" if found[1] in ("get", "list") else "roles/tpu.admin"
    return f"ask an owner of the project for {role}; {page}"


def _of_status(status: int, text: str) -> TpukitError:
    if status == 404:
        return NotFound(text)
    if status in (409, 412):  # conflicting write, or a failed precondition
        return Conflict(text)
    if status == 401:
        return Unauthenticated(text, hint=SIGN_IN)
    if is_stockout(text) or (status in (403, 429) and is_quota(text)):
        return NoCapacity(text)
    if status == 429:
        return Transient(text, retry_after=5.0)
    if status == 403:
        return Denied(text, hint=_role_hint(text))
    if status == 400:
        return Transient(text, retry_after=5.0) if _UNDER_WAY.search(text) else Invalid(text)
    return Transient(text)
