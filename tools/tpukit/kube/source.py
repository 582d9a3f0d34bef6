"""List all objects of a selection in pages, and stream their changes.

A schema is a TypedDict (kube/documents.py). Fields that it does not name never become Python objects, so that the pods
of a thousand hosts take little memory. A document that does not fit its schema is used as it is.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any

from tpukit.core.errors import Transient
from tpukit.kube import answers
from tpukit.kube.answers import Expired
from tpukit.kube.connection import ANSWER_SECONDS, Connection
from tpukit.kube.kinds import KINDS, Doc, Docs, selectors

if TYPE_CHECKING:
    from urllib3 import BaseHTTPResponse

PAGE_OBJECTS = 500
WATCH_SECONDS = 300
SILENCE_SECONDS = 90.0
"""Longest silence: an API server sends a bookmark about once a minute, so a longer silence means that it hangs."""
_TRIES_IN_PAGES = 3


class Source:
    def __init__(
        self,
        connection: Connection,
        kind: str,
        namespace: str = "",
        *,
        labels: str = "",
        fields: str = "",
        schema: Any = None,
        accept: str = "application/json",
    ) -> None:
        self._connection = connection
        self._accept = accept
        self._path, self._query = KINDS[kind].path(namespace), selectors(labels, fields)
        self._named = {"apiVersion": KINDS[kind].api_version, "kind": kind}
        self._schema = schema or dict[str, Any]

    def list(
        self, seconds: float = ANSWER_SECONDS, each: Callable[[Doc], Doc] = lambda thing: thing
    ) -> tuple[Docs, str]:
        """Return all objects at one version, and that version.

        `each` gets every object as its page comes, and returns the object to list instead.
        """
        for _ in range(_TRIES_IN_PAGES):
            try:
                return self._pages(PAGE_OBJECTS, seconds, each)
            except Expired:  # the list took longer than the server remembers its version
                continue
        return self._pages(0, seconds, each)

    @contextmanager
    def events(
        self,
        version: str,
        silence: float = SILENCE_SECONDS,
        opened: Callable[[BaseHTTPResponse], None] = lambda answer: None,
    ) -> Iterator[Iterator[tuple[str, Doc]]]:
        """Yield the events after a version: (ADDED, MODIFIED, DELETED or BOOKMARK; the object)."""
        asked = {
            "watch": "true",
            "resourceVersion": version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(WATCH_SECONDS),
        }
        with self._connection.answer("GET", self._path, {**self._query, **asked}, seconds=silence) as answer:
            opened(answer)
            yield self._decoded(answer)

    def _pages(self, limit: int, seconds: float, each: Callable[[Doc], Doc]) -> tuple[Docs, str]:
        objects: Docs = []
        version, token = "", ""
        while True:
            asked = {**({"limit": str(limit)} if limit else {}), **({"continue": token} if token else {})}
            query = {**self._query, **asked}
            content = self._connection.read("GET", self._path, query, accept=self._accept, seconds=seconds)
            items, metadata = self._page(content)
            # Objects in a list do not have their kind.
            objects += [each(item if "kind" in item else {**self._named, **item}) for item in items]
            version, token = version or str(metadata["resourceVersion"]), metadata.get("continue") or ""
            if not token:
                return objects, version

    def _page(self, content: bytes) -> tuple[Docs, Mapping[str, Any]]:
        try:
            page = _decoders(self._schema)[0].decode(content)
            return page.items or [], page.metadata
        except ValueError:
            document = self._connection.decoded(content)
        try:
            return document["items"] or [], document["metadata"]
        except (LookupError, TypeError) as error:
            raise Transient(f"{self._connection.server}{self._path} sent an answer that is not a list") from error

    def _decoded(self, answer: BaseHTTPResponse) -> Iterator[tuple[str, Doc]]:
        _, event, document = _decoders(self._schema)
        for line in answers.lines(answer):
            try:
                happened = event.decode(line)
            except ValueError as error:
                raise Transient(f"{self._connection.server} ended its stream within an event") from error
            if happened.type == "ERROR":
                content = bytes(happened.object)
                status = self._connection.decoded(content)
                raise answers.error(int(status.get("code") or 500), content, f"WATCH {self._path}")
            try:
                yield happened.type, document.decode(happened.object)
            except ValueError:
                yield happened.type, self._connection.decoded(bytes(happened.object))


# msgspec describes a type here, and crashes if another thread describes a part of it at the same time.
_describing = threading.Lock()


def _decoders(schema: Any) -> tuple[Any, Any, Any]:
    """Return the decoders of a list page, of an event, and of one object."""
    with _describing:
        return _make_decoders(schema)


@cache
def _make_decoders(schema: Any) -> tuple[Any, Any, Any]:
    import msgspec

    page = msgspec.defstruct("Page", [("metadata", dict[str, Any]), ("items", list[schema] | None)])
    event = msgspec.defstruct("Event", [("type", str), ("object", msgspec.Raw)])
    return msgspec.json.Decoder(page), msgspec.json.Decoder(event), msgspec.json.Decoder(schema)
