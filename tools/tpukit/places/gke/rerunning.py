"""Send an adopted JobSet that has ended once more, as it was.

Only one JobSet can have a name, so the old one must be gone before the new one is created. The new one is first stored
in a ConfigMap: if the process stops between the two, nothing is lost and the next call continues.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tpukit.core.clock import Clock
from tpukit.core.errors import Conflict, LeaseLost, NotFound, NotYet
from tpukit.kube import Cluster
from tpukit.places.base import Unmanaged
from tpukit.places.gke.jobsets import JobSetState

RERUN = "tpukit.dev/rerun"
"""Label of the ConfigMap that holds a JobSet to be created."""
WAIT_SECONDS = 120.0
_PAUSE = 0.5
_COPIED = ("name", "namespace", "labels", "annotations")


@dataclass(frozen=True, slots=True)
class Rerun:
    cluster: Cluster
    clock: Clock

    def run(self, job: Unmanaged) -> None:
        if not job.adopted:
            raise Conflict(f"{job.id} was sent by others", hint=f"`tpu job adopt {job.id}` takes it over first")
        team, _, name = job.id.partition("/")
        pending = self._pending(team, name)
        if pending is None:
            pending = self._record(team, name, job)
        old = pending["replaces"]
        self._delete_old(team, name, old)
        self._wait_until_gone(team, name, old)
        try:
            self.cluster.create(pending["jobset"])
        except LeaseLost:
            raise
        except Conflict:  # it exists, from an interrupted call
            if self._uid(team, name) in ("", old):
                raise
        self._close(team, name, old)

    def _close(self, team: str, name: str, replaced: str) -> None:
        """Remove the note of this rerun, and not that of a later one."""
        try:
            note = self.cluster.get("ConfigMap", config_map(name), team)
        except NotFound:
            return
        if (pending_of(note) or {}).get("replaces") == replaced:
            self.cluster.delete("ConfigMap", config_map(name), team, uid=note["metadata"]["uid"])

    def _delete_old(self, team: str, name: str, uid: str) -> None:
        try:
            self.cluster.delete("JobSet", name, team, foreground=True, uid=uid)
        except LeaseLost:
            raise
        except Conflict:
            return  # another one has its name, so it is gone

    def _record(self, team: str, name: str, job: Unmanaged) -> Mapping[str, Any]:
        old = self.cluster.get("JobSet", name, team)
        if not JobSetState(old).finished:
            raise Conflict(f"{job.id} is {job.state}", hint=f"`tpu job stop {job.id}` first")
        metadata = {key: old["metadata"][key] for key in _COPIED if key in old["metadata"]}
        spec = {key: value for key, value in old["spec"].items() if key != "suspend"}
        jobset = {"apiVersion": old["apiVersion"], "kind": "JobSet", "metadata": metadata, "spec": spec}
        pending = {"replaces": old["metadata"]["uid"], "jobset": jobset}
        self.cluster.apply(
            {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {
                    "name": config_map(name),
                    "namespace": team,
                    "labels": {"app.kubernetes.io/managed-by": "tpukit", RERUN: "pending"},
                },
                "data": {"pending": json.dumps(pending)},
            }
        )
        return pending

    def _pending(self, team: str, name: str) -> Mapping[str, Any] | None:
        try:
            document = self.cluster.get("ConfigMap", config_map(name), team)
        except NotFound:
            return None
        return pending_of(document)

    def _wait_until_gone(self, team: str, name: str, uid: str) -> None:
        until = self.clock.monotonic() + WAIT_SECONDS
        while self._uid(team, name) == uid:
            if self.clock.monotonic() >= until:
                hint = "run the command again to continue"
                raise NotYet(f"hosts of the last run of {team}/{name} are still stopping", hint=hint)
            self.clock.sleep(_PAUSE)

    def _uid(self, team: str, name: str) -> str:
        try:
            return str(self.cluster.get("JobSet", name, team)["metadata"]["uid"])
        except NotFound:
            return ""


def config_map(name: str) -> str:
    return f"tpukit-rerun-{name}"


def pending_of(document: Mapping[str, Any]) -> dict[str, Any] | None:
    try:
        pending: dict[str, Any] = json.loads(document["data"]["pending"])
    except (LookupError, TypeError, ValueError):  # changed by another user
        return None
    return pending if isinstance(pending, dict) and {"replaces", "jobset"} <= set(pending) else None
