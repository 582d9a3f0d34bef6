"""An API server in memory for tests of the node agent. It refuses the same requests as the real one."""

from __future__ import annotations

import copy
import itertools
import queue
import re
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from tpukit.core.errors import Conflict, Invalid, NotFound, Transient
from tpukit.kube import KINDS, Change

Doc = dict[str, Any]


class FakeApi:
    def __init__(self) -> None:
        self.objects: dict[tuple[str, str, str], Doc] = {}
        self.calls: list[tuple[str, ...]] = []
        self.budgets: set[str] = set()  # names of pods that must not be evicted
        self.phases: list[tuple[str, str]] = []  # name and phase of every pod, for each change
        self._changes: list[tuple[str, queue.Queue[Change]]] = []
        self._number = itertools.count(1)
        self._lock = threading.RLock()

    def version(self) -> str:
        return "v1.36.3"

    def put(self, kind: str, document: Doc) -> Doc:
        """Store an object as a user or a controller would."""
        with self._lock:
            document = copy.deepcopy(document)
            document.setdefault("kind", kind)
            metadata = document["metadata"]
            if KINDS[kind].namespaced:
                metadata.setdefault("namespace", "default")
            metadata.setdefault("uid", f"uid-{next(self._number)}")
            return self._store(kind, document)

    def get(self, kind: str, name: str, namespace: str = "") -> Doc:
        with self._lock:
            return copy.deepcopy(self._find(kind, name, namespace))

    def list(self, kind: str, namespace: str = "", *, labels: str = "", fields: str = "") -> list[Doc]:
        with self._lock:
            found = [(key, thing) for key, thing in self.objects.items() if key[0] == kind]
            return [copy.deepcopy(thing) for key, thing in found if namespace in ("", key[1])]

    def create(self, document: Doc, *, part: str = "", name: str = "") -> Doc:
        kind, metadata = document["kind"], document["metadata"]
        with self._lock:
            self.calls.append(("create", kind, metadata["name"]))
            if (kind, metadata.get("namespace", ""), metadata["name"]) in self.objects:
                raise Conflict(f"{kind} {metadata['name']} already exists")
            return self.put(kind, document)

    def patch(
        self, kind: str, name: str, change: Any, namespace: str = "", *, part: str = "", way: str = "merge"
    ) -> Doc:
        with self._lock:
            self.calls.append(("patch", kind, name, part))
            found = copy.deepcopy(self._find(kind, name, namespace))
            uid = change.get("metadata", {}).get("uid", found["metadata"]["uid"])
            if uid != found["metadata"]["uid"]:
                raise Conflict(f"the UID in the precondition ({uid}) does not match")
            if kind == "Pod" and part == "status":
                _check_status(found, change["status"])
            _merge(found, change, strategic=way == "strategic-merge")
            if kind == "Pod" and self.phases[-1:] != [(name, found["status"]["phase"])]:
                self.phases.append((name, found["status"]["phase"]))
            return self._store(kind, found)

    def delete(self, kind: str, name: str, namespace: str = "", *, grace: int | None = None, foreground: bool = False):
        with self._lock:
            self.calls.append(("delete", kind, name))
            if kind == "Pod" and grace != 0 and (kind, namespace, name) in self.objects:
                self.delete_pod(name, namespace, grace)
                return
            gone = self.objects.pop((kind, namespace, name), None)
            if gone:
                self._tell(Change(gone, gone=True))

    def call(self, method: str, path: str, query: Any = None, *, body: Any = None, content: str = "") -> Doc:
        match = re.fullmatch(r"/api/v1/namespaces/([^/]+)/(pods|serviceaccounts)/([^/]+)(/\w+)?", path)
        assert match, path
        namespace, kind, name, part = match.groups()
        if method == "POST" and kind == "serviceaccounts":
            return {"status": {"token": f"token-of-{name}"}}
        if method == "POST" and part == "/eviction":
            self.calls.append(("evict", "Pod", name))
            if name in self.budgets:
                raise Transient("Cannot evict pod as it would violate the pod's disruption budget. (429)")
            disrupted = {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}
            with self._lock:
                pod = copy.deepcopy(self._find("Pod", name, namespace))
                pod.setdefault("status", {}).setdefault("conditions", []).append(disrupted)
                self._store("Pod", pod)
                self.delete_pod(name, namespace)
            return {}
        assert method == "DELETE", (method, path)
        with self._lock:
            found = self._find("Pod", name, namespace)
            if body["preconditions"]["uid"] != found["metadata"]["uid"]:
                raise Conflict("the UID in the precondition does not match")
            assert body["gracePeriodSeconds"] == 0
            self.delete("Pod", name, namespace, grace=0)
            return {}

    def delete_pod(self, name: str, namespace: str = "default", grace: int | None = None) -> None:
        """Mark a pod for deletion as kubectl delete does; its kubelet does the rest."""
        with self._lock:
            pod = copy.deepcopy(self._find("Pod", name, namespace))
            if pod.get("status", {}).get("phase") in ("Succeeded", "Failed") or grace == 0:
                self.delete("Pod", name, namespace, grace=0)
                return
            seconds = pod["spec"].get("terminationGracePeriodSeconds", 30) if grace is None else grace
            at = datetime.fromtimestamp(time.time() + seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
            pod["metadata"] |= {"deletionTimestamp": at, "deletionGracePeriodSeconds": seconds}
            self._store("Pod", pod)

    def watch(self, kind: str, namespace: str = "", *, labels: str = "", fields: str = "") -> Iterator[Change]:
        changes: queue.Queue[Change] = queue.Queue()
        with self._lock:
            for thing in self.list(kind):
                changes.put(Change(thing))
            self._changes.append((kind, changes))
        while True:
            yield changes.get()

    def _find(self, kind: str, name: str, namespace: str) -> Doc:
        found = self.objects.get((kind, namespace, name))
        if found is None:
            raise NotFound(f'{kind} "{name}" not found')
        return found

    def _store(self, kind: str, document: Doc) -> Doc:
        metadata = document["metadata"]
        metadata["resourceVersion"] = str(next(self._number))
        self.objects[kind, metadata.get("namespace", ""), metadata["name"]] = document
        self._tell(Change(copy.deepcopy(document)))
        return copy.deepcopy(document)

    def _tell(self, change: Change) -> None:
        for kind, changes in self._changes:
            if kind == change.object["kind"]:
                changes.put(change)


def _check_status(pod: Doc, status: Doc) -> None:
    """Validate a status as the API server does: ended containers stay ended, and addresses are not loopback."""
    if status.get("podIP", "").startswith("127."):
        raise Invalid("status.podIP: endpoints of a loopback address are refused")
    policy = pod["spec"].get("restartPolicy", "Always")
    for which in ("containerStatuses", "initContainerStatuses"):
        before = {one["name"]: one["state"] for one in pod.get("status", {}).get(which, [])}
        for one in status.get(which) or ():  # null removes them
            old = before.get(one["name"], {}).get("terminated")
            ended = old and (policy == "Never" or (policy == "OnFailure" and old["exitCode"] == 0))
            if ended and which == "containerStatuses" and "terminated" not in one["state"]:
                raise Invalid(f"status.{which}.state: may not be transitioned to non-terminated state")


def _merge(old: Doc, new: Doc, *, strategic: bool) -> None:
    for key, value in new.items():
        if value is None:
            old.pop(key, None)
        elif isinstance(value, dict) and isinstance(old.get(key), dict):
            _merge(old[key], value, strategic=strategic)
        elif strategic and key == "conditions":
            merged = {one["type"]: one for one in old.get(key, [])} | {one["type"]: one for one in value}
            old[key] = list(merged.values())
        else:
            old[key] = copy.deepcopy(value)
