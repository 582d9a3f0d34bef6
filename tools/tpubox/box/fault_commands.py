"""Fault injection from the command line: faults of Google's APIs and of hosts."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

from tpubox.box.folder import HOST, Folder
from tpukit.core.errors import Invalid, Transient


def table(place: Folder) -> list[dict[str, Any]]:
    """Return the faults of Google's APIs, with how often each was evaluated and applied."""
    found: list[dict[str, Any]] = _ask(place, "GET")
    return found


def add(place: Folder, kind: str, **words: object) -> str:
    """Add a fault and return its name."""
    return str(_ask(place, "POST", body={"kind": kind, **words})["name"])


def clear(place: Folder, name: str = "") -> None:
    """Remove one fault, or all."""
    _ask(place, "DELETE", query={"name": name} if name else {})


def strike_vm(place: Folder, action: str, node: str, **words: object) -> dict[str, Any]:
    """Apply an action to a TPU VM or one of its hosts; return the node as the API now shows it."""
    found: dict[str, Any] = _ask(place, "POST", body={"action": action, "node": node, **words}, door="tpu-vms")
    return found


def _ask(
    place: Folder, method: str, *, query: Mapping[str, str] | None = None, body: object = None, door: str = "faults"
) -> Any:
    request = urllib.request.Request(
        f"http://{HOST}:{place.ports['google']}/emulator/{door}" + (f"?{urlencode(query)}" if query else ""),
        method=method,
        data=None if body is None else json.dumps(body).encode(),
        headers={"Authorization": f"Bearer {place.token}"},
    )
    # The user's proxy must not be used between two processes of this machine.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=30.0) as answer:
            return json.loads(answer.read())
    except urllib.error.HTTPError as error:
        with error:
            raise Invalid(str(json.loads(error.read())["error"])) from error
    except OSError as error:
        hint = f"`tpu sandbox up --name {place.name}` starts it"
        raise Transient(f"Google's APIs of sandbox {place.name} do not respond: {error}", hint=hint) from error
