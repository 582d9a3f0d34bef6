"""Cloud Logging: the output of containers, as GKE sends it, and entries that programs write themselves.

Requests, pages and orders follow https://cloud.google.com/logging/docs/reference/v2/rest/v2/entries/list. The setting
`seconds` of "LOG_ENTRY" delays the arrival of lines.

The resource follows https://cloud.google.com/logging/docs/api/v2/resource-list. Labels of Pods become labels of entries
below `k8s-pod/`, with underscores for dots: Google's own tools query `labels."k8s-pod/jobset_sigs_k8s_io/jobset-name"`
(GoogleCloudPlatform/ml-auto-solutions). Pods of a sandbox have one stream for standard output and error, so all their
lines are `stdout`, with severity INFO unless a line sets another.
"""

from __future__ import annotations

import base64
import hashlib
import heapq
import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from tpubox.google.iam import permissions
from tpubox.google.iam.conditions import Facts
from tpubox.google.logging import files as log_files
from tpubox.google.logging import filter as log_filter
from tpubox.google.logging.files import Line
from tpubox.google.logging.filter import SEVERITIES
from tpubox.google.projects.services import check_enabled
from tpubox.google.wire.api import Api, Call
from tpubox.google.wire.cloud import Cloud
from tpubox.google.wire.filter_grammar import Node
from tpubox.google.wire.settings import Log
from tpubox.google.wire.sources import EMULATOR, GUESS
from tpubox.google.wire.state import Doc

WRITTEN = "log_entry"
"""Kind of the entries that programs wrote, in the state."""
DEFAULT_PAGE, MAX_PAGE, MAX_RESOURCES = 50, 1000, 100
SEARCHED_LINES = 20_000
"""Number of lines searched per response.

Google too may return fewer entries than requested, or none, with a token to continue.
"""
_ORDERS = {"": False, "timestamp asc": False, "timestamp desc": True}
_OF_A_LINE = ("timestamp", "receiveTimestamp", "severity", "textPayload", "jsonPayload", "logName", "insertId")
_LIFTED = ("severity", "time", "timestamp")
_EXACT = 2**53  # numbers of jsonPayload are doubles

api = Api(
    "logging",
    service="logging.googleapis.com",
    document="logging",
    title="Cloud Logging API",
    versions=("v2",),
    permissions="logging",
)


@dataclass(frozen=True, slots=True)
class _Query:
    projects: tuple[str, ...]
    condition: Node
    descending: bool
    size: int
    after: tuple[str, str] | None  # time and insertId of the last searched entry

    @property
    def beginning(self) -> tuple[str, str]:
        """The position before all entries in the order of the query."""
        return ("~", "~") if self.descending else ("", "")


@api.on("POST", "entries:list", body="ListLogEntriesRequest")
def _list(cloud: Cloud, call: Call) -> Doc:
    query = _query(cloud, call)
    if cloud.faults.strike("partial", call.body.get("filter", "")):
        return {"nextPageToken": _token(call.body, query.after or query.beginning)}
    entries: list[Doc] = []
    last = query.beginning
    for searched, entry in enumerate(_ordered(cloud, query)):
        if len(entries) == query.size or searched == SEARCHED_LINES:
            return {"entries": entries, "nextPageToken": _token(call.body, last)}
        last = _place(entry)
        if query.condition.holds(entry):
            entries.append(entry)
    return {"entries": entries} if entries else {}


def _query(cloud: Cloud, call: Call) -> _Query:
    body = call.body
    names = [*body.get("resourceNames", []), *(f"projects/{name}" for name in body.get("projectIds", []))]
    if not names or len(names) > MAX_RESOURCES:
        raise GUESS.invalid(f"From 1 to {MAX_RESOURCES} resource names must be given.")
    projects = []
    for name in names:
        kind, _, project = name.partition("/")
        if kind != "projects" or not project or "/" in project:
            raise EMULATOR.invalid(f"Resource name '{name}' is not answered by the emulator: write projects/PROJECT.")
        projects.append(cloud.project(project))
        check_enabled(cloud, api, projects[-1])
        scope = f"projects/{projects[-1]}"
        permissions.need(cloud, call, "logging.logEntries.list", [scope], Facts(scope))
    order, size = body.get("orderBy", ""), body.get("pageSize", 0)
    if order not in _ORDERS:
        raise GUESS.invalid(f"Unsupported order_by '{order}': write 'timestamp asc' or 'timestamp desc'.")
    if not 0 <= size <= MAX_PAGE:
        raise GUESS.invalid(f"page_size must be from 0 to {MAX_PAGE}.")
    return _Query(
        tuple(projects),
        log_filter.parse(body.get("filter", "")),
        _ORDERS[order],
        size or DEFAULT_PAGE,
        _after(body) if body.get("pageToken") else None,
    )


def _ordered(cloud: Cloud, query: _Query) -> Iterator[Doc]:
    """Yield candidate entries in order; the caller applies the condition."""
    delay = cloud.settings.seconds.get("LOG_ENTRY", 0.0)
    first, last = log_filter.bounds(query.condition)
    if delay:
        known = moment(datetime.fromtimestamp(cloud.clock.now() - delay, UTC))
        last = min(last or known, known)
    if query.after:
        first, last = (first, query.after[0]) if query.descending else (query.after[0], last)
    streams: list[Iterator[Doc]] = [_written(cloud, query, delay)]
    for log in cloud.hooks.logs():
        if not _stored(cloud, log):
            continue
        common = _common(cloud, log)
        if common["resource"]["labels"]["project_id"] not in query.projects:
            continue
        if query.condition.holds({**common, "unknown": _OF_A_LINE}) is not False:
            read = log_files.backwards if query.descending else log_files.forwards
            streams.append(_entries(read(log, first, last), common, log, delay))
    for entry in heapq.merge(*streams, key=_place, reverse=query.descending):
        if query.after is None or (_place(entry) < query.after if query.descending else _place(entry) > query.after):
            yield entry


def _written(cloud: Cloud, query: _Query, delay: float) -> Iterator[Doc]:
    known = moment(datetime.fromtimestamp(cloud.clock.now() - delay, UTC))
    every = [entry for one in query.projects for entry in cloud.state.all(WRITTEN, f"projects/{one}/").values()]
    seen = [entry for entry in every if entry["receiveTimestamp"] <= known]
    return iter(sorted(seen, key=_place, reverse=query.descending))


def write(cloud: Cloud, log: str, resource: Doc, text: str) -> None:
    """Write the output of a Google service, one entry per line."""
    at = moment(datetime.fromtimestamp(cloud.clock.now(), UTC))
    common = {"logName": log, "resource": resource, "severity": "DEFAULT", "timestamp": at, "receiveTimestamp": at}
    for line in text.splitlines():
        entry = {**common, "textPayload": line, "insertId": f"{cloud.state.next():016x}"}
        cloud.state.put(WRITTEN, f"{log} {at} {entry['insertId']}", entry)


def _place(entry: Doc) -> tuple[str, str]:
    """Return the sort key. Google orders entries of the same time by their ids."""
    return entry["timestamp"], entry["insertId"]


def _entries(lines: Iterator[Line], common: Doc, log: Log, delay: float) -> Iterator[Doc]:
    project = common["resource"]["labels"]["project_id"]
    for line in lines:
        yield {
            **common,
            # Keeps lines that a host printed at the same time in order, as if the runtime had separate timestamps for
            # them.
            "insertId": f"{log.id}-{line.offset:012x}",
            "logName": f"projects/{project}/logs/{line.stream}",
            "timestamp": line.at,
            "receiveTimestamp": line.at if not delay else _later(line.at, delay),
            "severity": "ERROR" if line.stream == "stderr" else "INFO",
            **_payload(line.text),
        }


def _group(cloud: Cloud, log: Log) -> Doc | None:
    return cloud.state.get("group", log.node.rpartition("-")[0])


def _stored(cloud: Cloud, log: Log) -> bool:
    """Return whether the log's cluster sends the output of workloads to Cloud Logging.

    https://cloud.google.com/kubernetes-engine/docs/how-to/config-logging-monitoring
    """
    group = _group(cloud, log)
    found = cloud.state.get("cluster", group["cluster"]) if group else None
    components = ((found or {}).get("loggingConfig") or {}).get("componentConfig")
    return components is None or "WORKLOADS" in components.get("enableComponents", [])


def _common(cloud: Cloud, log: Log) -> Doc:
    """Return the fields that all entries of a log share."""
    group = _group(cloud, log)
    if group:
        _, project, _, location, _, cluster = group["cluster"].split("/")
    else:
        project, location, cluster = cloud.settings.projects[0], log.zone, cloud.settings.own_cluster
    labels = {
        "project_id": project,
        "location": location,
        "cluster_name": cluster,
        "namespace_name": log.namespace,
        "pod_name": log.pod,
        "container_name": log.container,
    }
    return {
        "resource": {"type": "k8s_container", "labels": labels},
        "labels": {
            "compute.googleapis.com/resource_name": log.node,
            **{f"k8s-pod/{key.replace('.', '_')}": value for key, value in log.labels.items()},
        },
    }


def _payload(text: str) -> Doc:
    """Parse a line that is a JSON object, and lift some of its fields into the entry.

    https://cloud.google.com/logging/docs/structured-logging. Two guesses: a line with only a message becomes text, and
    keys are sorted alphabetically, because a Struct has no order.
    """
    try:
        value = json.loads(text) if text.lstrip().startswith("{") else None
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        return {"textPayload": text}
    lifted = {}
    if str(value.get("severity", "")).upper() in SEVERITIES:
        lifted["severity"] = str(value["severity"]).upper()
    rest = {key: _double(value[key]) for key in sorted(value) if key not in _LIFTED}
    if set(rest) == {"message"} and isinstance(rest["message"], str):
        return {**lifted, "textPayload": rest["message"]}
    return {**lifted, "jsonPayload": rest}


def _double(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _double(value[key]) for key in sorted(value)}
    if isinstance(value, list):
        return [_double(one) for one in value]
    return float(value) if isinstance(value, int) and abs(value) > _EXACT else value


def _later(at: str, delay: float) -> str:
    return moment(datetime.fromisoformat(at[:26]).replace(tzinfo=UTC) + timedelta(seconds=delay))


def moment(at: datetime) -> str:
    """Format a time with a fixed length, so that the order of times is the order of the texts."""
    return f"{at:%Y-%m-%dT%H:%M:%S.%f}000Z"


def _token(body: Doc, after: tuple[str, str]) -> str:
    return base64.urlsafe_b64encode(json.dumps([_asked(body), *after]).encode()).decode()


def _after(body: Doc) -> tuple[str, str]:
    try:
        asked, at, place = json.loads(base64.urlsafe_b64decode(body["pageToken"]))
    except (ValueError, TypeError) as error:
        raise GUESS.invalid("page_token is invalid.") from error
    if asked != _asked(body):
        raise GUESS.invalid("page_token is of another request: all but page_size must be as it was.")
    return str(at), str(place)


def _asked(body: Doc) -> str:
    same = {key: body.get(key) for key in ("resourceNames", "projectIds", "filter", "orderBy")}
    return hashlib.sha256(json.dumps(same).encode()).hexdigest()[:16]
