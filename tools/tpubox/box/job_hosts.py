"""The hosts of a job in a sandbox as local processes, for code that follows them closely or injects faults."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tpubox.box import folder
from tpubox.box.emulator import agent
from tpubox.box.folder import Folder
from tpukit.kube import Cluster, Context
from tpukit.places.local import processes as pods
from tpukit.places.local.processes import Phase

BACK_SECONDS = 1.0
"""Seconds after which a preempted slice is available again."""
_JOBSET = "jobset.sigs.k8s.io/"
_INDEX = "batch.kubernetes.io/job-completion-index"
_CONTAINER = "host"


@dataclass(frozen=True, slots=True)
class HostRun:
    """A host of one attempt."""

    attempt: int
    slice: int
    index: int  # in its slice
    pod: str
    node: str
    folder: Path  # of the container's run; deleted with the pod

    @property
    def logs(self) -> Sequence[Path]:
        """The existing files of its log, oldest first."""
        return pods.log_files(self.folder)

    @property
    def pids(self) -> tuple[int, ...]:
        """The process ids; empty if the host does not run."""
        return tuple(pods.members(self.folder))

    @property
    def began(self) -> bool:
        return pods.status(self.folder).phase is not Phase.ABSENT


class Hosts:
    """The hosts of one sandbox."""

    def __init__(self, place: Folder) -> None:
        self._place = place
        self._pods = place.path / "agent" / "pods"
        self._known: dict[Path, HostRun] = {}

    @property
    def buckets(self) -> Path:
        """The folder that holds a folder for each bucket. All pods see it at this path."""
        return self._place.path / "google" / "buckets"

    def of_job(self, namespace: str, job: str) -> Sequence[HostRun]:
        """Return the hosts that have begun and whose pods are not removed yet."""
        found = []
        for pod in self._pods.glob(f"{namespace}_{job}-slice-*"):
            run = pod / _CONTAINER / "0"  # a host that ended is not restarted: a new pod replaces it
            if run not in self._known and (made := _host(pod, run, job)):
                self._known[run] = made
            if run in self._known and self._known[run].began:
                found.append(self._known[run])
        return found

    def preempt(self, node: str, grace: float) -> None:
        """Preempt the slice of the node."""
        agent(self._place).preempt(node, grace=grace, back=BACK_SECONDS)


def of_context(context: Context) -> Folder | None:
    """Return the local sandbox that a context of the kubeconfig points to; None if it points elsewhere.

    In `tpu sandbox shell` a cluster that was created there has a name and an address like Google's, but it is the
    sandbox's own.
    """
    places = [folder.find(name) for name in folder.names()]
    if found := next((one for one in places if one.server.rstrip("/") == context.server), None):
        return found
    entered = next((one for one in places if one.name == os.environ.get("TPUKIT_SANDBOX")), None)
    if entered is None:
        return None
    uid = Cluster(entered.kubeconfig).identity()
    return entered if uid and Cluster(context=context.name).identity() == uid else None


def _host(pod: Path, run: Path, job: str) -> HostRun | None:
    """Return the host; None if it is being created or removed, or belongs to a job whose name begins alike."""
    try:
        document = json.loads((pod / "pod.json").read_bytes())
        env = json.loads((run / "pod.json").read_bytes())["env"]
    except (OSError, ValueError):
        return None
    metadata = document["metadata"]
    notes = {**metadata.get("labels", {}), **metadata.get("annotations", {})}
    if notes.get(f"{_JOBSET}jobset-name") != job:
        return None
    # Counted as by the launcher of a host.
    attempt = int(env["TPUKIT_FIRST_ATTEMPT"]) + int(env["TPUKIT_RESTARTS"])
    slice_, index = int(notes[f"{_JOBSET}job-index"]), int(notes[_INDEX])
    return HostRun(attempt, slice_, index, metadata["name"], document["spec"]["nodeName"], run)
