"""Compute the values of the JobSet template from a plan."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import NamedTuple, Protocol

from tpukit.core.errors import Invalid, Problem
from tpukit.jobs.plan import ATTEMPT, SLICE_JOB, UPLOADER_JOB, Plan
from tpukit.jobs.render import machine_share
from tpukit.jobs.render.node_labels import CPU_POOL, absent_labels, capacity_word, host_labels, node_taints
from tpukit.jobs.render.restarts import HARDWARE_CODES, Restart, restarts
from tpukit.jobs.spec import settings

Pairs = tuple[tuple[str, str], ...]

USER = 65532
"""User id of pods: no user of any image, and above the ids that people have."""
SCRATCH = "/tmp"  # noqa: S108 (private to the pod)
"""The only writable folder of a pod, apart from mounts."""
CODE = "/tpukit/code"
"""Folder in which a pod finds the job's packed code."""
PROGRESS_SECONDS = 5
"""Seconds between two progress lines of a host: its log is the only way out of a pod."""
CODE_DIGEST = "tpukit.dev/code"
"""Annotation of a JobSet and of the ConfigMaps with its code: the full digest of the code.

As a label, its first characters.
"""
COMMIT = "tpukit.dev/commit"
OWNER = "tpukit.dev/owner"
SENT = "tpukit.dev/sent"
"""Annotation of a JobSet: the commit of its code, with suffix -dirty where files differed from it."""
MAX_RUN = "provreq.kueue.x-k8s.io/maxRunDurationSeconds"
"""Annotation of a JobSet: how long GKE plans the nodes of its ProvisioningRequest for (default: seven days)."""
START_SECONDS = 900
"""Seconds for nodes to pull images and start pods, before a job's own clock runs."""
LONGEST_SECONDS = 7 * 86400
MEMLOCK_KIB = 68719476736
"""Memory lock limit for TPU programs, see https://cloud.google.com/kubernetes-engine/docs/concepts/tpus.

Raising it takes the capability SYS_RESOURCE, which a container has in effect only if it runs as root.
"""
_DAY = 86400


class Attempt(Protocol):
    """The fields of an attempt that its JobSet contains. A protocol, so that rendering does not load records."""

    @property
    def number(self) -> int: ...
    @property
    def stage(self) -> int: ...
    @property
    def origin(self) -> int: ...


class _Attempt(NamedTuple):
    number: int
    stage: int
    origin: int


FIRST: Attempt = _Attempt(0, 0, 0)


@dataclass(frozen=True, slots=True)
class Job:
    id: str
    team: str
    labels: Pairs
    annotations: Pairs
    subdomain: str
    slice_job: str
    uploader_job: str
    slices: int
    hosts: int  # of one slice
    restarts: int
    rules: tuple[Restart, ...]
    hardware_codes: tuple[int, ...]
    deadline: int | None  # of one attempt: a restarted Job starts its clock again
    grace: int
    service_account: str
    user: int
    root: bool  # the program runs as root; containers beside it never do
    access: str  # access of its hosts to their chips: restricted, tpu or privileged
    keep: int  # seconds for which a finished JobSet stays


@dataclass(frozen=True, slots=True)
class Mount:
    name: str
    bucket: str
    path: str
    read_only: bool
    options: str


@dataclass(frozen=True, slots=True)
class Host:
    image: str
    command: tuple[str, ...]
    env: Pairs
    from_jobset: Pairs  # env names, and the JobSet annotation that holds the value
    selector: Pairs
    absent: tuple[str, ...]  # labels that its node must not have
    tolerated: tuple[str, ...]
    chips: int
    cpu: int
    memory: str
    shared_memory: str  # part of memory
    scratch: str
    mounts: tuple[Mount, ...]
    code: tuple[str, ...]  # names of the ConfigMaps that hold the parts of the code
    code_path: str


@dataclass(frozen=True, slots=True)
class Uploader:
    image: str
    command: tuple[str, ...]
    env: Pairs
    cpu: str
    memory: str
    scratch: str
    grace: int  # short, because a restart waits for the uploader too
    selector: Pairs
    mounts: tuple[Mount, ...]


def code_map(digest: str, part: int) -> str:
    """Return the name of the ConfigMap with one part of this code, shared by all jobs that have it."""
    return f"code-{digest[:20] or 'unstaged'}-{part}"


def job(plan: Plan, attempt: Attempt) -> Job:
    spec = plan.spec
    labels = {
        "app.kubernetes.io/managed-by": "tpukit",
        "tpukit.dev/job": plan.id,
        "kueue.x-k8s.io/queue-name": plan.team,
    }
    if spec.priority:
        labels["kueue.x-k8s.io/priority-class"] = spec.priority
    annotations = {ATTEMPT: str(attempt.number)}
    if plan.owner:
        annotations[OWNER] = plan.owner
        annotations[SENT] = datetime.fromtimestamp(plan.sent, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    if spec.capacity == "flex-start" and spec.max.runtime:
        annotations[MAX_RUN] = str(min(spec.max.runtime + START_SECONDS, LONGEST_SECONDS))
    if spec.tags:
        annotations["tpukit.dev/tags"] = json.dumps(spec.tags, ensure_ascii=False)
    if plan.snapshot:
        annotations[CODE_DIGEST] = plan.snapshot.digest
        if plan.snapshot.commit:
            annotations[COMMIT] = plan.snapshot.commit + ("-dirty" if plan.snapshot.dirty else "")
    return Job(
        id=plan.id,
        team=plan.team,
        labels=_pairs(labels),
        annotations=_pairs(annotations),
        subdomain=plan.subdomain,
        slice_job=SLICE_JOB,
        uploader_job=UPLOADER_JOB,
        slices=spec.slices,
        hosts=plan.slice.hosts,
        restarts=spec.max.restarts,
        rules=restarts(spec.rule),
        hardware_codes=HARDWARE_CODES,
        deadline=spec.max.runtime,
        grace=spec.max.grace,
        service_account=plan.settings.service_account,
        user=USER,
        root=plan.spec.root,
        access=plan.spec.access,
        keep=_DAY,
    )


def host(plan: Plan, attempt: Attempt, code_parts: int) -> Host:
    spec, shape, capacity = plan.spec, plan.slice, capacity_word(plan.spec.capacity)
    memory = machine_share.memory_gb(shape)
    env = {
        **_scratch_env(),
        **spec.env,
        "TPUKIT_JOB": plan.id,
        "TPUKIT_FIRST_ATTEMPT": str(attempt.number),
        "TPUKIT_FIRST_STAGE": str(attempt.stage),
        "TPUKIT_PROGRESS_LINES": str(PROGRESS_SECONDS),
    }
    if spec.access != "restricted":
        env["TPUKIT_MEMLOCK"] = str(MEMLOCK_KIB)
    if workdir := plan.workdir_of(attempt.origin):
        env["TPUKIT_WORKDIR"] = workdir
    if code_parts:
        env["TPUKIT_CODE"] = CODE
    return Host(
        image=plan.image,
        command=tuple(_verbatim(argument) for argument in plan.command),
        env=_pairs({name: _verbatim(value) for name, value in env.items()}),
        from_jobset=(
            ("MEGASCALE_NUM_SLICES", "replicatedjob-replicas"),
            ("MEGASCALE_SLICE_ID", "job-index"),
            ("MEGASCALE_COORDINATOR_ADDRESS", "coordinator"),
            # launch.sh adds it to the first two. Kueue's eviction and readmission do not count here.
            ("TPUKIT_RESTARTS", "restart-attempt"),
        ),
        selector=_pairs(host_labels(shape, capacity)),
        absent=absent_labels(capacity),
        tolerated=("google.com/tpu", *(key for key, _ in node_taints(capacity))),
        chips=shape.chips_per_host,
        cpu=machine_share.cpu(shape),
        memory=f"{memory}G",
        shared_memory=f"{memory // 4}G",
        scratch="50Gi",
        mounts=_mounts(plan, user=USER if spec.access == "restricted" else 0),
        code=tuple(code_map(plan.snapshot.digest if plan.snapshot else "", part) for part in range(code_parts)),
        code_path=CODE,
    )


def uploader(plan: Plan, attempt: Attempt) -> Uploader | None:
    """Return the uploader, which copies TensorBoard data out of the workdir while the job runs.

    It does not decide how the job ends. Without a TensorBoard there is no uploader: the data stays in the workdir.
    """
    if not plan.spec.tensorboard or not plan.settings.tensorboard:
        return None
    command = ["python", "-m", "tpukit.host.tensorboard"]
    command += ["--logdir", f"{plan.workdir_of(attempt.origin)}/tensorboard"]
    command += ["--tensorboard", plan.settings.tensorboard, "--experiment", plan.id]
    env = {**_scratch_env(), "TPUKIT_JOB": plan.id}
    return Uploader(
        image=plan.settings.tools_image or plan.image,
        command=tuple(_verbatim(argument) for argument in command),
        env=_pairs({name: _verbatim(value) for name, value in env.items()}),
        cpu="500m",
        memory="2G",
        scratch="10Gi",
        grace=30,
        selector=(CPU_POOL,),
        mounts=() if plan.workdir.startswith("gs://") else _mounts(plan),
    )


def check(plan: Plan) -> None:
    """Raise what a cluster would report only after the job was sent, or not at all."""
    if problems := list(_problems(plan)):
        raise Invalid(problems)


def _problems(plan: Plan) -> Iterator[Problem]:
    spec = plan.spec
    if not plan.image:
        hint = (
            f"run `tpu image push`, which builds an image for all jobs and writes it to {settings.path()}; or write "
            "image: REGION-docker.pkg.dev/PROJECT/REPOSITORY/NAME in the job file"
        )
        yield Problem("", "image: a job on GKE runs in a container, and no image is named", hint)
    if plan.slice.machine_type is None:
        hint = "use a newer type, such as tpu: v4-8, or send the job to another place"
        yield Problem("", f"tpu: GKE has no {plan.slice.name}", hint)
    if not plan.workdir:
        hint = f"write workdir: gs://BUCKET/PATH in the job file; or {settings.hint('artifacts')}"
        yield Problem("", "workdir: it is not set, and disks of hosts on GKE are not retained", hint)
    elif not _outlives_hosts(plan):
        hint = "write workdir: gs://BUCKET/PATH, or a folder in a writable mount"
        yield Problem("", f"workdir: {plan.workdir} is deleted with the host", hint)
    if any(mount.path == SCRATCH for mount in spec.mounts):
        yield Problem("", f"mounts: {SCRATCH} is the folder for temporary files", "mount it elsewhere, at /data")


def _outlives_hosts(plan: Plan) -> bool:
    writable = [mount.path for mount in plan.spec.mounts if not mount.read_only]
    return plan.workdir.startswith("gs://") or any(f"{plan.workdir}/".startswith(f"{path}/") for path in writable)


def _mounts(plan: Plan, *, user: int = USER) -> tuple[Mount, ...]:
    """Return buckets as folders.

    GKE's driver shows files as root's unless given an owner. It gets its token from the kubelet, so the pod needs none
    (https://cloud.google.com/kubernetes-engine/docs/how-to/cloud-storage-fuse-csi-driver).
    """
    options = f"implicit-dirs,uid={user},gid={user}"
    # Orbax commits a checkpoint by renaming its folder, which GCS FUSE refuses by default on v4 and older machines. The
    # limit is that of its profile for checkpoints: https://cloud.google.com/storage/docs/cloud-storage-fuse/cli-options
    writable = f"{options},rename-dir-limit=200000"
    return tuple(
        Mount(f"mount-{index}", mount.bucket, mount.path, mount.read_only, options if mount.read_only else writable)
        for index, mount in enumerate(plan.spec.mounts)
    )


def _scratch_env() -> dict[str, str]:
    """Return the environment variables that name writable folders."""
    return {"HOME": SCRATCH, "TMPDIR": SCRATCH, "XDG_CACHE_HOME": f"{SCRATCH}/.cache"}


def _verbatim(text: str) -> str:
    """Escape text that the kubelet would change: it expands $(NAME) and reads $$ as a dollar."""
    return text.replace("$", "$$") if "$(" in text or "$$" in text else text


def _pairs(mapping: Mapping[str, str]) -> Pairs:
    return tuple(mapping.items())
