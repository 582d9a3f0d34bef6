"""Client of one Kubernetes cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from tpukit.core import retry
from tpukit.core.clock import SYSTEM
from tpukit.core.errors import Denied, NotFound, Transient, Unauthenticated
from tpukit.kube import executing
from tpukit.kube.answers import Expired, log_lines
from tpukit.kube.connection import ANSWER_SECONDS, Connection
from tpukit.kube.executing import Streams
from tpukit.kube.kinds import KINDS, Change, Doc, Docs, Kind, group_root, namespace_of
from tpukit.kube.source import WATCH_SECONDS, Source

LONGEST_PAUSE = 10.0


_METADATA_ONLY = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
"""Media type of metadata alone.

https://kubernetes.io/docs/reference/using-api/api-concepts/#metadata-only-fetches
"""


class Cluster:
    """Client of one cluster, with the credentials of the kubeconfig.

    Every call has a timeout: after `seconds` of silence from the API server it raises Transient.
    """

    def __init__(self, kubeconfig: Path | None = None, context: str | None = None) -> None:
        """Connect as kubectl does by default: with $KUBECONFIG, ~/.kube/config, or the pod that this runs in."""
        self._connection = Connection(kubeconfig, context)
        self._discovered: dict[tuple[str, str], Kind] = {}

    @property
    def server(self) -> str:
        return self._connection.server

    def version(self, *, seconds: float = ANSWER_SECONDS) -> str:
        return str(self.call("GET", "/version", seconds=seconds)["gitVersion"])

    def identity(self, *, seconds: float = ANSWER_SECONDS) -> str:
        """Return an id of the cluster that does not depend on its address; empty if the caller may not read it."""
        try:
            return str(self.get("Namespace", "kube-system", seconds=seconds)["metadata"]["uid"])
        except Unauthenticated:
            raise
        except (Denied, NotFound):
            return ""

    def list(
        self,
        kind: str,
        namespace: str = "",
        *,
        labels: str = "",
        fields: str = "",
        type: Any = None,  # noqa: A002
        seconds: float = ANSWER_SECONDS,
    ) -> Docs:
        """Return all objects of a kind, in every namespace by default; with `type`, only the fields that it names."""
        return self.source(kind, namespace, labels=labels, fields=fields, type=type).list(seconds)[0]

    def list_metadata(
        self, kind: str, namespace: str = "", *, labels: str = "", seconds: float = ANSWER_SECONDS
    ) -> Docs:
        """Return only their metadata: a ConfigMap may hold a megabyte."""
        return Source(self._connection, kind, namespace, labels=labels, accept=_METADATA_ONLY).list(seconds)[0]

    def source(
        self,
        kind: str,
        namespace: str = "",
        *,
        labels: str = "",
        fields: str = "",
        type: Any = None,  # noqa: A002
    ) -> Source:
        """Return the source of these objects, to list them with their version and then follow them."""
        return Source(self._connection, kind, namespace, labels=labels, fields=fields, schema=type)

    def get(self, kind: str, name: str, namespace: str = "", *, seconds: float = ANSWER_SECONDS) -> Doc:
        return self.call("GET", KINDS[kind].path(namespace, name), seconds=seconds)

    def create(
        self, document: Mapping[str, Any], *, part: str = "", name: str = "", seconds: float = ANSWER_SECONDS
    ) -> Doc:
        """Create an object, or a `part` of the one called `name`: "eviction" of a pod, "token" of a service account."""
        path = self._kind(document).path(namespace_of(document), name, part)
        return self.call("POST", path, body=document, seconds=seconds)

    def apply(
        self,
        document: Mapping[str, Any],
        *,
        manager: str = "tpukit",
        force: bool = True,
        dry_run: bool = False,
        seconds: float = ANSWER_SECONDS,
    ) -> Doc:
        """Apply on the server side. A dry run returns all errors and changes nothing."""
        query = {"fieldManager": manager, "force": str(force).lower(), **({"dryRun": "All"} if dry_run else {})}
        path = self._kind(document).path(namespace_of(document), document["metadata"]["name"])
        content = "application/apply-patch+yaml"
        return self.call("PATCH", path, query, body=document, content=content, seconds=seconds)

    def replace(self, document: Mapping[str, Any], *, seconds: float = ANSWER_SECONDS) -> Doc:
        """Replace an object. With a resourceVersion, raise Conflict if the object has changed since."""
        path = self._kind(document).path(namespace_of(document), document["metadata"]["name"])
        return self.call("PUT", path, body=document, seconds=seconds)

    def patch(
        self,
        kind: str,
        name: str,
        change: Mapping[str, Any] | Docs,
        namespace: str = "",
        *,
        part: str = "",
        way: Literal["merge", "strategic-merge", "json"] = "merge",
        uid: str = "",
        version: str = "",
        dry_run: bool = False,
        seconds: float = ANSWER_SECONDS,
    ) -> Doc:
        """Change an object. A dry run returns all errors and changes nothing.

        With `uid` or `version`, raise Conflict if another object or a later version has the name. Neither works with
        a list as `change`.
        """
        if expected := {**({"uid": uid} if uid else {}), **({"resourceVersion": version} if version else {})}:
            assert isinstance(change, Mapping), "a JSON patch carries its own tests"
            change = {**change, "metadata": {**(change.get("metadata") or {}), **expected}}
        content = f"application/{way}-patch+json"
        path = KINDS[kind].path(namespace, name, part)
        query = {"dryRun": "All"} if dry_run else None
        return self.call("PATCH", path, query, body=change, content=content, seconds=seconds)

    def delete(
        self,
        kind: str,
        name: str,
        namespace: str = "",
        *,
        grace: int | None = None,
        foreground: bool = False,
        uid: str = "",
        version: str = "",
        seconds: float = ANSWER_SECONDS,
    ) -> None:
        """Request the deletion of an object, and ignore one that is already gone.

        With `uid`, raise Conflict if another object has the name by now; with `version`, if the object has changed.
        """
        options: Doc = {"propagationPolicy": "Foreground" if foreground else "Background"}
        if grace is not None:
            options["gracePeriodSeconds"] = grace
        conditions = {**({"uid": uid} if uid else {}), **({"resourceVersion": version} if version else {})}
        if conditions:
            options["preconditions"] = conditions
        try:
            self.call("DELETE", KINDS[kind].path(namespace, name), body=options, seconds=seconds)
        except NotFound:
            return

    def logs(
        self,
        pod: str,
        namespace: str,
        *,
        container: str = "",
        follow: bool = False,
        previous: bool = False,
        timestamps: bool = False,
        tail: int | None = None,
        since: str = "",
        limit_bytes: int | None = None,
        seconds: float = ANSWER_SECONDS,
    ) -> Iterator[str]:
        """Yield the lines that a pod printed, since the time `since` (RFC 3339). `follow` continues until it ends.

        Raise Transient if the stream broke off: there may be more. Very long lines come in pieces (answers.LINE_BYTES).
        """
        query = {
            "follow": str(follow).lower(),
            "previous": str(previous).lower(),
            "timestamps": str(timestamps).lower(),
            **({"container": container} if container else {}),
            **({"tailLines": str(tail)} if tail is not None else {}),
            **({"sinceTime": since} if since else {}),
            **({"limitBytes": str(limit_bytes)} if limit_bytes is not None else {}),
        }
        path = KINDS["Pod"].path(namespace, pod, "log")
        # A followed pod may be silent for hours: keep-alive detects a lost connection.
        with self._connection.answer("GET", path, query, seconds=None if follow else seconds) as answer:
            yield from log_lines(answer, timestamps=timestamps)

    def execute(self, pod: str, namespace: str, container: str, command: Sequence[str], streams: Streams) -> int:
        """Run a command in a container with these files as input and output, and return its exit code."""
        path = KINDS["Pod"].path(namespace, pod, "exec")
        asked = executing.query(command, container, terminal=streams.terminal)
        with self._connection.web_socket(path, asked, executing.PROTOCOL) as socket:
            return executing.relay(socket, streams)

    def watch(
        self,
        kind: str,
        namespace: str = "",
        *,
        labels: str = "",
        fields: str = "",
        trouble: Callable[[Transient, float], None] = lambda error, pause: SYSTEM.sleep(pause),
        type: Any = None,  # noqa: A002
    ) -> Iterator[Change]:
        """Yield every object of a kind, then each change, without end.

        After a lost connection, changes come from a fresh list, so none is lost for good, but several changes of one
        object may come as one. `trouble` gets the error and the pause before the retry.
        """
        source = self.source(kind, namespace, labels=labels, fields=fields, type=type)
        known: dict[str, Doc] = {}
        version, failures = "", 0
        while True:
            try:
                if not version:
                    objects, version = source.list()
                    yield from _differences(known, objects)
                with source.events(version, WATCH_SECONDS + 30.0) as events:
                    for event, changed in events:
                        failures, version = 0, changed["metadata"]["resourceVersion"]
                        if event == "DELETED":
                            known.pop(changed["metadata"]["uid"], None)
                            yield Change(changed, gone=True)
                        elif event in ("ADDED", "MODIFIED"):
                            known[changed["metadata"]["uid"]] = changed
                            yield Change(changed)
            except Expired:
                version = ""
            except Transient as error:
                failures += 1
                trouble(error, max(retry.growing(failures, 0.5, LONGEST_PAUSE), min(LONGEST_PAUSE, error.retry_after)))

    def call(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        *,
        body: object = None,
        content: str = "application/json",
        seconds: float = ANSWER_SECONDS,
    ) -> Doc:
        """Send a request, and return the response document."""
        return self._connection.call(method, path, query, body=body, content=content, seconds=seconds)

    def _kind(self, document: Mapping[str, Any]) -> Kind:
        api_version, name = document["apiVersion"], document["kind"]
        known = KINDS.get(name)
        if known and known.api_version == api_version:
            return known
        if (api_version, name) not in self._discovered:
            group = self.call("GET", group_root(api_version) + api_version)
            for resource in group["resources"]:
                if "/" not in resource["name"]:
                    kind = Kind(api_version, resource["name"], resource["namespaced"])
                    self._discovered[api_version, resource["kind"]] = kind
        if (api_version, name) not in self._discovered:
            raise NotFound(f"{self.server} has no kind {name} in {api_version}")
        return self._discovered[api_version, name]


def _differences(known: dict[str, Doc], objects: Docs) -> Iterator[Change]:
    """Yield the changes between `known` and a fresh list, and update `known`."""
    now = {thing["metadata"]["uid"]: thing for thing in objects}
    for uid in [uid for uid in known if uid not in now]:
        yield Change(known.pop(uid), gone=True)
    for uid, thing in now.items():
        before = known.get(uid)
        known[uid] = thing
        if before is None or before["metadata"]["resourceVersion"] != thing["metadata"]["resourceVersion"]:
            yield Change(thing)
