"""Errors in the format of Cloud Storage's XML API.

https://cloud.google.com/storage/docs/xml-api/reference-status
"""

from __future__ import annotations

from xml.sax.saxutils import escape

from tpubox.google.wire.refusal import Refused

_CODES = {
    400: ("InvalidArgument", "Invalid argument."),
    401: ("AuthenticationRequired", "Authentication required."),
    403: ("AccessDenied", "Access denied."),
    404: ("NoSuchKey", "The specified key does not exist."),
    412: ("PreconditionFailed", "At least one of the pre-conditions you specified did not hold."),
    416: ("InvalidRange", "The requested range cannot be satisfied."),
    429: ("SlowDown", "Please reduce your request rate."),
    503: ("ServiceUnavailable", "Service unavailable. Please retry."),
}
_NO_BUCKET = ("NoSuchBucket", "The specified bucket does not exist.")


def body(refused: Refused) -> bytes:
    code, message = _CODES.get(refused.code, ("InternalError", "We encountered an internal error. Please try again."))
    if refused.message == _NO_BUCKET[1]:
        code, message = _NO_BUCKET
    inside = f"<Code>{code}</Code><Message>{message}</Message><Details>{escape(refused.message)}</Details>"
    return f"<?xml version='1.0' encoding='UTF-8'?><Error>{inside}</Error>".encode()
