"""What Terraform began to make and did not report as made, kept beside its state on this machine.

Told to leave, the google provider stops waiting for Google: what Google then finishes is in no state, and the next
apply is answered that it exists already. An entry here shows that it is ours, so that it can be imported.
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
_NAMES = {  # kind: what `terraform import` calls it, from the values that were planned
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
    """Addresses whose creation began and was not reported as done, by this run or one before."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / _FILE
        self._before = frozenset(self._read())
        self._now = set(self._before)

    def feed(self, event: Event) -> None:
        """Written as it happens: this process may be killed."""
        if isinstance(event, Started) and event.action == "create":
            self._now.add(event.address)
            self._write()
        elif isinstance(event, Finished) and event.action in ("create", "delete") and event.address in self._now:
            self._now.discard(event.address)
            self._write()

    def ended(self, errors: Iterable[Diagnostic]) -> list[Diagnostic]:
        """Return the errors about things that exist already because an earlier run began to make them.

        Something that existed before any run of ours began to make it belongs to another: it is forgotten.
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
    """Return what `terraform import` calls the resource that exists already; empty where that is unknown."""
    if path := _PATH.search(f"{found.summary}\n{found.detail}"):
        return path[1]
    change: Mapping[str, Any] = next(
        (one for one in plan.get("resource_changes", []) if one["address"] == found.address), {}
    )
    values = {key: value for key, value in (change.get("change", {}).get("after") or {}).items() if value is not None}
    with suppress(KeyError):
        return _NAMES[str(change.get("type"))].format_map({"project": project, **values})
    return ""
