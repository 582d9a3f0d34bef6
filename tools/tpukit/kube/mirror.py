"""A copy of all objects of a kind in a namespace that keeps itself up to date: whoever decides by them asks no server,
however often, and is not held up by one that does not answer.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

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
    """Lists, then follows what happens, in a thread of its own; what breaks is listed again after a pause.

    Objects have the fields of kube/documents.py, and are shared by all who ask: nobody changes them.
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
        """`wake` is called, in the mirror's thread, after objects or error have changed: a hint, never a promise."""
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
        self._version, self._pause = "", 0.0
        self._thread = threading.Thread(target=self._run, name=f"mirror {kind} {namespace}", daemon=True)
        self._thread.start()

    def objects(self) -> tuple[Doc, ...]:
        """All as they were last known, also while there is trouble: see `fresh` and `error`."""
        with self._changed:
            if self._snapshot is None:
                self._snapshot = tuple(self._objects.values())
            return self._snapshot

    def fresh(self) -> float:
        """When the objects were last known to be up to date, as `Clock.elapsed` counts; 0 before the first list."""
        return self._fresh

    def error(self) -> TpukitError | None:
        """What keeps it from being up to date; None while it is connected."""
        return self._error

    def wait_synced(self, seconds: float) -> bool:
        """Until there was a first list; ends early with what waiting does not mend, such as a missing role."""

        def settled() -> bool:
            hopeless = self._error is not None and not isinstance(self._error, Transient)
            return self._synced or hopeless or self._closed.is_set()

        with self._changed:
            self._changed.wait_for(settled, seconds)
            return self._synced

    def wait_tried(self, seconds: float) -> bool:
        """Until the first list came, or failed for whatever reason: for those who will ask again."""
        with self._changed:
            self._changed.wait_for(lambda: self._synced or self._error or self._closed.is_set(), seconds)
            return self._synced

    def close(self) -> None:
        """It follows no longer. Its thread ends by itself, at the latest with the request that is under way."""
        self._closed.set()
        with self._changed:
            self._changed.notify_all()
            if self._stream is not None:
                with suppress(Exception):  # it ended in the same moment
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
            except Exception as trouble:  # a mirror that ended in silence would be taken for the cluster
                error = Transient(f"reading the cluster failed: {type(trouble).__name__}: {trouble}")
            if self._closed.is_set():
                return
            if error:
                self._version = ""
                self._note(error)
            self._pause = min(self._longest_pause, self._pause * 2 or _FIRST_PAUSE)
            asked = min(error.retry_after, _MOST_RETRY_AFTER) if isinstance(error, Transient) else 0.0
            self._closed.wait(max(asked, self._pause * random.uniform(0.5, 1.0)))  # noqa: S311

    def _follow(self) -> None:
        """Returns where the server ended the stream in good order: it goes on from the same version."""
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
        """All at once: nobody sees half a list."""
        with self._changed:
            self._objects, self._snapshot = {thing["metadata"]["uid"]: thing for thing in objects}, None
            self._fresh, self._synced = began, True
            self._changed.notify_all()
        self._hint()

    def _known(self, thing: Doc) -> Doc:
        """The object that is there already, where it has not changed: a list does not take its memory twice."""
        before = self._objects.get(thing["metadata"]["uid"])
        if before and before["metadata"]["resourceVersion"] == thing["metadata"]["resourceVersion"]:
            return before
        return self._share(thing)

    def _take(self, event: str, thing: Doc) -> None:
        self._version, self._pause = thing["metadata"]["resourceVersion"], 0.0
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
        with suppress(Exception):  # the trouble of whoever is woken is not the cluster's
            self._wake()

    def _note(self, error: TpukitError | None) -> None:
        with self._changed:
            changed = (self._error is None) != (error is None)
            self._error = error
            self._changed.notify_all()
        if changed:
            self._hint()
