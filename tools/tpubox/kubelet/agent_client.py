"""Client of the sandbox agent, for any process of this machine."""

from __future__ import annotations

import json
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any
from urllib.parse import quote

from tpubox.kubelet.draining import PATIENCE_SECONDS
from tpubox.kubelet.host_faults import Fault
from tpubox.kubelet.registered_pools import Pool
from tpukit.core.errors import Conflict, Denied, Invalid, NotFound, Transient

_ERRORS = {400: Invalid, 401: Denied, 403: Denied, 404: NotFound, 409: Conflict}


class AgentClient:
    def __init__(self, url: str, token: str, authority: Path) -> None:
        """Take the agent's URL and token; `authority` is the certificate file of the sandbox's own authority."""
        self._url = url
        self._token = token
        context = ssl.create_default_context(cafile=str(authority))
        # A proxy of the user must not sit between two processes of this machine.
        handlers = (urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context))
        self._opener = urllib.request.build_opener(*handlers)

    def pools(self) -> dict[str, dict[str, Any]]:
        """Return every pool and its state, by key (the pool's name if it belongs to no GKE cluster)."""
        return {Pool.from_json(record["pool"]).key: record for record in self._call("GET", "pools")["pools"]}

    def add_pool(self, pool: Pool) -> None:
        """Add or update a pool and wait until the API server has exactly its nodes. Idempotent."""
        self._call("POST", "pools", pool.to_json())
        shrunk = PATIENCE_SECONDS + 60.0
        self._until(
            lambda: not self.pools().get(pool.key, {}).get("going"), f"pool {pool.name} does not shrink", shrunk
        )

    def remove_pool(self, key: str, patience: float = PATIENCE_SECONDS, *, budgets: bool = False) -> None:
        """Drain and remove a pool, and wait until its nodes are gone. Idempotent.

        Pods that take longer than `patience` are killed. With `budgets`, PodDisruptionBudgets are honoured until then.
        """
        self._call("DELETE", f"pools/{quote(key, safe='')}?patience={patience}&budgets={json.dumps(budgets)}")
        self._until(lambda: key not in self.pools(), f"pool {key} is not removed", patience + 60.0)

    def preempt(self, target: str, *, grace: float = 25.0, back: float | None = 30.0, step: int | None = None) -> None:
        """Preempt the pool with this name, or the pool of the host with this name, now or at a step."""
        self._cause(Fault("preempt", target, grace, back, step))

    def drain(self, target: str) -> None:
        self._cause(Fault("drain", target))

    def hang(self, target: str, *, step: int | None = None) -> None:
        self._cause(Fault("hang", target, step=step))

    def lose(self, target: str, *, back: float | None = None, step: int | None = None) -> None:
        self._cause(Fault("lose", target, back=back, step=step))

    def restore(self, target: str) -> None:
        self._cause(Fault("restore", target))

    def ready(self) -> bool:
        try:
            return bool(self._call("GET", "healthz")["ready"])
        except Transient:
            return False

    def _until(self, done: Callable[[], bool], otherwise: str, seconds: float) -> None:
        due = time.monotonic() + seconds
        while not done():
            if time.monotonic() > due:
                raise Transient(otherwise, hint="the log of the node agent shows more")
            time.sleep(0.2)

    def _cause(self, fault: Fault) -> None:
        self._call("POST", "faults", asdict(fault))

    def _call(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self._text(path, method, body))
        return found

    def _text(self, path: str, method: str = "GET", body: Mapping[str, Any] | None = None) -> str:
        request = urllib.request.Request(  # noqa: S310 (https, and ours)
            f"{self._url}/{path}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"},
        )
        try:
            with self._opener.open(request, timeout=60.0) as answer:
                return str(answer.read().decode(errors="replace"))
        except urllib.error.HTTPError as error:
            with error:
                message = error.read().decode(errors="replace")
            raise _ERRORS.get(error.code, Transient)(message) from error
        except OSError as error:
            raise Transient(f"the node agent at {self._url} does not respond: {error}") from error
