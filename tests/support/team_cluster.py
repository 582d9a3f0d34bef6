"""A cluster that stores the objects sent to it, and can lose its caller at any write."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from tpukit.core.errors import Conflict, NotFound

Doc = dict[str, Any]


class Killed(BaseException):
    """The calling process died, which no `except Exception` can prevent."""


class FakeCluster:
    """Objects by kind, namespace and name.

    `watcher` is called after every write. The write number `dies_at` kills the caller after it was done, before the
    caller gets the answer. A dead caller cannot write until `revive`.
    """

    server = "https://fake"

    def __init__(self, watcher: Callable[[], None] = lambda: None) -> None:
        self.objects: dict[tuple[str, str, str], Doc] = {}
        self.at: dict[str, str] = {}  # uids of objects that are known only by path
        self.watcher = watcher
        self.writes = 0
        self.dies_at = 0
        self.dead = False

    def revive(self) -> None:
        self.dead = False

    def list(self, kind: str, namespace: str = "", *, labels: str = "", fields: str = "") -> list[Doc]:
        name = fields.removeprefix("metadata.name=")
        return [
            copy.deepcopy(one)
            for (of, where, called), one in sorted(self.objects.items())
            if of == kind and namespace in ("", where) and name in ("", called)
            if not labels or labels in one["metadata"].get("labels", {})
        ]

    def get(self, kind: str, name: str, namespace: str = "") -> Doc:
        for (of, where, called), one in self.objects.items():
            if (of, called) == (kind, name) and where in ("", namespace):
                return copy.deepcopy(one)
        raise NotFound(f"there is no {kind} {name}")

    def apply(self, document: Doc) -> Doc:
        self._put(document)
        return document

    def create(self, document: Doc) -> Doc:
        if _key(document) in self.objects:
            raise Conflict(f"{document['kind']} {document['metadata']['name']} already exists")
        return self._put(document)

    def replace(self, document: Doc) -> Doc:
        """Replace an object if its resourceVersion still matches."""
        there = self.objects.get(_key(document))
        if there is None:
            raise NotFound(f"there is no {document['kind']} {document['metadata']['name']}")
        if there["metadata"].get("resourceVersion") != document["metadata"].get("resourceVersion"):
            raise Conflict("the object has been modified")
        return self._put(document)

    def _put(self, document: Doc) -> Doc:
        if self.dead:
            raise Killed
        made = copy.deepcopy(document)
        if document["kind"] == "Lease":
            made["metadata"]["resourceVersion"] = str(self.writes + 1)
        there = self.objects.get(_key(document), {"metadata": {"uid": f"uid-{self.writes + 1}"}})
        made["metadata"]["uid"] = there["metadata"]["uid"]
        self.objects[_key(document)] = made
        self._count_write()
        return copy.deepcopy(made)

    def delete(self, kind: str, name: str, namespace: str = "", *, uid: str) -> None:
        """Delete an object only if it has the uid that the caller saw."""
        if self.dead:
            raise Killed
        there = self.objects.get((kind, "" if (kind, "", name) in self.objects else namespace, name))
        if there is not None and there["metadata"]["uid"] != uid:
            raise Conflict(f"{kind} {name} has another uid")
        for key in list(self.objects):
            inside = kind == "Namespace" and key[1] == name
            if inside or (key[0] == kind and key[2] == name and key[1] in ("", namespace)):
                del self.objects[key]
        self._count_write()

    def call(self, method: str, path: str, *, body: Doc | None = None) -> Doc:
        """Get or delete an object by path, for kinds without a name here; a delete needs the uid the caller saw."""
        if path not in self.at:
            raise NotFound(f"there is no {path}")
        if method == "GET":
            return {"metadata": {"uid": self.at[path]}}
        assert method == "DELETE"
        if body != {"preconditions": {"uid": self.at[path]}}:
            raise Conflict(f"{path} has another uid")
        del self.at[path]
        self._count_write()
        return {}

    def _count_write(self) -> None:
        self.writes += 1
        self.watcher()
        if self.writes == self.dies_at:
            self.dead = True
            raise Killed


def _key(document: Doc) -> tuple[str, str, str]:
    meta = document["metadata"]
    return document["kind"], meta.get("namespace", ""), meta["name"]
