"""Lists in pages: the page sizes, and the tokens of the next pages.

Every list whose method has a parameter `pageToken` is paged. The sizes are those in Google's discovery documents;
without one, a size that fits all resources of a box. A token belongs to its request and is refused with another, as in
https://google.aip.dev/158; the text of that error is a guess.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Mapping
from typing import Any

from tpubox.google.wire import query_parameters
from tpubox.google.wire.api import Request, Route
from tpubox.google.wire.sources import GUESS
from tpubox.google.wire.state import Doc

_ANY = (1000, 1000)
SIZES: Mapping[str, Mapping[str, tuple[int, int]]] = {
    "compute": {"items": (500, 500), "managedInstances": (500, 500)},
    "iam": {"accounts": (20, 100), "roles": (300, 1000)},
    "service_usage": {"services": (50, 200)},
    "vertex_ai": {
        "tensorboards": (100, 100),
        "tensorboardExperiments": (50, 1000),
        "tensorboardRuns": (50, 1000),
        "tensorboardTimeSeries": (50, 1000),
    },
}
"""Default and maximum page sizes, by API and listed field; others are of any size."""
_OWN = "b/{bucket}/o"
"""Route of the list of objects, which makes its own pages because prefixes count too."""
_OF_THE_PAGE = ("maxResults", "pageSize", "pageToken")


def page(api: str, route: Route, request: Request, answer: Doc) -> Doc:
    """Return the requested part of a list. Other answers are returned unchanged."""
    if "pageToken" not in (query_parameters.of(api, request, route) or ()) or route.path == _OWN:
        return answer
    field = next((name for name, value in answer.items() if isinstance(value, list) or name == "items"), "")
    start, size = asked(request, *SIZES.get(api, {}).get(field, _ANY))
    if not field:
        return answer
    things: Any = answer[field]
    rest = {key: value for key, value in answer.items() if key != "nextPageToken"}
    if len(things) > start + size:
        rest["nextPageToken"] = token(request, start + size)
    # An aggregated list maps places to their items.
    listed = dict(list(things.items())[start : start + size]) if isinstance(things, dict) else things[start:][:size]
    return {**rest, field: listed}


def asked(request: Request, unless_told: int, most: int) -> tuple[int, int]:
    """Return the start of the page as an index, and the maximum number of items."""
    size = length(request, unless_told, most)
    return int(begin(request) or 0), size


def length(request: Request, unless_told: int, most: int) -> int:
    """Return the maximum number of items of a page."""
    return min(_number(request.query) or unless_told, most)


def begin(request: Request) -> int | str | None:
    """Return the start of the page from its token; None without one."""
    text = request.query.get("pageToken", "")
    if not text:
        return None
    try:
        start, of = json.loads(base64.urlsafe_b64decode(text))
    except (TypeError, ValueError) as error:
        raise GUESS.invalid("Page token is malformed.") from error
    if of != _mark(request):
        raise GUESS.invalid("Page token does not belong to this request: it came with other parameters.")
    found: int | str = start
    return found


def token(request: Request, start: int | str) -> str:
    return base64.urlsafe_b64encode(json.dumps([start, _mark(request)]).encode()).decode()


def no_results(scope: str) -> Doc:
    """Return the entry of an aggregated list for a place without items.

    https://cloud.google.com/compute/docs/reference/rest/v1/subnetworks/aggregatedList
    """
    message = f"There are no results for scope '{scope}' on this page."
    return {"warning": {"code": "NO_RESULTS_ON_PAGE", "message": message, "data": [{"key": "scope", "value": scope}]}}


def _number(query: Mapping[str, str]) -> int:
    text = query.get("pageSize") or query.get("maxResults") or "0"
    if not text.isdecimal():
        raise GUESS.invalid(f"Invalid value at 'page_size' (TYPE_INT32), \"{text}\"")
    return int(text)


def _mark(request: Request) -> int:
    """Return a mark that differs from that of every other list."""
    others = sorted((name, value) for name, value in request.query.items() if name not in _OF_THE_PAGE)
    return zlib.crc32(json.dumps([request.path, others]).encode())
