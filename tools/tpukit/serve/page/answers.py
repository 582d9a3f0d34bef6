"""Responses of the page: the whole page, or only its changing part if the page itself requests it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from tpukit.serve.page import templating

Menu = Sequence[tuple[str, str]]


def page(template: str, title: str, command: str, menu: Menu, request: Request, **context: Any) -> Response:
    frame = "fragment.html" if request.headers.get("hx-request") == "true" else "page.html"
    path = request.url.path
    here = path + (f"?{request.url.query}" if request.url.query else "")
    frames = {"template": template, "title": title, "command": command, "menu": menu, "path": path, "here": here}
    return HTMLResponse(templating.render(frame, **frames, **context))
