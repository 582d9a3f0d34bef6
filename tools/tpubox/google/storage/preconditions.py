"""Cloud Storage: request preconditions.

https://cloud.google.com/storage/docs/request-preconditions
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tpubox.google.wire.api import Call
from tpubox.google.wire.refusal import Refused
from tpubox.google.wire.sources import PRECONDITION
from tpubox.google.wire.state import Doc

_NAMES = ("generation", "metageneration")
_READS = ("GET", "HEAD")


def check(conditions: Mapping[str, Any], found: Doc | None, *, what: str = "", reads: bool = False) -> None:
    """Refuse a request whose preconditions fail, with 304 for unchanged reads.

    `what` is "Source" for the second resource of a request.
    """
    for field in _NAMES:
        value = str(found[field]) if found else "0"
        head = f"if{what}{field.capitalize()}"
        if str(conditions.get(f"{head}Match", value)) != value:
            raise _failed()
        unwanted = conditions.get(f"{head}NotMatch")
        # Without a live object, no generation can differ.
        if unwanted is not None and (str(unwanted) == value or (field == "generation" and not found)):
            raise PRECONDITION.refused(304, "") if reads else _failed()


def check_bucket(call: Call, found: Doc) -> None:
    """Check preconditions of a bucket, which only has a metageneration."""
    check(call.query, {"generation": "0", **found}, reads=call.request.method in _READS)


def check_headers(call: Call, found: Doc) -> None:
    """Check preconditions in the headers of the XML API.

    https://cloud.google.com/storage/docs/xml-api/reference-headers#xgoogifgenerationmatch
    """
    for field in _NAMES:
        if call.request.headers.get(f"x-goog-if-{field}-match", found[field]) != found[field]:
            raise _failed()
    check_etag(call, found)


def check_etag(call: Call, found: Doc) -> None:
    """Check If-Match and If-None-Match of reads; other requests ignore them, and an etag in a body.

    https://github.com/googleapis/python-storage/pull/489
    """
    wanted, unwanted = (_etags(call, name, without) for name, without in (("if-match", "*"), ("if-none-match", "")))
    if found["etag"] not in wanted and "*" not in wanted:
        raise _failed()
    if found["etag"] in unwanted or "*" in unwanted:
        raise PRECONDITION.refused(304, "")


def _etags(call: Call, header: str, without: str) -> list[str]:
    return [one.strip().strip('"') for one in call.request.headers.get(header, without).split(",")]


def _failed() -> Refused:
    return PRECONDITION.refused(412, "At least one of the pre-conditions you specified did not hold.")
