"""Routing of a request: find its API, check it, serve it, and record it."""

from __future__ import annotations

import json
import logging
import math
import re
from collections.abc import Mapping
from dataclasses import replace
from urllib.parse import unquote

from tpubox.box import answer_log as kept_answers
from tpubox.google.iam import account_names, permissions
from tpubox.google.projects import services
from tpubox.google.storage import xml_errors
from tpubox.google.wire import list_filter, list_order, location_checks, paging, query_parameters, schemas, update_masks
from tpubox.google.wire.api import Answer, Api, Call, Request, Route, Started
from tpubox.google.wire.cloud import Cloud
from tpubox.google.wire.common_refusals import too_many_requests
from tpubox.google.wire.faults import USUAL_SECONDS
from tpubox.google.wire.refusal import Refused
from tpubox.google.wire.settings import number_of
from tpubox.google.wire.sources import EMULATOR, GUESS
from tpubox.google.wire.state import Doc


def answer(cloud: Cloud, request: Request) -> Answer:
    """Answer a request. Operations that take no time have ended by then."""
    cloud.settle()
    given = _unanswered(cloud, request) or _answer(cloud, request)
    if given.status < 300 and cloud.faults.strike("lost", f"{request.method} {request.path}"):
        given = _cut("The answer was lost.")
    told = {"at": cloud.clock.now(), "method": request.method, "path": request.path, "status": given.status}
    who = {"principal": request.principal, "permissions": request.needed}
    with cloud.state.transaction():
        cloud.state.note({**told, **who, "agent": request.headers.get("user-agent", "")})
        cloud.faults.save()
    return given


def _unanswered(cloud: Cloud, request: Request) -> Answer | None:
    """Return an answer without content if a fault closes the connection."""
    target = f"{request.method} {request.path}"
    if cloud.faults.strike("cut", target):
        return _cut("The connection was cut.")
    if fault := cloud.faults.strike("hang", target):
        return _cut("The connection hung.", fault.seconds or USUAL_SECONDS)
    return None


def _cut(why: str, silence: float = 0.0) -> Answer:
    return replace(_json(503, EMULATOR.refused(503, why).body()), lost=True, silence=silence)


def api_of(cloud: Cloud, path: str) -> tuple[Api, str]:
    """Return the API of a path, and the path in it. By default it is a bucket of Cloud Storage."""
    first, _, rest = path.partition("/")
    if first not in cloud.apis:
        return cloud.apis[""], path
    # Some releases of the provider repeat the version, and Vertex AI's client polls operations below ui/.
    return cloud.apis[first], re.sub(r"^(v\d\w*/|ui/)+", "", rest)


def _answer(cloud: Cloud, request: Request) -> Answer:
    try:
        api, route, call = _find(cloud, request)
        _check_faults(cloud, api, call)
        wanted, by = list_filter.condition(api, route, call.request), list_order.keys(api, route, call.request)
        with cloud.state.transaction():
            result = route.handler(cloud, call)
        if isinstance(result, Started):
            cloud.settle()
            cloud.wait_while_ending(result.id)
            result = cloud.operation(api, result.id)
        elif not isinstance(result, Answer):
            result = list_filter.narrowed(result, wanted) if wanted else result
            result = list_order.ordered(result, by) if by else result
            result = paging.page(api.name, route, call.request, result)
    except Refused as refused:
        return refusal(cloud, request.path, refused)
    except Exception as error:
        # A bug of the emulator: logged here, and reported to the caller as Google would.
        logging.getLogger(__name__).exception("%s %s", request.method, request.path)
        flaw = EMULATOR.refused(500, f"The emulator failed: {type(error).__name__}: {error}")
        return refusal(cloud, request.path, flaw)
    if isinstance(result, Answer):
        return result
    kept_answers.keep(request.method, request.path, result)
    return _json(200, result)


def refusal(cloud: Cloud, path: str, refused: Refused) -> Answer:
    """Return the error in the format of the path's API."""
    api, _ = api_of(cloud, path)
    pause = {"retry-after": str(math.ceil(refused.retry_after))} if refused.retry_after else {}
    if api.xml_errors and refused.code != 501:  # 501 means an unsupported request
        headers = {"content-type": "application/xml; charset=UTF-8", **pause}
        return Answer(refused.code, xml_errors.body(refused), headers)
    reasons = api.own_front or api.reasons_too
    given = _json(refused.code, refused.body(with_reasons=reasons, with_status=not api.own_front))
    return replace(given, headers={**given.headers, **pause})


def _check_faults(cloud: Cloud, api: Api, call: Call) -> None:
    target = f"{call.request.method} {call.request.path}"
    if fault := cloud.faults.strike("refuse", target):
        words = fault.message or "The emulator was told to refuse this request."
        raise EMULATOR.refused(fault.status, words, retry_after=fault.seconds)
    if rate := cloud.faults.over_rate(target, cloud.clock.now()):
        raise too_many_requests(api.service, number_of(call.names.get("project", "")), rate.limit)


def _find(cloud: Cloud, request: Request) -> tuple[Api, Route, Call]:
    api, rest = api_of(cloud, request.path)
    found = api.find(request.method, rest)
    if found is None:
        raise EMULATOR.refused(501, f"The emulator does not answer {request.method} {unquote(request.path)}")
    route, names = found
    if not api.own_front:
        request = query_parameters.checked(api.name, route, request)
    if "project" in names:
        names = account_names.resolved(cloud, names)
        names["project"] = cloud.project(names["project"])
        services.check_enabled(cloud, api, names["project"])
        if api.has_location and not api.has_location(names.get("location", location_checks.ANY)):
            raise location_checks.denied(names["location"], api.service, names["project"])
    body = _parsed(request) if route.body is not None else {}
    if route.body:
        body = schemas.check(api.schema_of(request.path), route.body, body, own_front=api.own_front)
    call = Call(request, names, body)
    permissions.check(cloud, api, rest, call)
    if request.method == "PATCH" and route.body:
        update_masks.check(api.document, route.body, call)
    return api, route, call


def _parsed(request: Request) -> Doc:
    if not request.content.strip():
        return {}
    try:
        body = json.loads(request.content)
    except ValueError as error:
        raise GUESS.invalid(f"Invalid JSON payload received. {error}") from error
    if not isinstance(body, dict):
        raise GUESS.invalid("Invalid JSON payload received. An object is wanted.")
    return body


def _json(status: int, body: Mapping[str, object]) -> Answer:
    content = json.dumps(body).encode()
    return Answer(status, content, {"content-type": "application/json; charset=UTF-8"})
