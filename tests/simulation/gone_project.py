"""A deleted project in which an earlier job ran, and the leftovers of an earlier driver in an existing one."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from simulation.events import ZONE
from simulation.plans import Event
from tpukit.core.errors import Conflict, Denied
from tpukit.google.tpu_vm import Request
from tpukit.jobs import plan as plans
from tpukit.jobs.plan import VmTarget
from tpukit.jobs.reasons import State
from tpukit.jobs.records import JOBS, Job
from tpukit.jobs.spec import JobSpec, Settings
from tpukit.places.tpu_vm import target

if TYPE_CHECKING:
    from simulation.jobs_scene import JobsScene
    from simulation.world import World

GONE = "gone-project"
THERE = "tpu-project"


class GoneProject:
    """The Cloud TPU API of a deleted project."""

    def __getattr__(self, name: str) -> Any:
        def refuse(*_: Any, **__: Any) -> Any:
            raise Denied(f"{name}: permission denied on project {GONE}")

        return refuse


def happen(world: World, scene: JobsScene, event: Event) -> None:
    name = f"left-{int(event.at)}"
    labels = {target.JOB: name, target.ATTEMPT: "0", target.STORE: target.store_label(world.home.sender)}
    with suppress(Conflict):
        world.cloud.request(ZONE, Request(name, (f"{name}-0",), "v4-8", "", labels=labels))
    for project in (GONE, THERE):
        spec = JobSpec.from_json({"name": f"old-{project}", "tpu": "v4-8", "command": ["train"]})
        made = plans.make(spec, Settings.from_json({"project": project, "zone": ZONE, "ssh_user": "ada"}), "tpu-vm")
        made = replace(made, target=VmTarget(project, ZONE, "ada"))
        created = world.clock.now() - 1e6
        ended = Job(made.id, "tpu-vm", made.team, "ada", created, made.to_json(), state=State.COMPLETED)
        with suppress(Conflict):
            world.home.store.create(JOBS, made.id, ended)
