"""Self-updating copy of all objects of a kind in a namespace.

Readers send no request, however often they read, and do not block on a server that does not respond.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from tpukit.core import retry
from tpukit.core.clock import SystemClock
from tpukit.core.errors import TpukitError, Transient
from tpukit.kube.answers import Expired
from tpukit.kube.cluster import LONGEST_PAUSE, Cluster
from tpukit.kube.documents import SLIM
from tpukit.kube.kinds import Doc, Docs
from tpukit.kube.sharing import Sharing
from tpukit.kube.source import SILENCE_SECONDS

if TYPE_CHECKING:
    from urllib3 import BaseHTTPResponse

_ELAPSED = SystemClock().elapsed
_FIRST_PAUSE = 0.5
_MOST_RETRY_AFTER = 60.0


class Mirror:
    """Mirror of one kind. It lists, then follows changes in its own thread, and lists again after an error and a pause.

    Objects have the fields of kube/documents.py and are shared by all readers: do not modify them.
    """

    def __init__(
        self,
        cluster: Cluster,
        kind: str,
        namespace: str = "",
        *,
        labels: str = "",
        fields: str = "",
        type: Any = None,  # noqa: A002
        wake: Callable[[], None] = lambda: None,
        now: Callable[[], float] = _ELAPSED,
        silence: float = SILENCE_SECONDS,
        longest_pause: float = LONGEST_PAUSE,
    ) -> None:
        """Start the mirror. `wake` is called in its thread after objects or error changed: a hint, no guarantee."""
        schema = type or SLIM.get(kind)
        self._source = cluster.source(kind, namespace, labels=labels, fields=fields, type=schema)
        self._wake, self._now = wake, now
        self._silence, self._longest_pause = silence, longest_pause
        self._changed = threading.Condition()
        self._objects: dict[str, Doc] = {}
        self._share = Sharing()
        self._snapshot: tuple[Doc, ...] | None = None
        self._fresh = 0.0
        self._error: TpukitError | None = None
        self._synced = False
        self._closed = threading.Event()
        self._stream: BaseHTTPResponse | None = None
        self._version, self._failures = "", 0
        self._thread = threading.Thread(target=self._run, name=f"mirror {kind} {namespace}", daemon=True)
        self._thread.start()

    def objects(self) -> tuple[Doc, ...]:
        """Return all objects as last known, even during an error: see `fresh` and `error`."""
        with self._changed:
            if self._snapshot is None:
                self._snapshot = tuple(self._objects.values())
            return self._snapshot

    def fresh(self) -> float:
        """Return when the objects were last up to date, in `Clock.elapsed` time; 0 before the first list."""
        return self._fresh

    def error(self) -> TpukitError | None:
        """Return the error that prevents updates; None while connected."""
        return self._error

    def wait_synced(self, seconds: float) -> bool:
        """Wait for the first list. Return early on an error that waiting does not fix, such as a missing role."""

        def settled() -> bool:
            hopeless = self._error is not None and not isinstance(self._error, Transient)
            return self._synced or hopeless or self._closed.is_set()

        with self._changed:
            self._changed.wait_for(settled, seconds)
            return self._synced

    def wait_tried(self, seconds: float) -> bool:
        """Wait until the first list came or failed for any reason, for callers that retry."""
        with self._changed:
            self._changed.wait_for(lambda: self._synced or self._error or self._closed.is_set(), seconds)
            return self._synced

    def close(self) -> None:
        """Stop following. The thread ends by itself, at the latest after its current request."""
        self._closed.set()
        with self._changed:
            self._changed.notify_all()
            if self._stream is not None:
                with suppress(Exception):  # it may end at the same moment
                    self._stream.shutdown()

    def _run(self) -> None:
        while not self._closed.is_set():
            error: TpukitError | None = None
            try:
                self._follow()
            except Expired:
                self._version = ""
            except TpukitError as trouble:
                error = trouble
            except Exception as trouble:  # a mirror that ended silently would look current  # noqa: BLE001
                error = Transient(f"reading the cluster failed: {type(trouble).__name__}: {trouble}")
            if self._closed.is_set():
                return
            if error:
                self._version = ""
                self._note(error)
            self._failures += 1
            pause = retry.growing(self._failures, _FIRST_PAUSE, self._longest_pause)
            asked = min(error.retry_after, _MOST_RETRY_AFTER) if isinstance(error, Transient) else 0.0
            self._closed.wait(max(asked, retry.spread(pause, random.random())))  # noqa: S311

    def _follow(self) -> None:
        """Follow the stream until the server ends it in good order; the next call continues from the same version."""
        if not self._version:
            began = self._now()
            objects, self._version = self._source.list(each=self._known)
            self._replace(objects, began)
        with self._source.events(self._version, self._silence, self._opened) as events:
            try:
                self._note(None)
                for event, thing in events:
                    self._take(event, thing)
            finally:
                self._opened(None)

    def _opened(self, stream: BaseHTTPResponse | None) -> None:
        with self._changed:
            self._stream = stream
        if self._closed.is_set() and stream is not None:
            raise Transient("the mirror was closed")

    def _replace(self, objects: Docs, began: float) -> None:
        """Replace all objects at once, so that no reader sees half a list."""
        with self._changed:
            self._objects, self._snapshot = {thing["metadata"]["uid"]: thing for thing in objects}, None
            self._fresh, self._synced = began, True
            self._changed.notify_all()
        self._hint()

    def _known(self, thing: Doc) -> Doc:
        """Return the known object if it has not changed, so that a list does not take its memory twice."""
        before = self._objects.get(thing["metadata"]["uid"])
        if before and before["metadata"]["resourceVersion"] == thing["metadata"]["resourceVersion"]:
            return before
        return self._share(thing)

    def _take(self, event: str, thing: Doc) -> None:
        self._version, self._failures = thing["metadata"]["resourceVersion"], 0
        self._fresh = self._now()
        if event == "BOOKMARK":
            return
        with self._changed:
            if event == "DELETED":
                self._objects.pop(thing["metadata"]["uid"], None)
            else:
                self._objects[thing["metadata"]["uid"]] = self._share(thing)
            self._snapshot = None
        self._hint()

    def _hint(self) -> None:
        with suppress(Exception):  # an error in `wake` is not the cluster's
            self._wake()

    def _note(self, error: TpukitError | None) -> None:
        with self._changed:
            changed = (self._error is None) != (error is None)
            self._error = error
            self._changed.notify_all()
        if changed:
            self._hint()
