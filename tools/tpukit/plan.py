"""What will run: names, counts, command, environment and budgets, settled once before anything is sent.

A Plan is plain data and stays the truth. Places act on it, the store keeps it, and nothing is ever parsed back out of
a manifest that was rendered from it.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Container, Mapping
from dataclasses import dataclass
from typing import Any

from tpukit.catalogue import Slice
from tpukit.spec import JobSpec, Settings

SLICE_JOB = "slice"
"""Name of the replicated job that trains: its replica i is slice i."""
UPLOADER_JOB = "tensorboard"
"""Name of the replicated job that uploads TensorBoard data."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The user's code as it was when the job was sent."""

    digest: str
    commit: str  # commit id of the checkout it came from; "" outside git
    dirty: bool  # the folder held changes that the commit does not

    def __str__(self) -> str:
        state = " with uncommitted changes" if self.dirty else ""
        return f"{self.digest[:12]} (commit {self.commit[:10]}{state})" if self.commit else self.digest[:12]


@dataclass(frozen=True, slots=True)
class ClusterName:
    """A cluster by its kubeconfig context, and the server that the context led to when the job was sent."""

    context: str
    server: str


@dataclass(frozen=True, slots=True)
class Plan:
    id: str
    place: str
    spec: JobSpec
    settings: Settings
    snapshot: Snapshot | None = None
    cluster: ClusterName | None = None  # of a place that is one

    @property
    def slice(self) -> Slice:
        return self.spec.slice

    @property
    def team(self) -> str:
        """A team is a namespace with a LocalQueue of the same name."""
        return self.spec.team or self.settings.team

    @property
    def hosts(self) -> int:
        return self.spec.slices * self.slice.hosts

    @property
    def host_names(self) -> list[str]:
        """Slice by slice."""
        return [
            host_name(self.id, slice_index, host_index)
            for slice_index in range(self.spec.slices)
            for host_index in range(self.slice.hosts)
        ]

    @property
    def chips(self) -> int:
        return self.spec.slices * self.slice.chips

    @property
    def subdomain(self) -> str:
        """Name of the headless service that gives hosts their DNS names.

        JobSet's default, the JobSet's own name, would appear twice in the coordinator's address, and that address is
        a label value: 63 characters at most.
        """
        return "t" + hashlib.sha256(self.id.encode()).hexdigest()[:12]

    @property
    def coordinator(self) -> str:
        return f"{host_name(self.id, 0, 0)}.{self.subdomain}"

    @property
    def workdir(self) -> str:
        """Checkpoints, metrics and TensorBoard of this job. Empty when neither the job nor the settings name one: a
        place with a disk of its own then gives it a folder."""
        if self.spec.workdir:
            return self.spec.workdir
        return f"{self.settings.artifacts}/runs/{self.id}" if self.settings.artifacts else ""

    def workdir_of(self, origin: int) -> str:
        """Of attempts that go back to attempt `origin`: in a folder of its own, a rerun finds no checkpoint."""
        return self.workdir if origin == 0 or not self.workdir else f"{self.workdir}/rerun-{origin}"

    @property
    def command(self) -> tuple[str, ...]:
        """The user's command with `config` as flags behind it."""
        return (*self.spec.command, *config_flags(self.spec.config))

    @property
    def notes(self) -> tuple[str, ...]:
        """What a person may not expect of this job in this place."""
        notes = []
        if self.place == "local":
            if self.spec.image:
                notes.append("the image is not used: the command runs here with this Python")
            if self.spec.mounts:
                notes.append("bucket mounts are not made here")
            chips = self.slice.chips_per_host
            notes.append(f"chips are simulated: {chips} CPU devices stand for the {chips} chips of a host")
        else:
            if self.spec.slices > 1 and self.slice.hosts == 1:
                notes.append(f"Google documents multislice for multi-host slices only; {self.slice.name} has one host")
            if self.spec.tensorboard and not self.settings.tensorboard:
                notes.append("TensorBoard data stays in the workdir: the settings name no `tensorboard` to upload to")
        return tuple(notes)

    def to_json(self) -> dict[str, Any]:
        snapshot, cluster = self.snapshot, self.cluster
        return {
            "id": self.id,
            "place": self.place,
            "spec": self.spec.to_json(),
            "settings": self.settings.to_json(),
            "snapshot": snapshot and {"digest": snapshot.digest, "commit": snapshot.commit, "dirty": snapshot.dirty},
            "cluster": cluster and {"context": cluster.context, "server": cluster.server},
        }

    @staticmethod
    def from_json(doc: Mapping[str, Any]) -> Plan:
        return Plan(
            id=doc["id"],
            place=doc["place"],
            spec=JobSpec.from_json(doc["spec"]),
            settings=Settings.from_json(doc["settings"]),
            snapshot=Snapshot(**doc["snapshot"]) if doc["snapshot"] else None,
            cluster=ClusterName(**doc["cluster"]) if doc.get("cluster") else None,
        )


def make(
    spec: JobSpec,
    settings: Settings,
    place: str,
    *,
    snapshot: Snapshot | None = None,
    cluster: ClusterName | None = None,
    taken: Container[str] = (),
) -> Plan:
    """The plan for sending `spec` to `place`; its id is the first free one for this spec."""
    nonce = 0
    while (job_id := _id(spec, nonce)) in taken:
        nonce += 1
    return Plan(job_id, place, spec, settings, snapshot, cluster)


def _id(spec: JobSpec, nonce: int) -> str:
    """Derived from the spec, so that what `render` shows is what the first send creates."""
    digest = hashlib.sha256(f"{spec.digest}/{nonce}".encode()).digest()
    return f"{spec.name}-{base64.b32encode(digest).decode().lower()[:5]}"


def host_name(job_id: str, slice_index: int, host_index: int) -> str:
    """A host's name, as JobSet names the pods of an indexed Job."""
    return f"{job_id}-{SLICE_JOB}-{slice_index}-{host_index}"


def config_flags(config: Mapping[str, Any], prefix: str = "config") -> list[str]:
    """`{training: {learning_rate: 0.1}}` as `--config.training.learning_rate=0.1`, in the order written."""
    flags: list[str] = []
    for key, value in config.items():
        name = f"{prefix}.{key}"
        if isinstance(value, Mapping):
            flags += config_flags(value, name)
        else:
            flags.append(f"--{name}={_flag_value(value)}")
    return flags


def _flag_value(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return str(value).lower() if value is not None else "none"
    if isinstance(value, (list, tuple)):
        return ",".join(_flag_value(item) for item in value)
    return str(value)
