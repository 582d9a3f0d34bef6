"""How Google says no: one exception, and the error body that its clients read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
"""Refusals that Google's common front gives for every service: they have both. For Cloud Storage that is a guess."""
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
"""Numbers of google.rpc.Code, as errors of operations carry them."""


class Refused(Exception):
    """A request that is answered with an error. `status` is the word beside the number; most numbers have one."""

    def __init__(
        self,
        code: int,
        message: str,
        *,
        status: str = "",
        reason: str = "",
        details: Sequence[Mapping[str, Any]] = (),
        retry_after: float = 0.0,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.status = status or STATUS.get(code, "UNKNOWN")
        self.reason = reason or _REASON.get(code, "unknown")
        self.details = tuple(details)
        self.retry_after = retry_after  # seconds

    def body(self, *, with_reasons: bool = False) -> dict[str, Any]:
        """The body of the answer. With reasons: a list with one, and no word beside the number, as Compute Engine and
        Cloud Storage write it; all others have the word alone.

        https://cloud.google.com/storage/docs/json_api/v1/status-codes
        https://cloud.google.com/apis/design/errors#error_model
        """
        error: dict[str, Any] = {"code": self.code, "message": self.message}
        if with_reasons:
            error["errors"] = [{"message": self.message, "domain": "global", "reason": self.reason}]
        if not with_reasons or self._is_of_the_front():
            error["status"] = self.status
        if self.details:
            error["details"] = list(self.details)
        return {"error": error}

    def _is_of_the_front(self) -> bool:
        """Whether the service itself never saw the request."""
        return self.code == 401 or any(one.get("reason") in _OF_THE_FRONT for one in self.details)


def too_many_requests(service: str, project_number: str, limit: int) -> Refused:
    """As the quota of requests refuses: without a Retry-After, so that callers slow down by themselves. The names of
    metric and limit differ from service to service; these are a guess.
    https://cloud.google.com/docs/quotas/error-messages"""
    metadata = {
        "service": service,
        "consumer": f"projects/{project_number}",
        "quota_metric": f"{service}/default_requests",
        "quota_limit": "RequestsPerMinutePerProject",
        "quota_limit_value": str(limit),
    }
    detail = {"reason": "RATE_LIMIT_EXCEEDED", "domain": "googleapis.com", "metadata": metadata}
    return Refused(
        429,
        f"Quota exceeded for quota metric 'Requests' and limit 'Requests per minute' of service '{service}' for "
        f"consumer 'project_number:{project_number}'.",
        details=[{"@type": "type.googleapis.com/google.rpc.ErrorInfo", **detail}],
    )


def invalid(message: str) -> Refused:
    return Refused(400, message)


def not_ready(message: str) -> Refused:
    """The request is fine and the moment is not: callers that retry will get through."""
    return Refused(400, message, status="FAILED_PRECONDITION", reason="failedPrecondition")
