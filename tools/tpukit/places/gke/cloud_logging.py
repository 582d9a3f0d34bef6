"""Read host logs back from Cloud Logging, for attempts that were not followed while their pods existed.

GKE sends every line of a container there, with the labels of its pod, and keeps it for 30 days by default
(https://cloud.google.com/logging/quotas#logs_retention_periods). Lines arrive seconds after they were printed. A line
that was a JSON object comes back with its keys in another order, and without what became fields of the entry (severity,
time): https://cloud.google.com/logging/docs/structured-logging.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from tpukit.core.clock import Clock, SystemClock
from tpukit.core.errors import NotFound
from tpukit.jobs.spec import settings
from tpukit.places.gke.logging_api import LoggingApi

PAGE = 1000  # the maximum of the service
_NAMED_PODS = 100  # a filter is limited to 20,000 characters; with more pods, the pages are searched
_JOBSET = 'labels."k8s-pod/jobset_sigs_k8s_io/'
"""Labels of pods become labels of entries, with underscores for dots."""
_CONTEXT = re.compile(r"gke_(?P<project>[^_]+)_(?P<location>[^_]+)_(?P<cluster>.+)")


@dataclass(frozen=True, slots=True)
class Where:
    """The logs to search. An empty location or cluster matches any."""

    project: str
    location: str = ""
    cluster: str = ""

    @staticmethod
    def of(context: str, project: str | None = None) -> Where:
        """Return the cluster that a gcloud kubeconfig context names; else the project of the settings."""
        if named := _CONTEXT.fullmatch(context):
            return Where(**named.groupdict())
        if project:
            return Where(project)
        raise NotFound(
            f"the Google Cloud project with the logs of {context or 'this cluster'} is unknown",
            hint=f"{settings.hint('project')}; or use a context that gcloud made (gke_PROJECT_…)",
        )


class Printed(NamedTuple):
    """A line of a host and its time in seconds since the epoch."""

    host: str
    at: float
    text: str


@dataclass(frozen=True, slots=True)
class Wanted:
    """A selection of lines of a JobSet's pods.

    `restart` is JobSet's own restart counter, which starts over with every JobSet of that name: if a name is reused,
    `since` and `until` (seconds since the epoch, both included) distinguish them. `pods` are full names, `host` is one
    without its random suffix. Empty fields and None select everything.
    """

    namespace: str
    jobset: str
    restart: int | None = None
    pods: Sequence[str] = ()
    host: str = ""
    container: str = ""
    since: float | None = None
    until: float | None = None

    def includes(self, pod: str) -> bool:
        return (not self.pods or pod in self.pods) and (not self.host or host_of(pod) == self.host)


def read(where: Where, wanted: Wanted, clock: Clock | None = None) -> Iterator[Printed]:
    """Yield lines in the order of time, each once, fetching pages as they are consumed."""
    body: dict[str, Any] = {
        "resourceNames": [f"projects/{where.project}"],
        "filter": condition(where, wanted),
        "orderBy": "timestamp asc",
        "pageSize": PAGE,
    }
    service = LoggingApi(clock or SystemClock())
    seen: set[str] = set()
    moment = ""
    while True:
        page = service.ask("entries:list", body)
        for entry in page.get("entries", []):
            at, identity = str(entry.get("timestamp", "")), str(entry.get("insertId", ""))
            if at != moment:
                # An entry is known by its time and id together, so ids of earlier moments can be forgotten.
                moment, seen = at, set()
            pod = str(entry.get("resource", {}).get("labels", {}).get("pod_name", ""))
            if wanted.includes(pod) and identity not in seen:
                yield Printed(host_of(pod), seconds(at), _text(entry))
            if identity:
                seen.add(identity)
        # An empty page may not be the last: the service returns how far it got in its time limit.
        if not page.get("nextPageToken"):
            return
        body = {**body, "pageToken": page["nextPageToken"]}


def condition(where: Where, wanted: Wanted) -> str:
    """Return the filter in the Logging query language. It may select too many pods, never too few."""
    resource = {
        "location": where.location,
        "cluster_name": where.cluster,
        "namespace_name": wanted.namespace,
        "container_name": wanted.container,
    }
    terms = ['resource.type="k8s_container"']
    terms += [f"resource.labels.{name}={_quoted(value)}" for name, value in resource.items() if value]
    terms.append(f'{_JOBSET}jobset-name"={_quoted(wanted.jobset)}')
    if wanted.restart is not None:
        terms.append(f'{_JOBSET}restart-attempt"="{wanted.restart}"')
    if 0 < len(wanted.pods) <= _NAMED_PODS:
        terms.append(f"resource.labels.pod_name=({' OR '.join(map(_quoted, wanted.pods))})")
    if wanted.host:
        terms.append(f"resource.labels.pod_name:{_quoted(f'{wanted.host}-')}")
    if wanted.since is not None:
        terms.append(f'timestamp>="{_stamp(wanted.since, math.floor)}"')
    if wanted.until is not None:
        terms.append(f'timestamp<="{_stamp(wanted.until, math.ceil)}"')
    return " AND ".join(terms)


def host_of(pod: str) -> str:
    """Return the host's name: that of its pod without the random suffix from Kubernetes."""
    return pod.rpartition("-")[0] or pod


def _stamp(at: float, rounded: Callable[[float], int]) -> str:
    """Format a time to the microsecond, which is the precision of seconds since the epoch in a float."""
    return f"{datetime.fromtimestamp(0, UTC) + timedelta(microseconds=rounded(at * 1e6)):%Y-%m-%dT%H:%M:%S.%f}Z"


def seconds(text: str) -> float:
    """Parse a time of the service, which has up to nine fractional digits or none."""
    date, _, part = text.removesuffix("Z").partition(".")
    try:
        return datetime.fromisoformat(date).replace(tzinfo=UTC).timestamp() + float(f"0.{part or 0}")
    except ValueError:
        return 0.0


def _text(entry: Mapping[str, Any]) -> str:
    """Return the line as it was printed, as far as the entry preserves it."""
    payload = entry.get("jsonPayload")
    if isinstance(payload, dict):
        return str(payload["message"]) if set(payload) == {"message"} else json.dumps(payload, ensure_ascii=False)
    return str(entry.get("textPayload", "")).removesuffix("\n")


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
