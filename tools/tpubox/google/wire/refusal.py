"""Google's errors: one exception, and the error body that its clients read.

Only a Source creates one, so that the origin of each text and format is recorded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

STATUS = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    409: "ALREADY_EXISTS",
    412: "FAILED_PRECONDITION",
    429: "RESOURCE_EXHAUSTED",
    500: "INTERNAL",
    501: "UNIMPLEMENTED",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}
_REASON = {
    400: "invalid",
    401: "authError",
    403: "forbidden",
    404: "notFound",
    409: "alreadyExists",
    412: "conditionNotMet",
    429: "rateLimitExceeded",
    500: "backendError",
    501: "notImplemented",
    503: "backendError",
    504: "deadlineExceeded",
}
_OF_THE_FRONT = ("RATE_LIMIT_EXCEEDED", "SERVICE_DISABLED")
"""Reasons of refusals by Google's common front, which have a status for every service.

For Cloud Storage that is a guess.
"""
CODES = {
    "INVALID_ARGUMENT": 3,
    "NOT_FOUND": 5,
    "ALREADY_EXISTS": 6,
    "PERMISSION_DENIED": 7,
    "RESOURCE_EXHAUSTED": 8,
    "FAILED_PRECONDITION": 9,
    "ABORTED": 10,
    "INTERNAL": 13,
    "UNAVAILABLE": 14,
}
"""Numbers of google.rpc.Code, as in errors of operations."""


class Refused(Exception):
    """A request that is answered with an error. `status` is the word for the number; most numbers have one."""

    def __init__(
        self,
        code: int,
        message: str,
        *,
        source: str,
        status: str = "",
        reason: str = "",
        details: Sequence[Mapping[str, Any]] = (),
        retry_after: float = 0.0,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.source = source
        self.status = status or STATUS.get(code, "UNKNOWN")
        self.reason = reason or _REASON.get(code, "unknown")
        self.details = tuple(details)
        self.retry_after = retry_after  # seconds

    def body(self, *, with_reasons: bool = False, with_status: bool = True) -> dict[str, Any]:
        """Return the body of the answer.

        Compute Engine and Cloud Storage write a list with one reason and no status; GKE and IAM write both; all others
        write only the status.
        https://cloud.google.com/storage/docs/json_api/v1/status-codes
        https://cloud.google.com/apis/design/errors#error_model
        """
        error: dict[str, Any] = {"code": self.code, "message": self.message}
        if with_reasons:
            error["errors"] = [{"message": self.message, "domain": "global", "reason": self.reason}]
        if with_status or self._is_of_the_front():
            error["status"] = self.status
        if self.details:
            error["details"] = list(self.details)
        return {"error": error}

    def _is_of_the_front(self) -> bool:
        """Return True if the common front refused the request before the service saw it."""
        return self.code == 401 or any(one.get("reason") in _OF_THE_FRONT for one in self.details)


@dataclass(frozen=True, slots=True)
class Source:
    """Origin of refusals: the address of a page that has them, or a word if there is none."""

    address: str

    def refused(
        self,
        code: int,
        message: str,
        *,
        status: str = "",
        reason: str = "",
        details: Sequence[Mapping[str, Any]] = (),
        retry_after: float = 0.0,
    ) -> Refused:
        return Refused(
            code,
            message,
            source=self.address,
            status=status,
            reason=reason,
            details=details,
            retry_after=retry_after,
        )

    def invalid(self, message: str) -> Refused:
        return self.refused(400, message)

    def not_ready(self, message: str) -> Refused:
        """Refuse a valid request at the wrong time: a retry can succeed."""
        return self.refused(400, message, status="FAILED_PRECONDITION", reason="failedPrecondition")

    def not_found(self, message: str) -> Refused:
        return self.refused(404, message)

    def exists(self, message: str, resource: str = "") -> Refused:
        """Refuse a duplicate. `resource` is the existing one, if the API names it outside the text too."""
        detail = {"@type": "type.googleapis.com/google.rpc.ResourceInfo", "resourceName": resource}
        return self.refused(409, message, details=[detail] if resource else [])

    def aborted(self, message: str) -> Refused:
        """Refuse a concurrent change: callers read the resource again before they retry."""
        return self.refused(409, message, status="ABORTED", reason="aborted")
