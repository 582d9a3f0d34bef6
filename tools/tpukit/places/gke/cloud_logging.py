"""What hosts printed, read back from Cloud Logging: for attempts that nobody followed while their pods were there.

GKE sends every line of a container there, with the labels of its pod, and holds it for 30 days unless the project says
otherwise (https://cloud.google.com/kubernetes-engine/docs/how-to/view-logs). Lines arrive seconds after they were
printed. A line that was a JSON object comes back with its keys in another order, and without what became fields of the
entry (severity, time): https://cloud.google.com/logging/docs/structured-logging.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple

from tpukit.errors import Denied, Invalid, NotFound, TpukitError, Transient

ENDPOINT = "GOOGLE_LOGGING_CUSTOM_ENDPOINT"
TOKEN = "GOOGLE_OAUTH_ACCESS_TOKEN"  # noqa: S105 (a name)
"""Variables by which Google's Terraform provider is led elsewhere too: what holds for one holds for the other."""
PAGE = 1000  # the most that the service gives at once
_GOOGLE = "https://logging.googleapis.com"
_SECONDS = 20.0
_TRIES = 3
_CONTEXT = re.compile(r"gke_(?P<project>[^_]+)_(?P<location>[^_]+)_(?P<cluster>.+)")
_SCOPE = "https://www.googleapis.com/auth/logging.read"


@dataclass(frozen=True, slots=True)
class Where:
    """Whose logs to search. An empty location or cluster is any."""

    project: str
    location: str = ""
    cluster: str = ""

    @staticmethod
    def of(context: str, project: str | None = None) -> Where:
        """What the name of a kubeconfig's context says, as gcloud writes it; else the project of the settings."""
        if named := _CONTEXT.fullmatch(context):
            return Where(**named.groupdict())
        if project:
            return Where(project)
        raise NotFound(
            f"nothing says in which Google Cloud project the logs of {context or 'this cluster'} are",
            hint="write `project: NAME` into the settings, or name the context gke_PROJECT_LOCATION_CLUSTER as gcloud does",
        )


class Printed(NamedTuple):
    """A line of a host, and when it was printed in seconds since the epoch."""

    host: str
    at: float
    text: str


def read(
    where: Where,
    namespace: str,
    jobset: str,
    *,
    restart: int | None = None,
    pods: Sequence[str] = (),
    host: str = "",
    since: float | None = None,
    until: float | None = None,
    container: str = "",
) -> Iterator[Printed]:
    """Lines of the pods of a JobSet in the order of time, each once; read page by page as they are taken.

    `restart` is JobSet's own count of restarts, which begins anew with every JobSet of that name: where a name is used
    again, `since` and `until` say which one is meant. `pods` are full names, `host` is one without its random end.
    """
    condition = selection(
        where, namespace, jobset, restart=restart, pods=pods, host=host, since=since, until=until, container=container
    )
    body: dict[str, Any] = {
        "resourceNames": [f"projects/{where.project}"],
        "filter": condition,
        "orderBy": "timestamp asc",
        "pageSize": PAGE,
    }
    service = _Service()
    seen: set[tuple[str, str]] = set()
    moment = ""
    while True:
        page = service.ask("entries:list", body)
        for entry in page.get("entries", []):
            at = str(entry.get("timestamp", ""))
            if at != moment:
                # Entries are known by time and id together, so those of earlier moments can be forgotten.
                moment, seen = at, set()
            identity = (at, str(entry.get("insertId", "")))
            if identity[1] and identity in seen:
                continue
            seen.add(identity)
            pod = str(entry.get("resource", {}).get("labels", {}).get("pod_name", ""))
            if not host or host_of(pod) == host:
                yield from (Printed(host_of(pod), seconds(at), text) for text in _lines(entry))
        # A page may be empty and not the last: the service says how far it came in the time it had.
        if not page.get("nextPageToken"):
            return
        body = {**body, "pageToken": page["nextPageToken"]}


def selection(
    where: Where,
    namespace: str,
    jobset: str,
    *,
    restart: int | None = None,
    pods: Sequence[str] = (),
    host: str = "",
    since: float | None = None,
    until: float | None = None,
    container: str = "",
) -> str:
    """The filter in the Logging query language."""
    terms = [
        'resource.type="k8s_container"',
        *(f"resource.labels.location={_quoted(where.location)}" for _ in [0] if where.location),
        *(f"resource.labels.cluster_name={_quoted(where.cluster)}" for _ in [0] if where.cluster),
        f"resource.labels.namespace_name={_quoted(namespace)}",
        f'labels."k8s-pod/jobset_sigs_k8s_io/jobset-name"={_quoted(jobset)}',
    ]
    if container:
        terms.append(f"resource.labels.container_name={_quoted(container)}")
    if restart is not None:
        terms.append(f'labels."k8s-pod/jobset_sigs_k8s_io/restart-attempt"="{restart}"')
    if pods:
        terms.append(f"resource.labels.pod_name=({' OR '.join(map(_quoted, pods))})")
    if host:
        terms.append(f"resource.labels.pod_name:{_quoted(f'{host}-')}")
    if since is not None:
        terms.append(f'timestamp>="{stamp(since)}"')
    if until is not None:
        terms.append(f'timestamp<="{stamp(until)}"')
    return " AND ".join(terms)


def host_of(pod: str) -> str:
    """The name of a host: that of its pod without the random end that Kubernetes gives it."""
    return pod.rpartition("-")[0] or pod


def stamp(at: float) -> str:
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%dT%H:%M:%S.%f}Z"


def seconds(text: str) -> float:
    """A time of the service, whose parts of a second have up to nine digits or none."""
    date, _, part = text.removesuffix("Z").partition(".")
    try:
        return datetime.fromisoformat(date).replace(tzinfo=UTC).timestamp() + float(f"0.{part or 0}")
    except ValueError:
        return 0.0


def _lines(entry: dict[str, Any]) -> Iterator[str]:
    if "jsonPayload" in entry:
        payload = entry["jsonPayload"]
        only_message = isinstance(payload, dict) and set(payload) == {"message"}
        text = str(payload["message"]) if only_message else json.dumps(payload, ensure_ascii=False)
    else:
        text = str(entry.get("textPayload", ""))
    yield text.removesuffix("\n")


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


class _Service:
    def __init__(self) -> None:
        elsewhere = os.environ.get(ENDPOINT, "").rstrip("/").removesuffix("/v2")
        self._endpoint = elsewhere or _GOOGLE
        self._token = ""

    def ask(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        for left in reversed(range(_TRIES)):
            try:
                return self._ask(path, body)
            except Transient:
                if not left:
                    raise
                time.sleep(0.5 * (_TRIES - left))
        raise AssertionError

    def _ask(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        self._token = self._token or _access_token(self._endpoint)
        request = urllib.request.Request(  # noqa: S310  https, or the endpoint somebody typed
            f"{self._endpoint}/v2/{path}",
            json.dumps(body).encode(),
            {"Content-Type": "application/json", "Authorization": f"Bearer {self._token}"},
        )
        try:
            with urllib.request.urlopen(request, timeout=_SECONDS) as answer:  # noqa: S310
                found: dict[str, Any] = json.load(answer)
                return found
        except urllib.error.HTTPError as error:
            with error:
                raise _translated(error.code, _explanation(error)) from error
        except (OSError, ValueError) as error:
            raise Transient(f"Cloud Logging does not answer: {error}") from error


def _translated(code: int, said: str) -> TpukitError:
    if code == 401:
        return Denied(
            f"Cloud Logging does not know who asks: {said}",
            hint="`gcloud auth application-default login` says who you are",
        )
    if code == 403:
        return Denied(
            f"Cloud Logging lets you read no logs of this project: {said}",
            hint="ask its owner for roles/logging.viewer, and whether logging.googleapis.com is enabled",
        )
    if code == 404:
        return NotFound(f"Cloud Logging has nothing of that name: {said}")
    if code == 429 or code >= 500:
        return Transient(f"Cloud Logging is busy ({code}): {said}")
    return Invalid(f"Cloud Logging refuses the question ({code}): {said}")


def _explanation(error: urllib.error.HTTPError) -> str:
    try:
        text = error.read().decode(errors="replace")
        return str(json.loads(text)["error"]["message"])
    except (OSError, ValueError, KeyError, TypeError):
        return str(error.reason)


def _access_token(endpoint: str) -> str:
    """Google's own tokens go over an encrypted connection or not at all; an emulator on this machine has its own."""
    own = os.environ.get(TOKEN, "")
    local = urllib.parse.urlsplit(endpoint).hostname in ("127.0.0.1", "localhost", "::1")
    if own and (local or endpoint.startswith("https://")):
        return own
    if not endpoint.startswith("https://"):
        raise Denied(f"no token for {endpoint}", hint=f"set {TOKEN}, or unset {ENDPOINT} to ask Google itself")
    return _default_token() or _gcloud_token()


def _default_token() -> str:
    """Of the application default credentials; empty where there are none, or where Google's package is missing."""
    try:
        import google.auth
        import google.auth.exceptions
        import google.auth.transport.requests
    except ImportError:
        return ""
    try:
        credentials, _ = google.auth.default(scopes=[_SCOPE])
        credentials.refresh(google.auth.transport.requests.Request())
    except google.auth.exceptions.TransportError as error:
        raise Transient(f"Google does not answer: {error}") from error
    except google.auth.exceptions.GoogleAuthError:
        return ""
    return str(credentials.token)


def _gcloud_token() -> str:
    argv = ["gcloud", "auth", "print-access-token", "--quiet"]
    hint = "`gcloud auth login` says who you are"
    try:
        done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=_SECONDS)
    except FileNotFoundError as error:
        hint = "install gcloud, or google-auth with `gcloud auth application-default login`"
        raise Denied("nothing on this machine says who you are to Google Cloud", hint=hint) from error
    except subprocess.TimeoutExpired as error:
        raise Transient("gcloud does not say who you are") from error
    if done.returncode or not done.stdout.strip():
        raise Denied(f"gcloud does not say who you are: {done.stderr.strip()[-300:]}", hint=hint)
    return done.stdout.strip()
