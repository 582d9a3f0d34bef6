"""Routes of one job: its page, log and curve, and the actions that the user confirms first."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from tpukit import places
from tpukit.core.errors import NotFound
from tpukit.jobs import person_requests
from tpukit.serve.page import curves, job_page, templating
from tpukit.serve.page.answers import Menu, page
from tpukit.serve.page.site import Site

ACTIONS = ("stop", "resume", "rerun")
WORDS_MOST = 200


class JobRoutes:
    def __init__(self, site: Site, menu: Menu) -> None:
        self._site, self._menu = site, menu
        self.routes = [
            Route("/job/{job}", self._show),
            Route("/job/{job}/log", self._log),
            Route("/job/{job}/curve", self._curve),
            Route("/job/{job}/lines", self._lines),
            Route("/job/{job}/manifest", self._manifest),
            Route("/job/{job}/{action}", self._confirm, methods=["GET"]),
            Route("/job/{job}/{action}", self._act, methods=["POST"]),
        ]

    def _show(self, request: Request) -> Response:
        job_id = request.path_params["job"]
        found = job_page.find(self._site, job_id)
        context = job_page.context(self._site, job_id)
        still = {
            "names": job_page.host_names(found),
            "spec": job_page.spec_text(found),
            "rendered": found.place == places.RENDERED,
        }
        return page("job.html", job_id, f"tpu job show {job_id}", self._menu, request, **context, **still)

    def _log(self, request: Request) -> Response:
        found, query = job_page.find(self._site, request.path_params["job"]), request.query_params
        attempt = query.get("attempt", "")
        number = int(attempt) if attempt.isdecimal() and len(attempt) < 10 else None
        names = job_page.host_names(found)
        host = query.get("host", "")
        host = host if host in names else (names[0] if names else "")
        lines, why = job_page.log(self._site, found, host, number, query.get("q", "")[:WORDS_MOST])
        return HTMLResponse(templating.render("log.html", lines=lines, why=why))

    def _curve(self, request: Request) -> Response:
        return JSONResponse(curves.of_job(self._site, job_page.find(self._site, request.path_params["job"])))

    def _lines(self, request: Request) -> Response:
        found = job_page.find(self._site, request.path_params["job"])
        lines = job_page.last_lines(self._site, found)
        more = max(0, len(job_page.host_names(found)) - len(lines))
        return HTMLResponse(templating.render("lines.html", lines=lines, more=more))

    def _manifest(self, request: Request) -> Response:
        found = job_page.find(self._site, request.path_params["job"])
        return HTMLResponse(templating.render("manifest.html", text=job_page.manifest_text(found)))

    def _confirm(self, request: Request) -> Response:
        found, action = job_page.find(self._site, request.path_params["job"]), _action(request)
        command = f"tpu job {action} {found.id}"
        return page("confirm.html", f"{action} {found.id}?", command, self._menu, request, id=found.id, action=action)

    def _act(self, request: Request) -> Response:
        site, action = self._site, _action(request)
        found, now, who = job_page.find(site, request.path_params["job"]), site.clock.now(), f"{site.owner} on the page"
        if action == "stop":
            person_requests.stop(site.store, found.id, who, now)
        else:
            person_requests.asked(found, action)
            if found.place in site.places:
                person_requests.check_code(site.places, found)
            person_requests.again(site.store, found.id, action, who, now)
        return RedirectResponse(f"/job/{found.id}", status_code=303)


def _action(request: Request) -> str:
    action = str(request.path_params["action"])
    if action not in ACTIONS:
        raise NotFound(f"action {action!r} does not exist", hint=f"write one of {', '.join(ACTIONS)}")
    return action
