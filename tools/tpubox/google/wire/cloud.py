"""The cloud itself: its resources, and operations that end when their time has come.

Nothing runs by itself. Time advances with requests and calls of `settle`, which the server makes periodically.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from tpubox.google.storage.bucket_folders import Files
from tpubox.google.wire.api import After, Api, Started
from tpubox.google.wire.faults import Faults
from tpubox.google.wire.refusal import Refused
from tpubox.google.wire.settings import Hooks, Settings, number_of
from tpubox.google.wire.sources import EMULATOR, GUESS
from tpubox.google.wire.state import Doc, State
from tpukit.core.clock import Clock, SystemClock

PLAIN_KINDS = {
    *(
        "build",
        "ended_upload",
        "fault",
        "furnished",
        "group",
        "identity_pool",
        "limit",
        "log_entry",
        "of_new_project",
        "login_profile",
        "operation",
        "pending",
    ),
    *("project_metadata", "service", "token", "under_way", "vm_guest", "vm_numbers", "vm_preempted"),
}
"""Kinds of documents in the state that are not resources."""

KEPT_SECONDS = 3600.0
"""Time for which an operation is kept after its end. The times of Google's APIs are a guess."""

LAST_SECONDS = 5.0
"""Time limit for running hooks when the cloud is closed."""


@dataclass(frozen=True, slots=True)
class _Ending:
    operation: Doc
    after: After | None  # remaining work, done without locks
    error: Exception | None


class Cloud:
    def __init__(
        self,
        folder: Path,
        apis: Iterable[Api],
        settings: Settings | None = None,
        *,
        clock: Clock | None = None,
        hooks: Hooks | None = None,
        hooks_aside: bool = False,  # in separate threads
    ) -> None:
        self.settings = settings or Settings()
        self.clock = clock or SystemClock()
        self.hooks = hooks or Hooks()
        self._hooks_aside, self._closed = hooks_aside, False
        self.state = State(folder)
        self.files = Files(folder / "buckets")
        self.faults = Faults(self.state, self.settings.seed)
        self.apis = {api.name: api for api in apis}
        self.network = "127.77"  # network of the TPU VMs' addresses
        self._forgot = self.clock.now()  # last cleanup of operations
        self._ticked = -1  # number of state changes at the last ticks
        self._ending: set[str] = set()
        self._ended = threading.Condition()
        self._projects = {number_of(project): project for project in self.settings.projects}
        for project in self.settings.projects:
            self._begin(project)

    def _begin(self, project: str) -> None:
        """Create what a new project has, once."""
        with self.state.transaction():
            if not self.state.get("furnished", project):
                self.state.put("furnished", project, {"createTime": self.stamp()})
                for api in self.apis.values():
                    for make in api.furnish:
                        make(self, project)

    def close(self) -> None:
        """Close the cloud without waiting for slow hooks: they are called again at the next start."""
        with self._ended:
            self._ended.wait_for(lambda: not self._ending, timeout=LAST_SECONDS)
            self._closed = True
        self.state.close()

    def project(self, name: str) -> str:
        """Return the id of a project, given as id or number."""
        project = self._projects.get(name, name)
        if project not in self.settings.projects:
            raise GUESS.refused(403, f"Permission denied on resource project {name} (or it may not exist).")
        return project

    def requests(self, *, agent: str = "", path: str = "", method: str = "") -> list[Doc]:
        """Return the requests so far that match these regular expressions for user agent and path."""
        return [
            one
            for one in self.state.requests()
            if re.search(agent, one["agent"]) and re.search(path, one["path"]) and method in ("", one["method"])
        ]

    def inventory(self) -> list[str]:
        """Return every resource that would cost money or needs cleanup, as "kind name".

        Deleted roles are left out, since Google only remembers them for a while, and so are the resources of a new
        project.
        """
        kinds = [kind for kind in self.state.kinds() if kind not in PLAIN_KINDS]
        there = [
            (kind, name)
            for kind in kinds
            for name, doc in self.state.all(kind).items()
            if not doc.get("deleted") and not self.state.get("of_new_project", f"{kind} {name}")
        ]
        return [f"{kind} {name}".replace("\n", "#") for kind, name in there]

    def start(self, api: Api, kind: str, scope: str, target: str, /, **about: object) -> Started:
        """Start an operation on `target`; the API's effect of that kind runs at its end."""
        slow = self.faults.strike("slow", f"{kind} {target}")
        fault = self.faults.strike("fail", f"{kind} {target}")
        seconds = self.settings.duration(kind) + (slow.seconds if slow else 0)
        failure = fault.message or "An internal error has occurred." if fault else None
        return self._schedule(api, kind, seconds, scope=scope, target=target, fail=failure, about=about, hidden=False)

    def change(
        self, api: Api, kind: str, scope: str, target: str, /, store: str, after: Doc, **about: object
    ) -> Started:
        """Start an operation that replaces the document of `target` at its end.

        A failed one leaves the fields as they were.
        """
        before = self.state.get(store, target) or {}
        return self.start(api, kind, scope, target, change={"store": store, **_difference(before, after)}, **about)

    def later(self, api: Api, kind: str, target: str, seconds: float, **about: str) -> None:
        """Schedule the API's effect of that kind after some time, without a visible operation.

        `about` is passed to the effect.
        """
        self._schedule(api, kind, seconds, scope="", target=target, fail=None, about=about, hidden=True)

    def _schedule(self, api: Api, kind: str, seconds: float, *, target: str, hidden: bool, **rest: object) -> Started:
        now = self.clock.now()
        name = f"operation-{int(now * 1000)}-{self.state.next():08x}"
        times = {"started": now, "ends": now + seconds, "ended": None, "done": False, "error": None}
        operation = {"id": name, "api": api.name, "type": kind, "target": target, "hidden": hidden, **times, **rest}
        self.state.put("operation", name, operation)
        pending = {"id": name, "ends": operation["ends"], "target": target}
        self.state.put("pending", _turn(operation), pending)
        if not hidden:
            self.state.put("under_way", _place(operation), {"id": name})
        return Started(name)

    def operation(self, api: Api, name: str, *scopes: str) -> Doc:
        """Return an operation as the API shows it; with `scopes`, only if it belongs to one of them."""
        doc = self.state.get("operation", name)
        if doc is None or doc["api"] != api.name or doc["hidden"] or (scopes and doc["scope"] not in scopes):
            raise GUESS.not_found(f"Operation {name} was not found.")
        assert api.operation is not None
        return api.operation(doc)

    def running(self, target: str) -> list[Doc]:
        """Return the running operations on a resource and on its children."""
        places = {**self.state.all("under_way", f"{target} "), **self.state.all("under_way", f"{target}/")}
        return [doc for place in places.values() if (doc := self.state.get("operation", place["id"]))]

    def respond(self, operation: Doc, response: Doc) -> None:
        """Set the response of an operation, if it is known only at its end."""
        about = {**operation["about"], "response": response}
        self.state.put("operation", operation["id"], {**operation, "about": about})

    def fail(self, operation: Doc, refused: Refused | None = None) -> None:
        """End an operation with an error: that of its fault, or another."""
        error = _error(refused or EMULATOR.refused(500, operation["fail"]))
        self.state.put("operation", operation["id"], {**operation, "error": error})

    def settle(self) -> None:
        """End the operations whose time has come, and run the ticks."""
        while operation := self._due():
            ending = self._take_effect(operation)
            if ending.after and self._hooks_aside:
                # Hooks are slow, and other requests must not wait for them.
                threading.Thread(target=self._finish, args=(ending,), name="hook", daemon=True).start()
            else:
                self._finish(ending)
        # Ticks depend on the state and on faults: without changes there is nothing to read. This runs ten times a
        # second, also with a thousand TPU VMs.
        changes = self.state.changes()
        if changes == self._ticked and not self.faults.table():
            return
        self._ticked = changes
        for api in self.apis.values():
            for tick in api.ticks:
                with self.state.transaction():
                    tick(self)

    def _due(self) -> Doc | None:
        with self._ended:
            now = self.clock.now()
            for doc in self.state.each("pending"):
                if doc["ends"] > now:  # all following ones end later
                    return None
                if doc["id"] not in self._ending and (found := self.state.get("operation", doc["id"])):
                    self._ending.add(doc["id"])
                    return found
        return None

    def _take_effect(self, operation: Doc) -> _Ending:
        effect = self.apis[operation["api"]].effects.get(operation["type"])
        after: After | None = None
        try:
            with self.state.transaction():
                operation = self._make_change(operation)
                if effect:
                    after = effect(self, operation)
                elif operation["fail"]:
                    self.fail(operation)
        except Exception as raised:  # the operation ends with it  # noqa: BLE001
            return _Ending(operation, None, raised)
        return _Ending(operation, after, None)

    def _finish(self, ending: _Ending) -> None:
        name, raised = ending.operation["id"], ending.error
        try:
            if ending.after:
                try:
                    ending.after()
                except Exception as error:  # the operation ends with it  # noqa: BLE001
                    raised = error
            if not self._closed:  # otherwise it ends at the next start
                self._note_end(ending, raised)
        finally:
            with self._ended:
                self._ending.discard(name)
                self._ended.notify_all()

    def _note_end(self, ending: _Ending, raised: Exception | None) -> None:
        operation = ending.operation
        refused = _refusal(raised) if raised else None
        with self.state.transaction():
            if refused:
                self._change(operation["target"], operation["about"].get("undo"))
            name = operation["id"]
            latest = self.state.get("operation", name) or operation
            problem = _error(refused) if refused else latest["error"]
            self.state.put("operation", name, {**latest, "done": True, "ended": self.clock.now(), "error": problem})
            self.state.delete("pending", _turn(operation))
            self.state.delete("under_way", _place(operation))
            self.faults.save()
        self._forget_old()

    def _make_change(self, operation: Doc) -> Doc:
        """Apply the change once, even after a kill before the end of the operation: its undo is stored with it."""
        if operation["fail"] or "undo" in operation["about"]:
            return operation
        undo = self._change(operation["target"], operation["about"].get("change"))
        if undo is None:
            return operation
        changed = {**operation, "about": {**operation["about"], "undo": undo}}
        self.state.put("operation", operation["id"], changed)
        return changed

    def _change(self, target: str, change: Doc | None) -> Doc | None:
        """Change single fields, because others may have changed since the request; return the undo."""
        found = self.state.get(change["store"], target) if change else None
        if not change or found is None:
            return None
        kept = {name: value for name, value in found.items() if name not in change["gone"]}
        after = {**kept, **change["new"]}
        self.state.put(change["store"], target, after)
        return {"store": change["store"], **_difference(after, found)}

    def _forget_old(self) -> None:
        """Delete operations that ended long ago."""
        now = self.clock.now()
        if now < self._forgot + KEPT_SECONDS / 10:
            return
        self._forgot = now
        with self.state.transaction():
            for name, doc in self.state.all("operation").items():
                if doc["done"] and doc["ended"] + KEPT_SECONDS <= now:
                    self.state.delete("operation", name)

    def wait_while_ending(self, name: str) -> None:
        """Wait until another thread has ended the operation, so that immediate ones are done in the answer."""
        with self._ended:
            self._ended.wait_for(lambda: name not in self._ending, timeout=60)

    def stamp(self) -> str:
        return stamp(self.clock.now())


def stamp(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _turn(operation: Doc) -> str:
    """Return a key that sorts operations by their end, earliest first."""
    return f"{operation['ends']:020.6f} {operation['id']}"


def _place(operation: Doc) -> str:
    """Return a key that groups operations by target, to find them without reading all others."""
    return f"{operation['target']} {operation['id']}"


def _difference(before: Doc, after: Doc) -> Doc:
    new = {name: value for name, value in after.items() if name not in before or before[name] != value}
    return {"new": new, "gone": [name for name in before if name not in after]}


def _refusal(error: Exception) -> Refused:
    return error if isinstance(error, Refused) else EMULATOR.refused(500, f"{type(error).__name__}: {error}")


def _error(refused: Refused) -> Doc:
    return {"code": refused.code, "status": refused.status, "reason": refused.reason, "message": refused.message}
