"""Cloud Logging: entries that programs write themselves, as roles/logging.logWriter permits.

https://cloud.google.com/logging/docs/reference/v2/rest/v2/entries/write. If one entry is refused, none is written,
whatever `partialSuccess` says: this exposes programs that rely on the others.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from tpubox.google.iam import permissions
from tpubox.google.iam.conditions import Facts
from tpubox.google.logging.entries import WRITTEN, api, moment
from tpubox.google.projects.services import check_enabled
from tpubox.google.wire.api import Call
from tpubox.google.wire.cloud import Cloud
from tpubox.google.wire.sources import GUESS
from tpubox.google.wire.state import Doc

MOST_BYTES = 256 * 1024
"""Maximum size of an entry.

https://cloud.google.com/logging/quotas
"""
_LOG = re.compile(r"projects/([^/]+)/logs/([A-Za-z0-9_.%-]{1,511})")
_PAYLOADS = ("textPayload", "jsonPayload", "protoPayload")
_AHEAD = timedelta(hours=24)


@api.on("POST", "entries:write", body="WriteLogEntriesRequest")
def _write(cloud: Cloud, call: Call) -> Doc:
    if not call.body.get("entries"):
        raise GUESS.invalid("Field entries is required.")
    made = list(_entries(cloud, call))
    if not call.body.get("dryRun"):
        with cloud.state.transaction():
            for entry in made:
                cloud.state.put(WRITTEN, " ".join(entry[key] for key in ("logName", "timestamp", "insertId")), entry)
    return {}


def _entries(cloud: Cloud, call: Call) -> Iterator[Doc]:
    now = datetime.fromtimestamp(cloud.clock.now(), UTC)
    common = {key: call.body[key] for key in ("logName", "resource") if call.body.get(key)}
    for given in call.body["entries"]:
        entry = {**common, **given, "labels": {**call.body.get("labels", {}), **given.get("labels", {})}}
        entry["logName"] = _log(cloud, call, entry.get("logName", ""))
        _check(entry)
        at = _moment(entry["timestamp"]) if entry.get("timestamp") else now
        if at > now + _AHEAD:
            continue  # accepted, but never shown
        yield {
            "severity": "DEFAULT",
            **{key: value for key, value in entry.items() if value != {}},
            "insertId": entry.get("insertId") or f"{cloud.state.next():016x}",
            "timestamp": moment(at),
            "receiveTimestamp": moment(now),
        }


def _log(cloud: Cloud, call: Call, name: str) -> str:
    """Return the full log name, with the project's id in place of its number, if the caller may write there."""
    named = _LOG.fullmatch(name)
    if not named:
        raise GUESS.invalid(f"Log name '{name}' is not valid: write projects/PROJECT/logs/LOG_ID.")
    project = cloud.project(named[1])
    check_enabled(cloud, api, project)
    scope = f"projects/{project}"
    permissions.need(cloud, call, "logging.logEntries.create", [scope], Facts(scope))
    return f"{scope}/logs/{named[2]}"


def _check(entry: Doc) -> None:
    """Refuse an invalid entry. The first two error texts are guesses."""
    if not entry.get("resource", {}).get("type"):
        raise GUESS.invalid("A monitored resource must be specified for each log entry.")
    if len([key for key in _PAYLOADS if key in entry]) > 1:
        raise GUESS.invalid("A log entry can have only one payload.")
    size = len(json.dumps(entry).encode())
    if size > MOST_BYTES:
        raise GUESS.invalid(f"Log entry with size {size / 1024:.1f}K exceeds maximum size of {MOST_BYTES / 1024:.1f}K")


def _moment(text: str) -> datetime:
    try:
        found = datetime.fromisoformat(text)
    except ValueError as error:
        raise GUESS.invalid(f"Invalid value at 'entries.timestamp', \"{text}\"") from error
    if found.tzinfo is None:
        raise GUESS.invalid(f"Invalid value at 'entries.timestamp', \"{text}\": it lacks an offset")
    return found.astimezone(UTC)
