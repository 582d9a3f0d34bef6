"""Acts of people, drivers of other versions, and other users in a world with jobs."""

from __future__ import annotations

import json
from dataclasses import replace as replace_event
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from simulation import gone_project, moving, people, stopping
from simulation.events import ZONE
from simulation.plans import Event, Fault
from tpukit.core.errors import Conflict, TpukitError
from tpukit.google.tpu_vm import Request
from tpukit.jobs.reasons import State
from tpukit.jobs.records import JOBS, Job
from tpukit.kernel.store import change
from tpukit.places.tpu_vm import target

if TYPE_CHECKING:
    from simulation.jobs_scene import JobsScene
    from simulation.world import World


def happen(world: World, scene: JobsScene, event: Event) -> bool:
    if event.kind not in _HAPPEN:
        return False
    _HAPPEN[event.kind](world, scene, event)
    return True


def _foreign(world: World, scene: JobsScene, event: Event) -> None:
    """Create another user's TPU VM under a name that one of our jobs uses or used."""
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


def _recreate(world: World, scene: JobsScene, event: Event) -> None:
    """Recreate a TPU VM of --on with `tpu vm`, which knows the store of the job."""
    plan, cloud = list(world.jobs.values())[event.which % len(world.jobs)] if world.jobs else None, world.cloud
    if plan is None or not plan.vms or not plan.vms.nodes:
        return
    cloud._pass_time()
    name = plan.vms.nodes[0]
    node = cloud.made.get(name)
    if name in cloud.requests or (node is not None and (node.state != "PREEMPTED" or node.queued in cloud.requests)):
        return
    cloud.made.pop(name, None)
    labels = {target.SHARED_STORE: target.store_label(world.home.sender)}
    metadata = {"ssh-keys": f"ada:{world.person.key}"}
    cloud._create(Request(name, (name,), plan.slice.name, "", labels=labels, metadata=metadata, spot=True), name, "")
    cloud.where[name] = ZONE
    cloud._finish(name)


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
    stopping.expect(world, job_id)


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
    """Write a word of a newer version into a record; that version restores it later."""
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


def _ambush(world: World, scene: JobsScene, event: Event) -> None:
    """Suspend a machine right before its next act, while people and other drivers change its target."""
    machine = world.machines[event.which % 2]
    machine.faults[True, machine.changes] = Fault(machine.index, machine.changes, "pause", event.seconds, True)
    asleep = machine.suspended
    for _ in range(300):
        world.scheduler.sleep(1.0)
        if machine.suspended > asleep:
            break
    else:
        return
    world.trace.add("world", f"{machine.name} sleeps before an act")
    if event.which & 2:
        _stop(world, scene, replace_event(event, which=0))
    if event.which & 4:
        world.scheduler.sleep(event.seconds / 2)
        _resume(world, scene, replace_event(event, which=event.which >> 1))


def _crash(world: World, scene: JobsScene, event: Event) -> None:
    machine = world.machines[event.which % len(world.machines)]
    machine.process += 1
    world.restart(machine, event.seconds)


def _blind(world: World, scene: JobsScene, event: Event) -> None:
    """Deny the API to the driver of a job, or to a chosen machine."""
    owner = next((lease.holder.name for lease in world.home.store.leases() if lease.name.startswith(JOBS.name)), "")
    chosen = [one for one in world.machines if owner.startswith(f"{one.name}/")] or [world.machines[0]]
    chosen[0].denied["cloud"] = max(world.scheduler.now + event.seconds, chosen[0].denied.get("cloud", 0.0))


def _power_loss(world: World, scene: JobsScene, event: Event) -> None:
    if scene.disk is None:
        return
    before = {job.id: job for job in _jobs(world)}
    scene.disk.lose()
    for machine in world.machines:
        machine.process += 1
        if not machine.down:
            world.restart(machine, event.seconds)
    page = world.home.store.list(JOBS)
    world.store._known = {entry.key: entry.value for entry in page.entries}
    found = world.store._known | dict.fromkeys((one.key for one in page.broken), None)
    for key, job in before.items():
        after = found.get(key, Job(key, "", "", "", 0.0, {}))
        world.acting = "power loss"
        if key not in found or (
            after and (job.state.ended, len(job.attempts)) > (after.state.ended, len(after.attempts))
        ):
            world.violate("lost", f"takes back what the record of {key} said")


def _abandon(world: World, scene: JobsScene, event: Event) -> None:
    """Lose every driver for good: running jobs end by themselves, and their hardware is removed."""
    watches = world.hosts.watches
    if watches is None:  # a shrunk plan without the limit
        return
    watches.abandoned = True
    for machine in world.machines:
        machine.down = True
        machine.process += 1
    world.scheduler.sleep(event.seconds)
    world.acting = "world"
    for name in watches.left():
        world.violate("leak", f"{name} is left {event.seconds:.0f} s after the last driver was lost")


def _orphan(world: World, scene: JobsScene, event: Event) -> None:
    """Deliver a late request, sent when its driver lost the job, after the job has ended."""
    ended = [plan for plan in world.jobs.values() if world.store.get(JOBS, plan.id).value.state.ended]
    for plan in ended[:1]:
        attempt = world.store.get(JOBS, plan.id).value.attempt
        for request in target.requests(plan, attempt.number if attempt else 0, world.home.sender, "key"):
            world.acting = "late"
            world.cloud.request(ZONE, request)


def _full_disk(world: World, scene: JobsScene, event: Event) -> None:
    scene.full |= {one.index for one in world.machines} if not event.which else {event.which % len(world.machines)}


_HAPPEN = {
    "gone project": gone_project.happen,
    "ambush": _ambush,
    "crash": _crash,
    "blind": _blind,
    "power loss": _power_loss,
    "full disk": _full_disk,
    "orphan": _orphan,
    "slow upload": lambda world, scene, event: None,
    "clones": lambda world, scene, event: None,
    "long history": lambda world, scene, event: None,
    "limit": lambda world, scene, event: None,
    "abandon": _abandon,
    "foreign": _foreign,
    "recreate": _recreate,
    "stop": _stop,
    "resume": _resume,
    "forget": _forget,
    "newer": _newer,
    "move store": moving.happen,
}
