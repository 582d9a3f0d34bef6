"""The containers of a pod on this machine: a folder for each, with a folder for each run in it.

    pods/NAMESPACE_NAME_UID/pod.json          the pod as it was first seen
                            node.json         labels of its node
                            ending            why it must end early, if so
                            volumes/NAME/     content of its volumes
                            CONTAINER/RUN/    one run of a container, see tpukit.places.local.processes

There is no other state, so a restarted agent finds everything again.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from tpukit.places.local import processes as pods
from tpukit.places.local.processes import Phase, PodState

Object = Mapping[str, Any]
UNWELL = "unwell"
"""File that marks a run as ended because of a probe."""


class Role(StrEnum):
    INIT = "init"  # runs to completion before the next containers
    SIDECAR = "sidecar"  # starts in order with the init containers and runs until the main containers are done
    MAIN = "main"


@dataclass(frozen=True, slots=True)
class Container:
    spec: Object
    role: Role
    folder: Path
    runs: tuple[PodState, ...]  # oldest first
    unwell: bool = False  # a probe ended its last run

    @property
    def name(self) -> str:
        return str(self.spec["name"])

    @property
    def last(self) -> PodState:
        return self.runs[-1] if self.runs else PodState(Phase.ABSENT)

    @property
    def running(self) -> bool:
        return self.last.phase is Phase.RUNNING

    @property
    def ended(self) -> bool:
        return self.last.phase in (Phase.ENDED, Phase.LOST)

    def run_folder(self, number: int = -1) -> Path:
        """Return the folder of the last run, or of the run with that number."""
        return self.folder / str(len(self.runs) - 1 if number < 0 else number)


@dataclass(frozen=True, slots=True)
class Ending:
    """The reason why a pod must end early, and its deadline."""

    reason: str
    message: str
    deadline: float
    disruption: str = ""  # reason of the condition DisruptionTarget: not caused by the pod
    rejected: bool = False  # the node rejected the pod: its containers have no status and no exit code


def pod_folder(root: Path, pod: Object) -> Path:
    metadata = pod["metadata"]
    return root / f"{metadata['namespace']}_{metadata['name']}_{metadata['uid']}"


def containers(pod: Object, folder: Path) -> list[Container]:
    spec = pod["spec"]
    roles = [
        (Role.SIDECAR if one.get("restartPolicy") == "Always" else Role.INIT, one)
        for one in spec.get("initContainers", [])
    ] + [(Role.MAIN, one) for one in spec["containers"]]
    return [_container(one, role, folder / one["name"]) for role, one in roles]


def _container(spec: Object, role: Role, folder: Path) -> Container:
    runs = _runs(folder)
    return Container(spec, role, folder, runs, bool(runs) and (folder / str(len(runs) - 1) / UNWELL).exists())


def _runs(folder: Path) -> tuple[PodState, ...]:
    found: list[PodState] = []
    while (folder / str(len(found)) / "pod.json").exists():
        found.append(pods.status(folder / str(len(found))))
    if found and found[-1].phase is Phase.ABSENT:  # the agent was killed between recording and starting it
        found.pop()
    return tuple(found)


def read_ending(folder: Path) -> Ending | None:
    try:
        return Ending(**json.loads((folder / "ending").read_text(encoding="utf-8")))
    except FileNotFoundError:
        return None


def write_ending(folder: Path, ending: Ending) -> None:
    """Record why the pod must end; the first reason wins."""
    if not (folder / "ending").exists():
        write_json(folder / "ending", asdict(ending))


def write_json(path: Path, value: object) -> None:
    new = path.with_name(f"{path.name}.{os.getpid()}.new")
    new.write_text(json.dumps(value), encoding="utf-8")
    new.replace(path)
