"""Routes of the page and their views. Handlers that read run in threads of their own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

from tpukit.core.errors import NotFound, TpukitError
from tpukit.serve.page import lists, overview, templating
from tpukit.serve.page.answers import page
from tpukit.serve.page.changes import Changes
from tpukit.serve.page.guard import Guard, cookie_name
from tpukit.serve.page.job_routes import JobRoutes
from tpukit.serve.page.sessions import SESSION_SECONDS, Sessions
from tpukit.serve.page.site import Site

Read = Callable[[Site, Request], dict[str, Any]]


def _jobs(site: Site, request: Request) -> dict[str, Any]:
    return lists.jobs(site, request.query_params.get("state", ""), request.query_params.get("after", ""))


VIEWS: tuple[tuple[str, str, str, str, Read], ...] = (
    ("now", "/", "Now", "tpu job list --active", lambda site, request: overview.context(site)),
    ("jobs", "/jobs", "Jobs", "tpu job list --all", _jobs),
    ("teams", "/teams", "Teams", "tpu cost --since 30d", lambda site, request: lists.teams(site)),
    ("fleets", "/fleets", "Fleets", "tpu fleet list", lambda site, request: lists.fleets(site)),
    ("queue", "/queue", "Code queue", "tpu queue list", lambda site, request: lists.queue(site)),
    ("vms", "/vms", "TPU VMs", "tpu vm list", lambda site, request: lists.vms(site)),
    ("cluster", "/cluster", "Cluster", "tpu cluster status", lambda site, request: lists.cluster(site)),
)
"""Template, address, title, the equivalent command, and the function that reads the data."""
MENU = [(address, title) for _, address, title, _, _ in VIEWS]


def build(site: Site, sessions: Sessions, port: int) -> ASGIApp:
    """Return the ASGI application of the page."""
    changes = Changes(site.store)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        await changes.start()
        yield
        changes.stop()

    async def events(request: Request) -> Response:
        return StreamingResponse(changes.stream(), media_type="text/event-stream")

    routes = [
        *(Route(address, _view(site, name, title, command, read)) for name, address, title, command, read in VIEWS),
        *JobRoutes(site, MENU).routes,
        *_entry(sessions, port),
        Route("/events", events),
        Mount("/static", StaticFiles(directory=templating.FOLDER.with_name("static"))),
    ]
    return Guard(Starlette(routes=routes, lifespan=lifespan, exception_handlers={TpukitError: _failed}), sessions, port)


def _view(site: Site, name: str, title: str, command: str, read: Read) -> Callable[[Request], Response]:
    def answer(request: Request) -> Response:
        return page(f"{name}.html", title, command, MENU, request, **read(site, request))

    return answer


def _entry(sessions: Sessions, port: int) -> list[Route]:
    """Return the routes that give a browser its session: a one-time link, created for holders of the token."""

    def enter(request: Request) -> Response:
        session = sessions.enter(request.query_params.get("code", ""))
        if not session:
            return PlainTextResponse("This link has been used or has expired. Run `tpu page` again.\n", status_code=401)
        answer = RedirectResponse("/", status_code=303)
        answer.set_cookie(
            cookie_name(port), session, max_age=int(SESSION_SECONDS), httponly=True, samesite="strict", path="/"
        )
        return answer

    def link(request: Request) -> Response:
        code = sessions.link(request.headers.get("authorization", "").removeprefix("Bearer "))
        return PlainTextResponse(code, status_code=200 if code else 401)

    return [Route("/enter", enter), Route("/link", link, methods=["POST"])]


async def _failed(request: Request, error: Exception) -> Response:
    text = templating.render(
        "page.html", template="error.html", words=str(error), menu=MENU, path="", title="Error", command="", here="/"
    )
    return HTMLResponse(text, status_code=404 if isinstance(error, NotFound) else 409)
