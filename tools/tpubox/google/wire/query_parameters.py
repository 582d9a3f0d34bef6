"""Refusal of query parameters that the method does not have.

The parameters are data from Google's own descriptions of its APIs. Most of these share a front, which binds each
parameter to a field of the request; Compute Engine and Cloud Storage have other fronts, which ignore unknown ones.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from functools import cache
from pathlib import Path

from tpubox.google.wire.api import Request, Route, camel
from tpubox.google.wire.common_refusals import unknown_parameters

_EVERYWHERE = {
    *(".xgafv", "access_token", "alt", "callback", "fields", "key", "oauth_token", "prettyPrint", "quotaUser"),
    *("uploadType", "upload_protocol", "userIp", "userProject"),
}
"""Parameters of every method; all of them may start with a $.

https://cloud.google.com/apis/docs/system-parameters
"""


def checked(api: str, route: Route, request: Request) -> Request:
    """Return the request with the JSON names of its parameters: page_size is accepted for pageSize."""
    known = of(api, request, route)
    if known is None:
        return request
    query, unknown = {}, []
    for name, value in request.query.items():
        if name.removeprefix("$") in _EVERYWHERE:
            query[name] = value
        elif camel(name) in known:
            query[camel(name)] = value
        else:
            unknown.append(name)
    if unknown:
        raise unknown_parameters(unknown)
    return replace(request, query=query)


def of(api: str, request: Request, route: Route) -> list[str] | None:
    """Return the parameters of a method; None if no document has it."""
    version = re.search(r"/(v\d\w*)/", request.path)
    return _table().get(api, {}).get(version[1] if version else "", {}).get(f"{request.method} {route.path}")


@cache
def _table() -> dict[str, dict[str, dict[str, list[str]]]]:
    found: dict[str, dict[str, dict[str, list[str]]]] = json.loads(
        Path(__file__).with_name("parameters.json").read_bytes()
    )
    return found
