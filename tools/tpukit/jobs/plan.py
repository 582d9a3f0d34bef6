"""Plan of a job: names, counts, command, environment and budgets, settled once before anything is sent.

A Plan is plain data and the source of truth. Places act on it, the store keeps it, and nothing is parsed back out of a
manifest rendered from it.
"""

from __future__ import annotations

import base64
import hashlib
import secrets
from collections.abc import Container, Mapping
from dataclasses import asdict, dataclass, fields, replace
from functools import lru_cache
from typing import Any, TypeVar

from tpukit.catalogue import Slice
from tpukit.core.errors import Conflict
from tpukit.jobs.spec import JobSpec, Settings

T = TypeVar("T")

ATTEMPT = "tpukit.dev/attempt"
"""Annotation of a JobSet: the number of the attempt that it was created for. Its restarts count on from there."""
SLICE_JOB = "slice"
"""Name of the replicated job that trains: its replica i is slice i."""
UPLOADER_JOB = "tensorboard"
"""Name of the replicated job that uploads TensorBoard data."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The user's code as it was when the job was sent."""

    digest: str
    commit: str  # commit id of the checkout; "" outside git
    dirty: bool  # the folder held uncommitted changes

    def __str__(self) -> str:
        state = " with uncommitted changes" if self.dirty else ""
        return f"{self.digest[:12]} (commit {self.commit[:10]}{state})" if self.commit else self.digest[:12]


@dataclass(frozen=True, slots=True)
class ClusterName:
    """A cluster by its kubeconfig context, its server when the job was sent, and its UID.

    The UID is the same everywhere: inside the cluster and on other machines, addresses and names differ.
    """

    context: str
    server: str
    uid: str = ""  # of the namespace kube-system; empty without permission to read it


@dataclass(frozen=True, slots=True)
class VmTarget:
    """The TPU VMs on which a job runs."""

    project: str
    zone: str
    user: str  # login on the hosts: other drivers use the same one, each with its own key
    nodes: tuple[str, ...] = ()  # TPU VMs that the person named, slice by slice; empty: the job creates its own
    disk: str = ""  # file server share to mount before the program starts, such as 10.0.0.2:/share
    mount: str = ""  # mount point of the share
    os_login: bool = False  # hosts accept keys from OS Login, not from metadata
    ids: tuple[str, ...] = ()  # ids of the named TPU VMs and their queued resources when the job was sent


@dataclass(frozen=True, slots=True)
class ThisMachine:
    """The machine on which a local job runs."""

    identity: str


Target = ClusterName | VmTarget | ThisMachine
"""Where a job runs: a plan has one of them once its place has prepared it."""


@dataclass(frozen=True, slots=True)
class Plan:
    id: str
    place: str
    spec: JobSpec
    settings: Settings
    slice: Slice
    snapshot: Snapshot | None = None
    target: Target | None = None
    log_stage: bool = False  # pass the stage to the program as config.stage
    resume: bool = False  # the job may start from what another job left in its workdir
    owner: str = ""  # sender of the job; empty before it is sent
    sent: float = 0.0  # time of sending, in seconds since the epoch

    @property
    def cluster(self) -> ClusterName | None:
        return self.target if isinstance(self.target, ClusterName) else None

    @property
    def vms(self) -> VmTarget | None:
        return self.target if isinstance(self.target, VmTarget) else None

    @property
    def machine(self) -> str:
        return self.target.identity if isinstance(self.target, ThisMachine) else ""

    @property
    def team(self) -> str:
        """The team: a namespace with a LocalQueue of the same name."""
        return self.spec.team or self.settings.team

    @property
    def hosts(self) -> int:
        return self.spec.slices * self.slice.hosts

    @property
    def host_names(self) -> list[str]:
        """Host names, slice by slice."""
        return list(_host_names(self.id, self.spec.slices, self.slice.hosts))

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
        """Folder for checkpoints, metrics and TensorBoard data of this job.

        Empty when neither the job nor the settings name one: a place with its own disk then provides a folder.
        """
        if self.spec.workdir:
            return self.spec.workdir
        return f"{self.settings.artifacts}/runs/{self.id}" if self.settings.artifacts else ""

    @property
    def image(self) -> str:
        """Image of the job, else of the settings; empty where neither names one."""
        return self.spec.image or self.settings.image or ""

    def workdir_of(self, origin: int) -> str:
        """Return the workdir of attempts with this origin: in its own folder, a rerun finds no checkpoint.

        A job that took over another job's workdir (`--resume`) may find reruns of that job there.
        """
        if origin == 0 or not self.workdir:
            return self.workdir
        return f"{self.workdir}/{self.id}-rerun-{origin}" if self.resume else f"{self.workdir}/rerun-{origin}"

    @property
    def command(self) -> tuple[str, ...]:
        """The user's command followed by `config` as flags."""
        return (*self.spec.command, *config_flags(self.spec.config))

    def command_of(self, stage: int) -> tuple[str, ...]:
        """Return the command of an attempt, for places that start each separately."""
        return (*self.command, f"--config.stage={stage}") if self.log_stage else self.command

    def to_json(self) -> dict[str, Any]:
        snapshot, cluster, vms = self.snapshot, self.cluster, self.vms
        return {
            "id": self.id,
            "place": self.place,
            "spec": self.spec.to_json(),
            "settings": self.settings.to_json(),
            "slice": asdict(self.slice),
            "snapshot": snapshot and asdict(snapshot),
            "cluster": cluster and asdict(cluster),
            "machine": self.machine,
            **({"vms": asdict(vms)} if vms else {}),
            **({"log_stage": True} if self.log_stage else {}),
            **({"resume": True} if self.resume else {}),
            **({"owner": self.owner, "sent": self.sent} if self.owner else {}),
            **({"stall_given": True} if "stall" in self.spec.max.given else {}),
        }

    @staticmethod
    def from_json(doc: Mapping[str, Any]) -> Plan:
        """Read a stored plan as it was settled, without today's checks or catalogue."""
        try:
            spec = JobSpec.stored(doc["spec"])
            if not doc.get("stall_given"):  # the stored spec holds defaults too
                spec = spec.replace(max=spec.max.written(spec.max.given - {"stall"}))
            return Plan(
                id=doc["id"],
                place=doc["place"],
                spec=spec,
                settings=Settings.stored(doc["settings"]),
                slice=_known(Slice, doc["slice"]) if doc.get("slice") else spec.slice,
                snapshot=_known(Snapshot, doc["snapshot"]) if doc.get("snapshot") else None,
                target=_target(doc),
                log_stage=bool(doc.get("log_stage")),
                resume=bool(doc.get("resume")),
                owner=str(doc.get("owner") or ""),
                sent=float(doc.get("sent") or 0.0),
            )
        except (KeyError, TypeError, AttributeError) as error:
            hint = "it may come from a newer tpukit: upgrade, or close the job with `tpu job forget`"
            raise Conflict(f"the stored plan cannot be read: {error!r}", hint=hint) from error


def make(
    spec: JobSpec,
    settings: Settings,
    place: str,
    *,
    snapshot: Snapshot | None = None,
    target: Target | None = None,
    taken: Container[str] = (),
    resume: bool = False,
) -> Plan:
    """Return the plan for sending `spec` to `place`.

    Its id is a placeholder, the first free one for this spec. `with_fresh_id` gives what is sent an id of its own.
    """
    nonce = 0
    while (job_id := _id(spec, nonce)) in taken:
        nonce += 1
    return Plan(job_id, place, spec, settings, spec.slice, snapshot, target, resume=resume)


def with_fresh_id(plan: Plan, taken: Container[str]) -> Plan:
    """Return the plan with an id unique to this submission, so that two submissions of one file differ."""
    while (job_id := f"{plan.spec.name}-{_letters(secrets.token_bytes(8))}") in taken:
        continue
    return replace(plan, id=job_id)


def _target(doc: Mapping[str, Any]) -> Target | None:
    if doc.get("cluster"):
        return _known(ClusterName, doc["cluster"])
    if doc.get("vms"):
        return _known(VmTarget, doc["vms"])
    return ThisMachine(doc["machine"]) if doc.get("machine") else None


def _known(kind: type[T], document: Mapping[str, Any]) -> T:
    """Read a stored dataclass, ignoring unknown fields. Lists become tuples, as they were."""
    names = {one.name for one in fields(kind)}  # type: ignore[arg-type]
    values = {name: tuple(value) if isinstance(value, list) else value for name, value in document.items()}
    return kind(**{name: value for name, value in values.items() if name in names})


def _id(spec: JobSpec, nonce: int) -> str:
    """Derive an id from the spec, so that `render` shows the same one each time."""
    return f"{spec.name}-{_letters(hashlib.sha256(f'{spec.digest}/{nonce}'.encode()).digest())}"


def _letters(data: bytes) -> str:
    return base64.b32encode(data).decode().lower()[:5]


def host_name(job_id: str, slice_index: int, host_index: int) -> str:
    """Return a host's name, as JobSet names the pods of an indexed Job."""
    return f"{job_id}-{SLICE_JOB}-{slice_index}-{host_index}"


@lru_cache(64)  # a round of a job with many hosts needs them several times
def _host_names(job_id: str, slices: int, hosts: int) -> tuple[str, ...]:
    return tuple(host_name(job_id, one, host) for one in range(slices) for host in range(hosts))


def config_flags(config: Mapping[str, Any], prefix: str = "config") -> list[str]:
    """Return `{training: {learning_rate: 0.1}}` as `--config.training.learning_rate=0.1`, in the order written."""
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
