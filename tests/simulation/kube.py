"""The API server of a simulated cluster: documents with versions, and the calls of clients.

A document is never changed in place, so a client keeps what it has read.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from simulation.machines import Machine
from tpukit.core.errors import Conflict, NotFound, Transient

if TYPE_CHECKING:
    from simulation.world import World

Doc = dict[str, Any]
Key = tuple[str, str]
TEAM = "research"
CHANGES = frozenset({"create", "apply", "patch", "delete", "put"})


PLAIN = frozenset((str, int, float, bool, type(None)))


def copied(value: Any) -> Any:
    if type(value) in PLAIN:
        return value
    if isinstance(value, dict):
        return {key: one if type(one) in PLAIN else copied(one) for key, one in value.items()}
    return [copied(one) for one in value] if isinstance(value, (list, tuple)) else value


class Documents:
    server = "https://simulated.example"

    def __init__(self, world: World) -> None:
        self.world, self.dice = world, world.dice
        self.objects: dict[str, dict[Key, Doc]] = {}
        self._numbers = itertools.count(1)

    # Calls of clients

    def identity(self) -> str:
        return "uid-of-simulated"

    def list(self, kind: str, namespace: str = "", *, labels: str = "", **_: Any) -> list[Doc]:
        wanted = [one.partition("=") for one in labels.split(",") if one]
        return [
            one
            for (team, _), one in self.of(kind).items()
            if namespace in ("", team)
            and all(_has(one["metadata"].get("labels") or {}, key, value) for key, _, value in wanted)
        ]

    def list_metadata(self, kind: str, namespace: str = "", *, labels: str = "", **_: Any) -> list[Doc]:
        return [{"metadata": one["metadata"]} for one in self.list(kind, namespace, labels=labels)]

    def get(self, kind: str, name: str, namespace: str = "", **_: Any) -> Doc:
        found: Doc = copied(self._known(kind, (namespace, name)))
        return found

    def create(self, document: Mapping[str, Any], **_: Any) -> Doc:
        kind, metadata = document["kind"], document["metadata"]
        key = (metadata.get("namespace", ""), metadata["name"])
        if key in self.of(kind):
            raise Conflict(f"{kind} {metadata['name']} already exists")
        self.add(kind, key, copied(document))
        self.created(kind, key)
        return self.get(kind, key[1], key[0])

    def apply(self, document: Mapping[str, Any], *, dry_run: bool = False, **_: Any) -> Doc:
        return dict(document)

    def patch(
        self,
        kind: str,
        name: str,
        change: Mapping[str, Any],
        namespace: str = "",
        *,
        uid: str = "",
        version: str = "",
        dry_run: bool = False,
        **_: Any,
    ) -> Doc:
        key = (namespace, name)
        metadata = change.get("metadata") or {}
        wanted, known = uid or metadata.get("uid", ""), self._known(kind, key)["metadata"]
        if wanted and known["uid"] != wanted:
            raise Conflict(f"{kind} {name} has another uid")
        if version and known["resourceVersion"] != version:
            raise Conflict(f"{kind} {name} has changed since")
        self.admit_change(kind, key, change)
        if dry_run:
            return self.get(kind, name, namespace)
        doc = self.edit(kind, key)
        _merge(doc["metadata"].setdefault("annotations", {}), metadata.get("annotations") or {})
        if "spec" in change:
            _merge(doc.setdefault("spec", {}), change["spec"])
        self.changed(kind, key)
        return doc

    def delete(
        self, kind: str, name: str, namespace: str = "", *, uid: str = "", foreground: bool = False, **_: Any
    ) -> None:
        key = (namespace, name)
        known = self.of(kind).get(key)
        if known is None:
            return
        if uid and known["metadata"]["uid"] != uid:
            raise Conflict(f"{kind} {name} has another uid")
        self.deleted(kind, key, foreground=foreground)

    def put(self, kind: str, name: str, namespace: str, body: Mapping[str, Any]) -> Doc:
        known = self._known(kind, (namespace, name))
        if known["metadata"]["resourceVersion"] != body["metadata"]["resourceVersion"]:
            raise Conflict(f"{kind} {name} has changed since")
        doc = self.edit(kind, (namespace, name))
        doc["spec"] = copied(body["spec"])
        return doc

    def logs(self, pod: str, namespace: str, **_: Any) -> Iterator[str]:
        return iter(())

    def review(self) -> Doc:
        return {"status": {"allowed": True}}

    # Acts of controllers

    def created(self, kind: str, key: Key) -> None: ...

    def admit_change(self, kind: str, key: Key, change: Mapping[str, Any]) -> None:
        """Refuse a change as webhooks do."""

    def changed(self, kind: str, key: Key) -> None: ...

    def deleted(self, kind: str, key: Key, *, foreground: bool) -> None:
        del self.of(kind)[key]

    def of(self, kind: str) -> dict[Key, Doc]:
        return self.objects.setdefault(kind, {})

    def add(self, kind: str, key: Key, document: Doc) -> Doc:
        number = next(self._numbers)
        document["metadata"] |= {"uid": f"uid-{number}", "resourceVersion": str(number), "namespace": key[0]}
        document["metadata"]["creationTimestamp"] = self.time()
        self.of(kind)[key] = document
        return document

    def edit(self, kind: str, key: Key) -> Doc:
        """Return a copy to change, stored in place of the document; earlier readers keep what they read."""
        doc: Doc = copied(self.of(kind)[key])
        doc["metadata"]["resourceVersion"] = str(next(self._numbers))
        self.of(kind)[key] = doc
        return doc

    def time(self) -> str:
        return datetime.fromtimestamp(int(self.world.scheduler.now), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

    def _known(self, kind: str, key: Key) -> Doc:
        try:
            return self.of(kind)[key]
        except KeyError:
            raise NotFound(f"{kind} {key[1]} not found") from None


class DeadCluster(Documents):
    """A deleted cluster, which never responds."""

    server = "https://dead.example"

    def __getattribute__(self, name: str) -> Any:
        if name in ("list", "list_metadata", "get", "identity", *CHANGES):
            raise Transient(f"{name}: https://dead.example does not answer")
        return super().__getattribute__(name)


class Client:
    """The cluster as one machine reaches it."""

    def __init__(self, machine: Machine, real: Documents) -> None:
        self._machine, self._real = machine, real
        self.server = real.server

    def logs(self, pod: str, namespace: str, **kwargs: Any) -> Iterator[str]:
        """Read logs without a simulated call: in the product threads read logs, and no decision depends on them."""
        return self._real.logs(pod, namespace, **kwargs)

    def call(self, method: str, path: str, *, body: Mapping[str, Any], **_: Any) -> Doc:
        if path.endswith("/selfsubjectaccessreviews"):
            return self._call("review")  # type: ignore[no-any-return]
        assert method == "PUT"
        *_, namespace, _, name = path.split("/")
        return self._call("put", body["kind"], name, namespace, body)  # type: ignore[no-any-return]

    def __getattr__(self, name: str) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            return self._call(name, *args, **kwargs)

        self.__dict__[name] = call
        return call

    def _call(self, name: str, *args: Any, **kwargs: Any) -> Any:
        machine, real = self._machine, getattr(self._real, name)

        def do() -> Any:
            machine.world.acting = machine.name
            return real(*args, **kwargs)

        shown = " ".join(one for one in args if isinstance(one, str))
        if name == "create":
            shown = f"{args[0]['kind']} {args[0]['metadata']['name']}"
        if args and args[0] == "Lease":
            return machine.call("kube", f"{name} {shown}", do, beside=True)
        return machine.call("kube", f"{name} {shown}", do, mutates=name in CHANGES)


def condition(document: Doc, kind: str, status: bool, at: str, reason: str = "", message: str = "") -> None:
    """Set a condition of a document that is being edited."""
    conditions = document.setdefault("status", {}).setdefault("conditions", [])
    conditions[:] = [one for one in conditions if one["type"] != kind]
    made = {"type": kind, "status": str(status), "reason": reason, "message": message, "lastTransitionTime": at}
    conditions.append(made)


def true(document: Doc, kind: str) -> bool:
    return any(
        one["type"] == kind and one["status"] == "True" for one in document.get("status", {}).get("conditions", ())
    )


def _has(labels: Mapping[str, str], key: str, value: str) -> bool:
    return key in labels and value in ("", labels[key])


def _merge(into: Doc, change: Mapping[str, Any]) -> None:
    for key, value in change.items():
        if value is None:
            into.pop(key, None)
        else:
            into[key] = value
