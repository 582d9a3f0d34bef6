"""The containers of a pod on this machine: a folder each, with one folder in it for every time that it ran.

    pods/NAMESPACE_NAME_UID/pod.json          the pod as it was first seen
                            node.json         labels of its node
                            ending            why it is to end before its time, where it is
                            volumes/NAME/     what its volumes hold
                            CONTAINER/RUN/    one run of a container, see tpukit.places.local.processes

Nothing else is remembered, so an agent that was killed finds everything again.
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
"""The file of a run that is ended because of a probe."""


class Role(StrEnum):
    INIT = "init"  # runs to its end before those after it
    SIDECAR = "sidecar"  # starts among the former and goes on until the main ones are done
    MAIN = "main"


@dataclass(frozen=True, slots=True)
class Container:
    spec: Object
    role: Role
    folder: Path
    runs: tuple[PodState, ...]  # oldest first
    unwell: bool = False  # its last run was ended because of a probe

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
        """Of the last run, or of the run with that number."""
        return self.folder / str(len(self.runs) - 1 if number < 0 else number)


@dataclass(frozen=True, slots=True)
class Ending:
    """Why a pod is to end before its time, and until when it may take."""

    reason: str
    message: str
    deadline: float
    disruption: str = ""  # reason of the condition DisruptionTarget: nothing that the pod did
    rejected: bool = False  # the node did not take the pod at all: its containers have no status, and no exit code


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
    if found and found[-1].phase is Phase.ABSENT:  # the agent was killed between writing it down and starting it
        found.pop()
    return tuple(found)


def read_ending(folder: Path) -> Ending | None:
    try:
        return Ending(**json.loads((folder / "ending").read_text(encoding="utf-8")))
    except FileNotFoundError:
        return None


def write_ending(folder: Path, ending: Ending) -> None:
    """The first reason stays."""
    if not (folder / "ending").exists():
        write_json(folder / "ending", asdict(ending))


def write_json(path: Path, value: object) -> None:
    new = path.with_name(f"{path.name}.{os.getpid()}.new")
    new.write_text(json.dumps(value), encoding="utf-8")
    new.replace(path)
