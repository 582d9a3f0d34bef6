"""HTTP server of a cloud on loopback, with token authentication.

A caller sends the token as `Authorization: Bearer TOKEN`, as Terraform does with GOOGLE_OAUTH_ACCESS_TOKEN. Clients of
Cloud Storage with STORAGE_EMULATOR_HOST send no token. They may use Cloud Storage only, if according to the kernel they
run as the user of the emulator, who could read the token anyway, and are not a browser acting for a web page.

Token and port are stored in the folder, so a restarted emulator has the same address. A second token permits only
Google's APIs: Pods send it, as they send the token of their service account to Google. A token issued by IAM
credentials permits what the roles of its service account allow.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import json
import os
import secrets
import socket
import threading
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from tpubox.box import callers
from tpubox.google import APIS
from tpubox.google.compute.login_profiles import OWNER_EMAIL
from tpubox.google.gke.pool_nodes import described
from tpubox.google.iam import credentials, permissions
from tpubox.google.storage.buckets import SERVICE as STORAGE
from tpubox.google.wire import admin as control
from tpubox.google.wire import endpoints, routing
from tpubox.google.wire.api import Answer, Api, Request
from tpubox.google.wire.cloud import Cloud
from tpubox.google.wire.common_refusals import unauthenticated
from tpubox.google.wire.settings import Hooks, Settings
from tpubox.tpu_vms.hypervisor import Hypervisor
from tpukit.core.clock import Clock
from tpukit.core.errors import Transient

if TYPE_CHECKING:
    import uvicorn
    from starlette.applications import Starlette
    from starlette.requests import Request as Incoming
    from starlette.responses import Response
    from starlette.types import Receive, Scope, Send

HOST = "127.0.0.1"
TICK_SECONDS = 0.1
CONTROL = "emulator/"
_METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"]


class Emulator:
    """A running cloud, as a context manager; leaving it stops the server and keeps the folder."""

    def __init__(
        self,
        folder: Path,
        settings: Settings | None = None,
        *,
        port: int = 0,
        clock: Clock | None = None,
        hooks: Hooks | None = None,
        apis: Sequence[Api] = APIS,
    ) -> None:
        self.folder = folder
        self.cloud = Cloud(folder, apis, settings, clock=clock, hooks=hooks, hooks_aside=True)
        try:
            self.token = _token(folder / "token")
            self.pods_token = _token(folder / "pods-token")
            self._socket = _listening(folder / "port", port)
            self.hypervisor = Hypervisor(self.cloud, folder, self.address)
            self.cloud.hooks = replace(
                self.cloud.hooks, on_vm_changed=self.hypervisor.ensure, vm_has_hosts=self.hypervisor.has_hosts
            )
        except BaseException:
            self.cloud.close()
            raise
        self._server, self._thread = _server(self)

    def start(self) -> Emulator:
        for name, pool in self.cloud.state.all("pool").items():
            if pool["_nodes"] and pool["status"] != "STOPPING":  # otherwise its nodes are being removed
                self.cloud.hooks.on_pool_created(described(self.cloud, name))
        self.hypervisor.start()
        self._thread.start()
        return self

    def stop(self) -> None:
        self._server.should_exit = True
        self._thread.join()
        self.hypervisor.close()
        self._socket.close()
        self.cloud.close()

    def __enter__(self) -> Emulator:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def is_stopping(self) -> bool:
        return self._server.should_exit

    @property
    def port(self) -> int:
        return int(self._socket.getsockname()[1])

    @property
    def address(self) -> str:
        return f"http://{HOST}:{self.port}"

    @property
    def storage_host(self) -> str:
        """The value of STORAGE_EMULATOR_HOST for programs of the same user."""
        return self.address

    def environment(self) -> dict[str, str]:
        """Return the variables that direct Terraform's google provider and gcs backend, and gcloud, to the emulator."""
        # The provider queries the caller's identity from Google: a refused connection is the fastest answer.
        nowhere = {"HTTP_PROXY": "http://127.0.0.1:1", "HTTPS_PROXY": "http://127.0.0.1:1"}
        return {
            "GOOGLE_OAUTH_ACCESS_TOKEN": self.token,
            **endpoints.variables(self.cloud.apis.values(), self.address),
            "CLOUDSDK_AUTH_ACCESS_TOKEN_FILE": str(self.folder / "token"),
            "CLOUDSDK_CORE_ACCOUNT": OWNER_EMAIL,
            "TPUKIT_SSH_CONFIG": str(self.hypervisor.ssh.file),
            **nowhere,
            "NO_PROXY": "127.0.0.1,localhost",
        }

    def answer(self, request: Request) -> Answer:
        """Authenticate a request and answer it."""
        principal = self._principal(request)
        if principal is None:
            # JSON everywhere, even for the admin API. XML errors of Cloud Storage's XML API are not emulated here.
            body = unauthenticated().body(with_reasons=routing.api_of(self.cloud, request.path)[0].own_front)
            return Answer(401, json.dumps(body).encode(), {"content-type": "application/json"})
        if request.path.startswith(CONTROL):
            return control.answer(self.cloud, request)
        return routing.answer(self.cloud, replace(request, principal=principal))

    def token_of(self, email: str) -> str:
        """Return a token of a service account, for tests that call as that account."""
        return credentials.mint(self.cloud, email, self.cloud.clock.now() + credentials.LONGEST_SECONDS)

    def _principal(self, request: Request) -> str | None:
        """Return the caller; None if it is not authenticated."""
        shown = request.headers.get("authorization")
        control_door = request.path.startswith(CONTROL)
        if shown is None:
            api, _ = routing.api_of(self.cloud, request.path)
            storage = api.service == STORAGE and not control_door
            own = (HOST, self.port)
            page = callers.is_from_a_page(request.headers, own)
            return permissions.OWNER if storage and not page and callers.is_ours(request.caller, own) else None
        opening = [self.token] if control_door else [self.token, self.pods_token]
        if any(hmac.compare_digest(shown.encode(), f"Bearer {token}".encode()) for token in opening):
            return permissions.OWNER
        return None if control_door else credentials.principal_of(self.cloud, shown.removeprefix("Bearer "))


def _token(file: Path) -> str:
    with contextlib.suppress(FileExistsError):
        handle = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "w") as opened:
            opened.write(secrets.token_urlsafe(24))
    return file.read_text()


def _listening(file: Path, port: int) -> socket.socket:
    """Return a socket on the requested port, the previous port, or any free one."""
    last = int(file.read_text()) if file.exists() and not port else 0
    for wanted in dict.fromkeys((port or last, port)):
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((HOST, wanted))
        except OSError as error:
            listener.close()
            if wanted == port:
                raise Transient(f"port {port} is taken", hint="name another, or 0 for any") from error
            continue
        listener.listen(128)
        file.write_text(str(listener.getsockname()[1]))
        return listener
    raise AssertionError("port 0 is never taken")


def _server(emulator: Emulator) -> tuple[uvicorn.Server, threading.Thread]:
    import uvicorn

    config = uvicorn.Config(_app(emulator), log_level="error", access_log=False, lifespan="on", timeout_keep_alive=60)
    server = uvicorn.Server(config)
    listener = emulator._socket
    return server, threading.Thread(target=lambda: server.run(sockets=[listener]), name="google-emulator", daemon=True)


def _app(emulator: Emulator) -> Starlette:
    from starlette.applications import Starlette
    from starlette.concurrency import run_in_threadpool
    from starlette.responses import Response
    from starlette.routing import Route

    class Cut(Response):
        """A response that announces more than it sends, so that the server closes the connection."""

        async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
            await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"1")]})

    async def silence(incoming: Incoming, seconds: float) -> None:
        """Wait until the time is over, the caller disconnects, or the emulator stops."""
        due = time.monotonic() + seconds
        while time.monotonic() < due and not emulator.is_stopping and not await incoming.is_disconnected():
            await asyncio.sleep(TICK_SECONDS)

    async def serve(incoming: Incoming) -> Response:
        request = Request(
            method=incoming.method,
            # Not decoded: names of objects contain escaped slashes.
            path=incoming.scope["raw_path"].decode().partition("?")[0].lstrip("/"),
            query=_query(incoming),
            headers={name.lower(): value for name, value in incoming.headers.items()},
            content=await incoming.body(),
            base=emulator.address,
            caller=(incoming.client.host, incoming.client.port) if incoming.client else ("", 0),
        )
        answer = await run_in_threadpool(emulator.answer, request)
        if answer.lost:
            await silence(incoming, answer.silence)
            return Cut()
        return Response(answer.content, answer.status, headers=dict(answer.headers))

    async def tick() -> None:
        while True:
            await asyncio.sleep(TICK_SECONDS)
            await run_in_threadpool(emulator.cloud.settle)
            await run_in_threadpool(emulator.hypervisor.reconcile)

    @contextlib.asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        ticking = asyncio.create_task(tick())
        yield
        ticking.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await ticking

    return Starlette(routes=[Route("/{path:path}", serve, methods=_METHODS)], lifespan=lifespan)


def _query(incoming: Incoming) -> dict[str, str]:
    """Return the query; the values of a repeated name are joined with commas."""
    found: dict[str, str] = {}
    for name, value in incoming.query_params.multi_items():
        found[name] = f"{found[name]},{value}" if name in found else value
    return found
