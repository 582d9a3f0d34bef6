"""Resources whose creation Terraform began and did not report as done, kept next to its state on this machine.

When interrupted, the google provider stops waiting for Google: what Google then finishes is in no state, and the next
apply fails because it already exists. An entry here shows that a resource is ours and can be imported.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from tpukit.cluster import diagnosis
from tpukit.cluster.terraform_events import Diagnostic, Event, Finished, Started

_FILE = "unfinished.json"
_PATH = re.compile(r"'(projects/[^'\s]+)' already exists", re.IGNORECASE)
_NAMES = {  # kind: import ID, from the planned values
    "google_storage_bucket": "{name}",
    "google_service_account": "projects/{project}/serviceAccounts/{account_id}@{project}.iam.gserviceaccount.com",
    "google_artifact_registry_repository": "projects/{project}/locations/{location}/repositories/{repository_id}",
    "google_container_cluster": "{project}/{location}/{name}",
    "google_container_node_pool": "{project}/{location}/{cluster}/{name}",
    "google_compute_router_nat": "{project}/{region}/{router}/{name}",
    "google_firestore_database": "projects/{project}/databases/{name}",
    "google_logging_metric": "{project} {name}",
}


class Unfinished:
    """Addresses whose creation began and was not reported as done, by this run or an earlier one."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / _FILE
        self._before = frozenset(self._read())
        self._now = set(self._before)

    def feed(self, event: Event) -> None:
        """Record an event immediately, since this process may be killed."""
        if isinstance(event, Started) and event.action == "create":
            self._now.add(event.address)
            self._write()
        elif isinstance(event, Finished) and event.action in ("create", "delete") and event.address in self._now:
            self._now.discard(event.address)
            self._write()

    def ended(self, errors: Iterable[Diagnostic]) -> list[Diagnostic]:
        """Return the errors about resources that already exist because an earlier run began to create them.

        A resource that existed before any of our runs began to create it is not ours: remove it from the record.
        """
        there = [one for one in errors if one.address and diagnosis.already_there(one)]
        self._now -= {one.address for one in there} - self._before
        self._write()
        return [one for one in there if one.address in self._before]

    def taken_in(self, address: str) -> None:
        self._now.discard(address)
        self._write()

    def _read(self) -> list[str]:
        with suppress(OSError, ValueError, KeyError, TypeError):
            return [str(one) for one in json.loads(self._file.read_text())["creating"]]
        return []

    def _write(self) -> None:
        new = self._file.with_suffix(".new")
        new.write_text(json.dumps({"creating": sorted(self._now)}))
        new.replace(self._file)


def import_name(found: Diagnostic, plan: Mapping[str, Any], project: str) -> str:
    """Return the import ID of a resource that already exists, or "" if it is unknown."""
    if path := _PATH.search(f"{found.summary}\n{found.detail}"):
        return path[1]
    change: Mapping[str, Any] = next(
        (one for one in plan.get("resource_changes", []) if one["address"] == found.address), {}
    )
    values = {key: value for key, value in (change.get("change", {}).get("after") or {}).items() if value is not None}
    with suppress(KeyError):
        return _NAMES[str(change.get("type"))].format_map({"project": project, **values})
    return ""
