"""The REST front end of the queue, for programs in any language: submit, list, show, cancel, retry, result.

Without a token only the health endpoints are readable. The front end only reads and writes documents: `tpu queue serve`
does the rest, on this machine or elsewhere.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import msgspec

from tpukit.code_queue import rest_document
from tpukit.code_queue.access import Access
from tpukit.code_queue.client import Client
from tpukit.code_queue.records import ACTIVE, COMPLETED, ENDED, QueuedJob
from tpukit.code_queue.rest_document import BODY_LIMIT, LONGEST_LIST, METADATA_LIMIT, Problem, Submission
from tpukit.code_queue.results import Results
from tpukit.core.errors import Conflict, Denied, Invalid, NotFound, TpukitError, Transient, Unauthenticated

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.types import Receive, Scope, Send

OPEN = ("/healthz", "/readyz")
_STATUSES: tuple[tuple[type[TpukitError], int], ...] = (
    (Invalid, 400),
    (Unauthenticated, 401),
    (Denied, 403),
    (NotFound, 404),
    (Conflict, 409),
    (Transient, 503),
)
log = logging.getLogger("tpukit.code_queue.rest")


def app(client: Client, access: Access, results: str) -> Starlette:
    """Return the application. `results` is the folder or gs:// address where workers write large results."""
    from starlette.applications import Starlette
    from starlette.exceptions import HTTPException
    from starlette.responses import PlainTextResponse
    from starlette.routing import Route

    stored = Results(results)

    async def submit(request: Request) -> Response:
        wanted = _submission(await _body(request))
        metadata = {**wanted.metadata, "submitted_by": wanted.metadata.get("submitted_by", request.scope["caller"])}
        fields = {name: getattr(wanted, name) for name in ("timeout", "challenge_number", "priority", "unique")}
        options = {**fields, "metadata": metadata, "max_faults": wanted.max_faults}
        key = await _thread(lambda: client.submit(wanted.code, **options))
        return _job(key, await _thread(lambda: client.get(key)), 201)

    async def listed(request: Request) -> Response:
        states, limit = _states(request), _limit(request)
        entries = await _thread(lambda: client.list(states=states, limit=limit + 1))
        jobs = [{"id": entry.key, **msgspec.to_builtins(entry.value)} for entry in entries[:limit]]
        return _json({"jobs": jobs, "more": len(entries) > limit})

    async def result(request: Request) -> Response:
        key = request.path_params["job_id"]
        job = await _thread(lambda: client.get(key))
        if job.status != COMPLETED:
            raise Conflict(f"{key} has no result: it is {job.status}", hint=str(job.error or ""))
        return PlainTextResponse(await _thread(lambda: stored.read(key, job)))

    def on_one(call: Callable[[str], QueuedJob]) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            key = request.path_params["job_id"]
            return _job(key, await _thread(lambda: call(key)))

        return answer

    async def describe(request: Request) -> Response:
        return _json(rest_document.openapi())

    async def live(request: Request) -> Response:
        return PlainTextResponse("ok\n")

    async def ready(request: Request) -> Response:
        try:
            await _thread(client.ping)
        except TpukitError:
            return PlainTextResponse("the store is unreachable\n", 503)
        return PlainTextResponse("ready\n")

    routes = [
        Route("/v1/jobs", submit, methods=["POST"]),
        Route("/v1/jobs", listed, methods=["GET"]),
        Route("/v1/jobs/{job_id}", on_one(client.get), methods=["GET"]),
        Route("/v1/jobs/{job_id}/result", result, methods=["GET"]),
        Route("/v1/jobs/{job_id}/cancel", on_one(client.cancel), methods=["POST"]),
        Route("/v1/jobs/{job_id}/retry", on_one(client.retry), methods=["POST"]),
        Route("/openapi.json", describe, methods=["GET"]),
        Route("/healthz", live, methods=["GET"]),
        Route("/readyz", ready, methods=["GET"]),
    ]
    handlers: dict[Any, Any] = {TpukitError: _refused, HTTPException: _unrouted, Exception: _failed}
    made = Starlette(routes=routes, exception_handlers=handlers)
    made.router.redirect_slashes = False
    made.add_middleware(_Door, access=access)
    return made


class _Door:
    """Middleware that authenticates the caller before any request is handled."""

    def __init__(self, app: Any, access: Access) -> None:
        self._app, self._access = app, access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        from starlette.requests import Request

        if scope["type"] != "http":  # the server's own start and end; there are no other protocols
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return
        if scope["path"] not in OPEN:
            request = Request(scope)
            try:
                header = request.headers.get("authorization", "")
                scope["caller"] = await _thread(lambda: self._access.check(header))
            except TpukitError as error:
                refused = await _refused(request, error)
                await refused(scope, receive, send)
                return
        await self._app(scope, receive, send)


async def _thread(call: Callable[[], Any]) -> Any:
    """Run a blocking call of the store outside the event loop."""
    from starlette.concurrency import run_in_threadpool

    return await run_in_threadpool(call)


async def _body(request: Request) -> bytes:
    from starlette.exceptions import HTTPException

    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > BODY_LIMIT:
            raise HTTPException(413, f"a request has at most {BODY_LIMIT:,} bytes")
    return bytes(body)


def _submission(body: bytes) -> Submission:
    try:
        wanted = msgspec.convert(_with_integers(msgspec.json.decode(body)), Submission)
        size = len(msgspec.json.encode(wanted.metadata))
    except (msgspec.MsgspecError, UnicodeError, RecursionError, ValueError) as error:
        raise Invalid(str(error)) from error
    if size > METADATA_LIMIT:
        raise Invalid(f"metadata: it has more than {METADATA_LIMIT:,} bytes", hint="put large data into a bucket")
    return wanted


def _with_integers(fields: Any) -> Any:
    """Convert whole floats to integers: 5.0 is an integer in JSON Schema and in clients with one number type."""
    if not isinstance(fields, dict):
        return fields
    return {
        name: int(value) if isinstance(value, float) and value.is_integer() else value for name, value in fields.items()
    }


def _states(request: Request) -> list[str]:
    if foreign := set(request.query_params) - {"status", "limit"}:
        raise Invalid(f"there is no parameter {min(foreign)!r}", hint="status and limit")
    asked = request.query_params.getlist("status")
    if unknown := [one for one in asked if one not in (*ACTIVE, *ENDED)]:
        raise Invalid(f"status: {unknown[0]!r} does not exist", hint=f"one of {', '.join((*ACTIVE, *ENDED))}")
    return asked


def _limit(request: Request) -> int:
    asked = request.query_params.get("limit", "50")
    if not (asked.isascii() and asked.isdigit() and len(asked) < 9 and 1 <= int(asked) <= LONGEST_LIST):
        raise Invalid(f"limit: {asked!r} is not a number from 1 to {LONGEST_LIST}")
    return int(asked)


def _job(key: str, job: QueuedJob, status: int = 200) -> Response:
    return _json({"id": key, **msgspec.to_builtins(job)}, status)


def _json(answer: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    from starlette.responses import Response

    # Documents of plain clients hold values that JSON cannot express.
    return Response(msgspec.json.encode(answer, enc_hook=str), status, headers=headers, media_type="application/json")


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, TpukitError)
    status = next((code for kind, code in _STATUSES if isinstance(error, kind)), 500)
    headers = {}
    if status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    if isinstance(error, Transient):
        headers["Retry-After"] = str(max(1, round(error.retry_after)))
    return _json(msgspec.to_builtins(Problem(error.message, error.hint)), status, headers)


async def _unrouted(request: Request, error: Exception) -> Response:
    from starlette.exceptions import HTTPException

    assert isinstance(error, HTTPException)
    problem = Problem(str(error.detail), "GET /openapi.json lists all paths")
    return _json(msgspec.to_builtins(problem), error.status_code, dict(error.headers or {}))


async def _failed(request: Request, error: Exception) -> Response:
    log.error("%s %s failed", request.method, request.url.path, exc_info=error)
    return _json(msgspec.to_builtins(Problem("internal error; the log of this service has details")), 500)
