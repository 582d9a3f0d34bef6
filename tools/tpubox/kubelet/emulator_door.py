"""The agent's requests to the Google emulator, on an endpoint that pods cannot use."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class EmulatorDoor:
    url: str  # "" if there is no emulator
    token: str

    def ask(self, path: str, body: Mapping[str, str]) -> dict[str, Any]:
        request = urllib.request.Request(  # noqa: S310 (http, and ours)
            f"{self.url}/emulator/{path}",
            method="POST",
            data=json.dumps(body).encode(),
            headers={"Authorization": f"Bearer {self.token}"},
        )
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(request, timeout=_SECONDS) as answer:
            found: dict[str, Any] = json.loads(answer.read())
        return found
