"""How often this process asked API servers, by what it asked for: one that asks more with every job is noticed.

Verbs and resources are those of Kubernetes' own metrics, so that both can be compared:
https://kubernetes.io/docs/reference/access-authn-authz/authorization/#determine-the-request-verb
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping

_WRITES = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}


class Requests:
    """Safe from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[tuple[str, str]] = Counter()

    def add(self, method: str, path: str, query: Mapping[str, str]) -> None:
        asked = described(method, path, query)
        with self._lock:
            self._counts[asked] += 1

    def counts(self) -> dict[tuple[str, str], int]:
        """By verb and resource."""
        with self._lock:
            return dict(self._counts)


REQUESTS = Requests()
"""Of this process, to all clusters; those that were never answered are among them."""


def described(method: str, path: str, query: Mapping[str, str]) -> tuple[str, str]:
    """Verb and resource of a request. A part of an object is written behind its resource: `pods/log`."""
    words = path.strip("/").split("/")
    words = words[2:] if words[0] == "api" else words[3:] if words[0] == "apis" else []
    if not words:
        return method.lower(), path
    if words[0] == "namespaces" and len(words) > 2:
        words = words[2:]
    resource = "/".join([words[0], *words[2:]])
    if method != "GET":
        return _WRITES.get(method, method.lower()), resource
    if query.get("watch") == "true":
        return "watch", resource
    return "get" if len(words) > 1 else "list", resource
