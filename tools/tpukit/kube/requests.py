"""Count requests to API servers by verb and resource, to detect requests that grow with the number of jobs.

Verbs and resources are those of Kubernetes' own metrics, so that both can be compared:
https://kubernetes.io/docs/reference/access-authn-authz/authorization/#determine-the-request-verb
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping

_WRITES = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}


class Requests:
    """Counter of requests. Safe from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[tuple[str, str]] = Counter()

    def add(self, method: str, path: str, query: Mapping[str, str]) -> None:
        asked = described(method, path, query)
        with self._lock:
            self._counts[asked] += 1

    def counts(self) -> dict[tuple[str, str], int]:
        """Return the counts by verb and resource."""
        with self._lock:
            return dict(self._counts)


REQUESTS = Requests()
"""Requests of this process to all clusters, including those without a response."""


def described(method: str, path: str, query: Mapping[str, str]) -> tuple[str, str]:
    """Return verb and resource of a request. A part of an object follows its resource: `pods/log`."""
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
