"""The hosts of a job in a sandbox, as the processes of this machine that they are: for whoever follows them closely, or
loses them on purpose.
"""

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
"""After which a preempted slice is there again."""
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
    folder: Path  # of the container's run; it goes with the pod

    @property
    def logs(self) -> Sequence[Path]:
        """The files of its log that are there, the oldest first."""
        return pods.log_files(self.folder)

    @property
    def pids(self) -> tuple[int, ...]:
        """Empty where it does not run."""
        return tuple(pods.members(self.folder))

    @property
    def began(self) -> bool:
        return pods.status(self.folder).phase is not Phase.ABSENT


class Hosts:
    """Of one sandbox."""

    def __init__(self, place: Folder) -> None:
        self._place = place
        self._pods = place.path / "agent" / "pods"
        self._known: dict[Path, HostRun] = {}

    @property
    def buckets(self) -> Path:
        """A folder for each bucket. All pods see it at this very path."""
        return self._place.path / "google" / "buckets"

    def of_job(self, namespace: str, job: str) -> Sequence[HostRun]:
        """Hosts that have begun and whose pods are not removed yet."""
        found = []
        for pod in self._pods.glob(f"{namespace}_{job}-slice-*"):
            run = pod / _CONTAINER / "0"  # a host that ended is not restarted: a new pod takes its place
            if run not in self._known and (made := _host(pod, run, job)):
                self._known[run] = made
            if run in self._known and self._known[run].began:
                found.append(self._known[run])
        return found

    def preempt(self, node: str, grace: float) -> None:
        """The slice that the node is of."""
        agent(self._place).preempt(node, grace=grace, back=BACK_SECONDS)


def of_context(context: Context) -> Folder | None:
    """The sandbox of this machine that a context of the kubeconfig leads to; None: it leads elsewhere.

    In `tpu sandbox shell` a cluster that was made there has a name and an address as Google gives them: it is the
    sandbox's own all the same.
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
    """None: it is being made, or removed, or of a job whose name begins alike."""
    try:
        document = json.loads((pod / "pod.json").read_bytes())
        env = json.loads((run / "pod.json").read_bytes())["env"]
    except (OSError, ValueError):
        return None
    metadata = document["metadata"]
    notes = {**metadata.get("labels", {}), **metadata.get("annotations", {})}
    if notes.get(f"{_JOBSET}jobset-name") != job:
        return None
    # As the launcher of a host counts them.
    attempt = int(env["TPUKIT_FIRST_ATTEMPT"]) + int(env["TPUKIT_RESTARTS"])
    slice_, index = int(notes[f"{_JOBSET}job-index"]), int(notes[_INDEX])
    return HostRun(attempt, slice_, index, metadata["name"], document["spec"]["nodeName"], run)
