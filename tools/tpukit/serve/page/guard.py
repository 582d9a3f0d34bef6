"""Checks on every request before it reaches the page, and security headers for every response."""

from __future__ import annotations

from http.cookies import CookieError, SimpleCookie
from typing import TYPE_CHECKING

from tpukit.serve.page.sessions import Sessions

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

OPEN_PATHS = ("/enter", "/link")
"""Paths that need no session: they check the code and the token themselves."""
STATIC = "/static/"
BODY_BYTES = 4096
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; font-src 'none'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = (
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"x-frame-options", b"DENY"),
)


def cookie_name(port: int) -> str:
    """Return a cookie name that differs by port: browsers share the cookies of all ports of a machine."""
    return f"tpukit_page_{port}"


class Guard:
    """ASGI middleware that keeps other sites from reading (Host, cookie) and acting (Origin, cookie)."""

    def __init__(self, app: ASGIApp, sessions: Sessions, port: int) -> None:
        self._app, self._sessions, self._port = app, sessions, port
        self._hosts = {f"{name}:{port}" for name in ("127.0.0.1", "localhost", "[::1]")}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = [pair for pair in message["headers"] if pair[0] not in {name for name, _ in HEADERS}]
                cached = scope["path"].startswith(STATIC)
                store = (b"cache-control", b"max-age=3600" if cached else b"no-store")
                message = {**message, "headers": [*headers, *HEADERS, store]}
            await send(message)

        if refused := self._refused(scope):
            await _answer(guarded, *refused)
        else:
            await self._app(scope, receive, guarded)

    def _refused(self, scope: Scope) -> tuple[int, str] | None:
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        host = headers.get("host", "")
        if host not in self._hosts:
            return 421, "This page answers to 127.0.0.1 and localhost only."
        method, path = scope["method"], scope["path"]
        if method not in ("GET", "HEAD", "POST"):
            return 405, "Method not allowed."
        if method == "POST":
            length = headers.get("content-length", "")
            if not length.isdecimal() or int(length) > BODY_BYTES:
                return 413, "Request body too large."
            from_page = headers.get("origin") == f"http://{host}"
            if path == "/link":
                return (403, "Not for browsers.") if "origin" in headers else None
            if not from_page:
                return 403, "The request did not come from this page."
        if path in OPEN_PATHS:
            return None
        if path.startswith(STATIC) or self._sessions.knows(_cookie(headers.get("cookie", ""), cookie_name(self._port))):
            return None
        return 401, "Not signed in: run `tpu page`, which opens this page with a link that works once."


def _cookie(header: str, name: str) -> str:
    try:
        found = SimpleCookie(header).get(name)
    except CookieError:
        return ""
    return found.value if found else ""


async def _answer(send: Send, status: int, text: str) -> None:
    body = f"{text}\n".encode()
    headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
