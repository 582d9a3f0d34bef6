"""Thin access to a Kubernetes cluster, with plain dicts both ways.

The package `kubernetes` reads the kubeconfig, signs in and holds the connection; paths and documents are ours, so that
nothing is converted twice and resources that it does not know (JobSets, Workloads) are like all others. What goes
wrong is raised as one of tpukit.errors.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import quote, urlencode, urlsplit

from tpukit.errors import Conflict, Denied, Invalid, NotFound, TpukitError, Transient

if TYPE_CHECKING:
    from urllib3 import BaseHTTPResponse

Doc = dict[str, Any]
Docs = list[Doc]

_CONNECT_SECONDS = 10.0
_ANSWER_SECONDS = 60.0
_WATCH_SECONDS = 300
_LONGEST_PAUSE = 10.0


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of object, by the names that its path has."""

    api_version: str
    plural: str
    namespaced: bool = True

    def path(self, namespace: str = "", name: str = "", part: str = "") -> str:
        root = "/api/" if "/" not in self.api_version else "/apis/"
        words = [self.api_version]
        if namespace and self.namespaced:
            words += ["namespaces", quote(namespace, safe="")]
        words += [self.plural, *([quote(name, safe=":")] if name else []), *([part] if part else [])]
        return root + "/".join(words)


KINDS = {
    "ConfigMap": Kind("v1", "configmaps"),
    "Event": Kind("v1", "events"),
    "Namespace": Kind("v1", "namespaces", namespaced=False),
    "Node": Kind("v1", "nodes", namespaced=False),
    "Pod": Kind("v1", "pods"),
    "Secret": Kind("v1", "secrets"),
    "Service": Kind("v1", "services"),
    "ServiceAccount": Kind("v1", "serviceaccounts"),
    "Deployment": Kind("apps/v1", "deployments"),
    "Job": Kind("batch/v1", "jobs"),
    "Lease": Kind("coordination.k8s.io/v1", "leases"),
    "Role": Kind("rbac.authorization.k8s.io/v1", "roles"),
    "RoleBinding": Kind("rbac.authorization.k8s.io/v1", "rolebindings"),
    "ClusterRole": Kind("rbac.authorization.k8s.io/v1", "clusterroles", namespaced=False),
    "ClusterRoleBinding": Kind("rbac.authorization.k8s.io/v1", "clusterrolebindings", namespaced=False),
    "JobSet": Kind("jobset.x-k8s.io/v1alpha2", "jobsets"),
    "ClusterQueue": Kind("kueue.x-k8s.io/v1beta2", "clusterqueues", namespaced=False),
    "Cohort": Kind("kueue.x-k8s.io/v1beta2", "cohorts", namespaced=False),
    "LocalQueue": Kind("kueue.x-k8s.io/v1beta2", "localqueues"),
    "ResourceFlavor": Kind("kueue.x-k8s.io/v1beta2", "resourceflavors", namespaced=False),
    "Workload": Kind("kueue.x-k8s.io/v1beta2", "workloads"),
    "WorkloadPriorityClass": Kind("kueue.x-k8s.io/v1beta2", "workloadpriorityclasses", namespaced=False),
}
"""Kinds that tpukit names. Others are looked up in the cluster when a document of theirs is sent."""


@dataclass(frozen=True, slots=True)
class Change:
    """One object as it is now. `gone`: as it was when it was last seen."""

    object: Doc
    gone: bool = False


def current_context() -> str:
    """Name of the kubeconfig's context that kubectl would use; empty inside a pod, which needs none."""
    if _in_cluster():
        return ""
    _need_package()
    from kubernetes import config

    try:
        return str(config.list_kube_config_contexts()[1]["name"])
    except (config.ConfigException, OSError) as error:
        raise _no_cluster(error) from error


class Cluster:
    """One cluster, as whoever the kubeconfig says."""

    def __init__(self, kubeconfig: Path | None = None, context: str | None = None) -> None:
        """By default what kubectl would use: $KUBECONFIG, ~/.kube/config, or the pod that this runs in."""
        _need_package()
        from kubernetes import client, config

        settings = client.Configuration()
        try:
            if kubeconfig is None and _in_cluster():
                config.load_incluster_config(client_configuration=settings)
            else:
                file = str(kubeconfig) if kubeconfig else None
                config.load_kube_config(file, context, client_configuration=settings, persist_config=False)
        except (config.ConfigException, OSError) as error:
            raise _no_cluster(error) from error
        if urlsplit(settings.host).hostname in ("127.0.0.1", "localhost", "::1"):
            settings.proxy = None  # no proxy of the user's leads back to this machine
        self._client = client.ApiClient(settings)
        self._found: dict[tuple[str, str], Kind] = {}

    @property
    def server(self) -> str:
        server: str = self._client.configuration.host
        return server

    def version(self) -> str:
        return str(self.call("GET", "/version")["gitVersion"])

    def list(self, kind: str, namespace: str = "", *, labels: str = "", fields: str = "") -> Docs:
        """All objects of a kind, of every namespace unless one is named."""
        return self._list(KINDS[kind].path(namespace), _selectors(labels, fields))[0]

    def get(self, kind: str, name: str, namespace: str = "") -> Doc:
        return self.call("GET", KINDS[kind].path(namespace, name))

    def create(self, document: Mapping[str, Any], *, part: str = "", name: str = "") -> Doc:
        """A new object, or a `part` of the one called `name`: ("eviction" of a pod, "token" of a service account)."""
        path = self._kind(document).path(_namespace(document), name, part)
        return self.call("POST", path, body=document)

    def apply(
        self, document: Mapping[str, Any], *, manager: str = "tpukit", force: bool = True, dry_run: bool = False
    ) -> Doc:
        """Server-side apply; as a dry run the cluster says all it would say, and changes nothing."""
        query = {"fieldManager": manager, "force": str(force).lower(), **({"dryRun": "All"} if dry_run else {})}
        path = self._kind(document).path(_namespace(document), document["metadata"]["name"])
        return self.call("PATCH", path, query, body=document, content="application/apply-patch+yaml")

    def patch(
        self,
        kind: str,
        name: str,
        change: Mapping[str, Any] | Docs,
        namespace: str = "",
        *,
        part: str = "",
        way: Literal["merge", "strategic-merge", "json"] = "merge",
    ) -> Doc:
        content = f"application/{way}-patch+json"
        return self.call("PATCH", KINDS[kind].path(namespace, name, part), body=change, content=content)

    def delete(
        self, kind: str, name: str, namespace: str = "", *, grace: int | None = None, foreground: bool = False
    ) -> None:
        """Ask for its removal; gone already is as good."""
        options: Doc = {"propagationPolicy": "Foreground" if foreground else "Background"}
        if grace is not None:
            options["gracePeriodSeconds"] = grace
        try:
            self.call("DELETE", KINDS[kind].path(namespace, name), body=options)
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
    ) -> Iterator[str]:
        """The lines that a pod printed; `follow` goes on until it ends."""
        query = {
            "follow": str(follow).lower(),
            "previous": str(previous).lower(),
            "timestamps": str(timestamps).lower(),
        }
        if container:
            query["container"] = container
        if tail is not None:
            query["tailLines"] = str(tail)
        with self._answer("GET", KINDS["Pod"].path(namespace, pod, "log"), query, read_seconds=None) as answer:
            yield from _lines(answer)

    def watch(
        self,
        kind: str,
        namespace: str = "",
        *,
        labels: str = "",
        fields: str = "",
        trouble: Callable[[Transient, float], None] = lambda error, pause: time.sleep(pause),
    ) -> Iterator[Change]:
        """Every object of a kind as it is, then each that changes, for ever.

        What happened while the connection was away is made up for from a fresh list, so nothing is missed for good;
        but several changes of one object may come as one. `trouble` is told what went wrong and how long to pause.
        """
        path, query = KINDS[kind].path(namespace), _selectors(labels, fields)
        known: dict[str, Doc] = {}
        version, pause = "", 0.0
        while True:
            try:
                if not version:
                    objects, version = self._list(path, query)
                    yield from _differences(known, objects)
                with self._watched(path, query, version) as events:
                    for event, changed in events:
                        pause, version = 0.0, changed["metadata"]["resourceVersion"]
                        if event == "DELETED":
                            known.pop(changed["metadata"]["uid"], None)
                            yield Change(changed, gone=True)
                        elif event in ("ADDED", "MODIFIED"):
                            known[changed["metadata"]["uid"]] = changed
                            yield Change(changed)
            except _Expired:
                version = ""
            except Transient as error:
                pause = min(_LONGEST_PAUSE, pause * 2 or 0.5)
                trouble(error, pause)

    def call(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        *,
        body: object = None,
        content: str = "application/json",
    ) -> Doc:
        """Any request of the API."""
        with self._answer(method, path, query, body=body, content=content) as answer:
            document: Doc = json.loads(answer.data)
            return document

    def _list(self, path: str, query: Mapping[str, str]) -> tuple[Docs, str]:
        answer = self.call("GET", path, query)
        singular = {"apiVersion": answer["apiVersion"], "kind": answer["kind"].removesuffix("List")}
        # Objects in a list do not say what they are.
        return [{**singular, **item} for item in answer["items"]], answer["metadata"]["resourceVersion"]

    @contextmanager
    def _watched(self, path: str, query: Mapping[str, str], version: str) -> Iterator[Iterator[tuple[str, Doc]]]:
        asked = {
            "watch": "true",
            "resourceVersion": version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(_WATCH_SECONDS),
        }
        with self._answer("GET", path, {**query, **asked}, read_seconds=_WATCH_SECONDS + 30.0) as answer:
            yield _events(answer)

    def _kind(self, document: Mapping[str, Any]) -> Kind:
        api_version, name = document["apiVersion"], document["kind"]
        known = KINDS.get(name)
        if known and known.api_version == api_version:
            return known
        if (api_version, name) not in self._found:
            group = self.call("GET", ("/api/" if "/" not in api_version else "/apis/") + api_version)
            for resource in group["resources"]:
                if "/" not in resource["name"]:
                    kind = Kind(api_version, resource["name"], resource["namespaced"])
                    self._found[api_version, resource["kind"]] = kind
        if (api_version, name) not in self._found:
            raise NotFound(f"{self.server} has no kind {name} in {api_version}")
        return self._found[api_version, name]

    @contextmanager
    def _answer(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        *,
        body: object = None,
        content: str = "application/json",
        read_seconds: float | None = _ANSWER_SECONDS,
    ) -> Iterator[BaseHTTPResponse]:
        import urllib3

        headers = {"Accept": "application/json", "User-Agent": "tpukit"}
        for setting in self._client.configuration.auth_settings().values():
            if setting["in"] == "header" and setting["value"]:
                headers[setting["key"]] = setting["value"]
        if body is not None:
            headers["Content-Type"] = content
        try:
            with closing(
                self._client.rest_client.pool_manager.request(
                    method,
                    f"{self.server}{path}" + (f"?{urlencode(query)}" if query else ""),
                    body=None if body is None else encode(body),
                    headers=headers,
                    preload_content=False,
                    retries=False,
                    timeout=urllib3.Timeout(connect=_CONNECT_SECONDS, read=read_seconds),
                )
            ) as answer:
                if answer.status >= 400:
                    raise _error(answer.status, answer.data, method, path)
                yield answer
                answer.release_conn()
        except urllib3.exceptions.HTTPError as error:
            raise Transient(f"{self.server} does not answer: {error}") from error


def _in_cluster() -> bool:
    return "KUBERNETES_SERVICE_HOST" in os.environ and "KUBECONFIG" not in os.environ


def _need_package() -> None:
    from importlib.util import find_spec

    if find_spec("kubernetes") is None:
        raise NotFound("the package kubernetes is not installed", hint="pip install 'tpukit[gke]'")


def _no_cluster(error: Exception) -> NotFound:
    hint = "`tpu cluster credentials` gets one, KUBECONFIG names one; `tpu sandbox up` makes one on this machine"
    return NotFound(f"no cluster to talk to: {error}", hint=hint)


class _Expired(Exception):
    """What happened since that version is no longer known: list again."""


def encode(document: object) -> bytes:
    """JSON that YAML reads as the same: server-side apply takes YAML alone.

    JSON may write a character beyond 65535 as two escapes, which YAML does not know, or leave all as they are: some of
    those are ends of lines to YAML.
    """
    text = json.dumps(document, ensure_ascii=False)
    return re.sub("[\x7f-\uffff]", lambda found: f"\\u{ord(found[0]):04x}", text).encode()


def _error(status: int, content: bytes, method: str, path: str) -> Exception:
    """What the API server's refusal means for whoever asked."""
    try:
        said = json.loads(content)
        message = str(said.get("message") or said)
    except ValueError:
        message = content.decode(errors="replace").strip() or f"{method} {path}"
    kinds: dict[int, type[TpukitError]] = {401: Denied, 403: Denied, 404: NotFound, 409: Conflict}
    if status in (400, 413, 415, 422):
        return Invalid(message)
    if status == 410:
        return _Expired(message)
    if status in kinds:
        return kinds[status](message)
    return Transient(f"{message} ({status})")


def _lines(answer: BaseHTTPResponse) -> Iterator[str]:
    rest = b""
    for chunk in answer.stream(decode_content=True):
        *whole, rest = (rest + chunk).split(b"\n")
        for line in whole:
            yield line.decode(errors="replace")
    if rest:
        yield rest.decode(errors="replace")


def _events(answer: BaseHTTPResponse) -> Iterator[tuple[str, Doc]]:
    for line in _lines(answer):
        event = json.loads(line)
        if event["type"] == "ERROR":
            status = event["object"]
            raise _error(int(status.get("code") or 500), json.dumps(status).encode(), "WATCH", "")
        yield event["type"], event["object"]


def _differences(known: dict[str, Doc], objects: Docs) -> Iterator[Change]:
    """What a fresh list says that was not known; `known` is brought up to it."""
    now = {thing["metadata"]["uid"]: thing for thing in objects}
    for uid in [uid for uid in known if uid not in now]:
        yield Change(known.pop(uid), gone=True)
    for uid, thing in now.items():
        before = known.get(uid)
        known[uid] = thing
        if before is None or before["metadata"]["resourceVersion"] != thing["metadata"]["resourceVersion"]:
            yield Change(thing)


def _selectors(labels: str, fields: str) -> dict[str, str]:
    return {
        **({"labelSelector": labels} if labels else {}),
        **({"fieldSelector": fields} if fields else {}),
    }


def _namespace(document: Mapping[str, Any]) -> str:
    return str(document["metadata"].get("namespace") or "default")
