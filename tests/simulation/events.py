"""What happens to the world by itself, and what people do in it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from simulation.engine import Scheduler
from simulation.machines import Crashed
from simulation.plans import Event
from simulation.sending import ZONE
from tpukit.errors import Conflict, TpukitError
from tpukit.reasons import State
from tpukit.records import JOBS, Job
from tpukit.store import change

if TYPE_CHECKING:
    from simulation.world import World


class WorldClock:
    """The time as it is."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler

    def now(self) -> float:
        return self._scheduler.now


def happen(world: World, event: Event) -> None:
    from simulation.world import Stop

    world.trace.add("world", str(event))
    try:
        _HAPPEN[event.kind](world, event)
    except TpukitError as error:
        world.trace.add("world", f"{event.kind}: {error.message[:80]}")
    except (Crashed, Stop):
        pass


def _nodes(world: World) -> list[str]:
    world.cloud._pass_time()
    made = world.cloud.made.values()
    return sorted(one.name for one in made if one.state == "READY" and one.id not in world.cloud.foreign)


def _preempt(world: World, event: Event) -> None:
    nodes = [name for name in _nodes(world) if name not in world.cloud.taken]
    if nodes:
        world.cloud.preempt(nodes[event.which % len(nodes)])


def _lose_host(world: World, event: Event) -> None:
    """One host dies; the API notices after minutes."""
    nodes = [name for name in _nodes(world) if name not in world.cloud.taken]
    if nodes:
        name = nodes[event.which % len(nodes)]
        hosts = world.cloud.made[name].hosts
        address = hosts[event.which % len(hosts)].internal
        world.hosts.lose(address, "lost")
        world.cloud.quiet[address] = world.scheduler.now + 1e9
        world.scheduler.sleep(300.0)
        if name in world.cloud.made and any(host.internal == address for host in world.cloud.made[name].hosts):
            world.cloud.preempt(name)


def _repair(world: World, event: Event) -> None:
    nodes = [name for name in _nodes(world) if name not in world.cloud.taken]
    if nodes:
        world.cloud.repair(nodes[event.which % len(nodes)])


def _short(world: World, event: Event) -> None:
    world.cloud.short.add(ZONE)
    world.scheduler.sleep(event.seconds)
    world.cloud.short.discard(ZONE)


def _quota(world: World, event: Event) -> None:
    world.quota_failed = True
    world.cloud.no_quota = world.scheduler.now + 120


def _block_ssh(world: World, event: Event) -> None:
    if event.which == 0:
        world.blocked = max(world.blocked, world.scheduler.now + event.seconds)
    else:
        machine = world.machines[event.which % len(world.machines)]
        machine.cut["ssh"] = world.scheduler.now + event.seconds


def _quiet_host(world: World, event: Event) -> None:
    if nodes := _nodes(world):
        hosts = world.cloud.made[nodes[event.which % len(nodes)]].hosts
        address = hosts[event.which % len(hosts)].internal
        quiet = world.cloud.quiet
        quiet[address] = max(quiet.get(address, 0.0), world.scheduler.now + event.seconds)


def _foreign(world: World, event: Event) -> None:
    """Another user makes a TPU VM under a name that a job of ours uses, or used."""
    from tpukit.places.tpu_vm import target

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


def _stop(world: World, event: Event) -> None:
    job_id = _chosen(world, event)
    if not job_id:
        return
    store, _ = world.reach(world.person)
    if world.store.get(JOBS, job_id).value.state.ended:
        return
    world.asked.add(job_id)
    change(store, JOBS, job_id, lambda job: job if job.state.ended else replace(job, wanted="stop"))


def _resume(world: World, event: Event) -> None:
    job_id = _chosen(world, event)
    if not job_id:
        return
    store, _ = world.reach(world.person)
    wanted = "rerun" if event.which % 2 else "resume"

    def ask(job: Job) -> Job:
        if not job.state.ended:
            raise Conflict(f"{job.id} is {job.state}")
        return replace(job, state=State.PENDING, wanted=wanted, reason=None, message="", ended=0.0)

    change(store, JOBS, job_id, ask)


def _forget(world: World, event: Event) -> None:
    from tpukit.cli import context, job_act

    job_id = _chosen(world, event)
    if not job_id:
        return
    store, places = world.reach(world.person)
    record = world.store.get(JOBS, job_id).value
    if record.state.ended:
        return
    context.store, context.places = (lambda: store), (lambda: places)  # type: ignore[assignment]
    context.CLOCK = world.person.clock  # type: ignore[assignment]
    context.owner = lambda: "ada"  # type: ignore[assignment]
    before = set(world.asked)
    world.asked.add(job_id)
    try:
        job_act.forget.callback(job_id, True)  # type: ignore[misc]
    except TpukitError:
        if not world.store.get(JOBS, job_id).value.state.ended:
            world.asked &= before
        raise


def _newer(world: World, event: Event) -> None:
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


def _clear_state(world: World, event: Event) -> None:
    """A person deletes tpukit's folder on a machine: keys, staged code, logs."""
    import shutil

    machine = world.machines[event.which % len(world.machines)]
    shutil.rmtree(machine.root, ignore_errors=True)
    machine.key = f"ssh-ed25519 KEY-{machine.index}-{int(event.at)} tpukit"
    machine.process += 1
    world.restart(machine, 10.0)


def _clock_ahead(world: World, event: Event) -> None:
    machine = world.machines[event.which % len(world.machines)]
    machine.clock.offset += 86_400.0
    world.scheduler.sleep(event.seconds)
    machine.clock.offset -= 86_400.0


def _no_rights(world: World, event: Event) -> None:
    machine = world.machines[event.which % len(world.machines)]
    machine.denied["cloud"] = max(world.scheduler.now + event.seconds, machine.denied.get("cloud", 0.0))


_HAPPEN = {
    "preempt": _preempt,
    "lose host": _lose_host,
    "repair": _repair,
    "short": _short,
    "quota": _quota,
    "block ssh": _block_ssh,
    "quiet host": _quiet_host,
    "foreign": _foreign,
    "stop": _stop,
    "resume": _resume,
    "forget": _forget,
    "newer": _newer,
    "clear state": _clear_state,
    "clock ahead": _clock_ahead,
    "no rights": _no_rights,
}
