"""What people, drivers of other versions and other users do in a world with jobs."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from simulation import gone_project, moving, people
from simulation.events import ZONE
from simulation.plans import Event
from tpukit.errors import Conflict, TpukitError
from tpukit.places.tpu_vm import target
from tpukit.reasons import State
from tpukit.records import JOBS, Job
from tpukit.store import change

if TYPE_CHECKING:
    from simulation.jobs_scene import JobsScene
    from simulation.world import World


def happen(world: World, scene: JobsScene, event: Event) -> bool:
    if event.kind not in _HAPPEN:
        return False
    _HAPPEN[event.kind](world, scene, event)
    return True


def _foreign(world: World, scene: JobsScene, event: Event) -> None:
    """Another user makes a TPU VM under a name that a job of ours uses, or used."""
    jobs = list(world.jobs.values())
    if not jobs:
        return
    plan = jobs[event.which % len(jobs)]
    name = target.nodes(plan)[0]
    node = world.cloud.made.get(name)
    if node is not None and (not plan.vms or not plan.vms.nodes or node.state == "READY"):
        return
    if node is None and plan.id in world.cloud.requests:
        return
    world.cloud.made.pop(name, None)
    world.cloud.make_foreign(ZONE, name, {"owner": "eve"})
    world.scheduler.sleep(400.0)
    world.cloud.remove_foreign(name)


def _jobs(world: World) -> list[Job]:
    return sorted(world.store.jobs(), key=lambda job: job.id)


def _chosen(world: World, event: Event) -> str:
    jobs = _jobs(world)
    return jobs[event.which % len(jobs)].id if jobs else ""


def _stop(world: World, scene: JobsScene, event: Event) -> None:
    job_id = _chosen(world, event)
    if not job_id:
        return
    store, _ = scene.reach(world.person)
    if world.store.get(JOBS, job_id).value.state.ended:
        return
    world.asked.add(job_id)
    change(store, JOBS, job_id, lambda job: job if job.state.ended else replace(job, wanted="stop"))


def _resume(world: World, scene: JobsScene, event: Event) -> None:
    job_id = _chosen(world, event)
    if not job_id:
        return
    store, _ = scene.reach(world.person)
    wanted = "rerun" if event.which % 2 else "resume"

    def ask(job: Job) -> Job:
        if not job.state.ended:
            raise Conflict(f"{job.id} is {job.state}")
        return replace(job, state=State.PENDING, wanted=wanted, reason=None, message="", ended=0.0)

    change(store, JOBS, job_id, ask)


def _forget(world: World, scene: JobsScene, event: Event) -> None:
    from tpukit.cli import job_act

    job_id = _chosen(world, event)
    if not job_id:
        return
    store, places = scene.reach(world.person)
    record = world.store.get(JOBS, job_id).value
    if record.state.ended:
        return
    before = set(world.asked)
    world.asked.add(job_id)
    try:
        with people.at(world.person, store, places):
            job_act.forget.callback(job_id, True)  # type: ignore[misc]
    except TpukitError:
        if not world.store.get(JOBS, job_id).value.state.ended:
            world.asked &= before
        raise
    world.acting = "person"
    if held := scene.held(job_id):
        world.violate("held", f"forgets {job_id} while there is {held[0]}")


def _newer(world: World, scene: JobsScene, event: Event) -> None:
    """A driver of a newer version writes a word that this one does not know; later that version ends its work."""
    job_id = _chosen(world, event)
    record = world.store._known.get(job_id)
    if record is None or not record.attempts or record.state.ended:
        return

    def renamed(old: str, new: str) -> Any:
        def change(doc: str) -> str:
            value = json.loads(doc)
            if value["attempts"][-1]["state"] == old:
                value["attempts"][-1]["state"] = new
            return json.dumps(value)

        return change

    state = str(record.attempts[-1].state)
    world.home.rewrite(job_id, renamed(state, "hibernating"))
    world.scheduler.sleep(event.seconds)
    world.home.rewrite(job_id, renamed("hibernating", state))


_HAPPEN = {
    "gone project": gone_project.happen,
    "foreign": _foreign,
    "stop": _stop,
    "resume": _resume,
    "forget": _forget,
    "newer": _newer,
    "move store": moving.happen,
}
