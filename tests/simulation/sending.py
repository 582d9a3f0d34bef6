"""Sending the jobs of a plan, as a person on the first machine."""

from __future__ import annotations

import math
import tempfile
from contextlib import suppress
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace as replace_record

from simulation.events import ZONE
from simulation.machines import Machine
from simulation.plans import JobPlan
from support.simulated_trainings import Program
from tpukit.core.errors import Conflict, TpukitError
from tpukit.google.tpu_vm import Request
from tpukit.jobs import plan as plans
from tpukit.jobs import snapshots as stage
from tpukit.jobs.plan import Snapshot, VmTarget
from tpukit.jobs.reasons import Reason, State
from tpukit.jobs.records import JOBS, RECORD_BYTES, Attempt, Job
from tpukit.jobs.spec import JobSpec, Settings
from tpukit.kernel.leases import SECONDS
from tpukit.places.tpu_vm.machines import NODES

if TYPE_CHECKING:
    from simulation.world import World

SETTINGS = {"project": "tpu-project", "zone": ZONE, "ssh_user": "ada"}
BUCKET = "gs://bucket"


@cache
def digest() -> str:
    """Return the digest of the staged code."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "source"
        _write_code(source)
        return stage.snapshot(source, Path(folder) / "shelf" / "code").digest


def _write_code(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "train").write_text("train\n")


@cache
def _plan(index: int, job: JobPlan, unattended: int) -> plans.Plan:
    limits = {"restarts": job.restarts, **({"unattended": f"{unattended}s"} if unattended else {})}
    fields: dict[str, Any] = {"slices": job.slices, "rule": job.rule, "max": limits}
    spec = JobSpec.from_json({"name": f"job{index}", "tpu": job.tpu, "command": ["train", f"p{index}"], **fields})
    artifacts = {"artifacts": BUCKET} if job.bucket else {}
    settings = Settings.from_json({**SETTINGS, **artifacts, "queued": job.queued})
    made = plans.make(spec, settings, "tpu-vm")
    if job.on:
        nodes = tuple(f"vm-{index}-{number}" for number in range(job.slices))
        made = replace(made, target=VmTarget("", "", "", nodes))
    return replace(made, snapshot=Snapshot(digest(), "", False)) if job.code else made


def _preempted(record: Job) -> tuple[Attempt, ...]:
    """Return attempts as an earlier version kept them, one by one, up to the maximum size of a record."""
    room = RECORD_BYTES - len(msgspec.json.encode(record)) - 1_000
    said = "us-central2-b has preempted it. " * 40
    learned = {NODES: [str(10**18)]}

    def attempt(number: int) -> Attempt:
        times = {"started": record.created - 9e5, "ended": record.created - 8e5}
        more = {"saved": number, "reason": Reason.PREEMPTED, "detail": said, "action": "resume", "learned": learned}
        return Attempt(number, number, 0, State.FAILED, **times, **more)  # type: ignore[arg-type]

    size = len(msgspec.json.encode(attempt(100))) + 1
    return tuple(attempt(number) for number in range(room // size))


def send_due(world: World, sent: set[int], machine: Machine, store: Any, places: Any, driver: Any) -> None:
    for index, job in enumerate(world.plan.jobs):
        if index not in sent and world.scheduler.now - world.scheduler.start >= job.at:
            try:
                _send(world, machine, store, places["tpu-vm"], driver, index, job)
                sent.add(index)
            except TpukitError as error:
                world.trace.add(machine.name, f"send: {error.message[:80]}")


def _send(world: World, machine: Machine, store: Any, place: Any, driver: Any, index: int, job: JobPlan) -> None:
    happens = {event.kind: event for event in world.plan.events}
    made = _plan(index, job, happens["limit"].which if "limit" in happens else 0)
    if made.id not in world.jobs:
        world.jobs[made.id] = made
        world.hosts.programs[f"p{index}"] = Program(job.seconds, job.mistake or math.inf)
        if made.vms:
            for name in made.vms.nodes:
                request = Request(name, (name,), job.tpu, "", metadata={"ssh-keys": f"ada:{machine.key}"}, spot=True)
                world.cloud._create(request, name, "")
                world.cloud.where[name] = ZONE
                world.cloud._finish(name)
    made = world.jobs[made.id]
    if not made.vms or not made.vms.project:  # a command settles once which TPU VMs it names, and retries what follows
        made = world.jobs[made.id] = place.prepare(made)
    if made.snapshot:
        _write_code(machine.root / "code" / made.snapshot.digest)
    place.share_code(made)
    # Acquired before the job is visible, so that no driver without the code takes it.
    store.acquire(f"{JOBS.name}/{made.id}", driver.leases.holder, SECONDS)
    record = Job(made.id, "tpu-vm", made.team, "ada", machine.clock.now(), plan=made.to_json())
    if "long history" in happens and not index:
        record = replace_record(record, attempts=_preempted(record))
    with suppress(Conflict):  # the answer to an earlier attempt was lost
        store.create(JOBS, made.id, record)
    world.trace.add(machine.name, f"sent {made.id}")
