"""The invariant that a requested stop is recorded soon, whatever the back-off and whichever driver is blind."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from simulation.machines import Machine
    from simulation.world import World

SOON = 100.0
"""Limit if all machines are healthy: a dead driver's lease lapses, and another driver has its round."""
TAKEN_OVER = 360.0
"""Limit if the job's driver may be blind: it yields, and another driver takes over."""


def expect(world: World, job_id: str) -> None:
    """Check later that the stop of a job was recorded, if the healthy machines stay healthy."""
    machines = [one for one in world.machines if not one.down]
    well = [one for one in machines if _is_well(one)]
    if not well or any(event.kind in ("newer", "power loss", "clones", "slow upload") for event in world.plan.events):
        return
    seconds = SOON if len(well) == len(machines) else TAKEN_OVER
    began, processes = world.scheduler.now, [one.process for one in well]

    def watch() -> None:
        world.scheduler.sleep(seconds)
        if any(not _is_well(one) for one in well) or processes != [one.process for one in well]:
            return
        if _is_disturbed(world, began):
            return
        job = world.store._known.get(job_id)
        if job is None or job.state.ended or job.outcome or job.wanted != "stop":
            return
        if job.attempt is None or job.attempt.stopping is None:
            world.acting = "world"
            world.violate("prompt", f"the stop of {job_id} is not on its record after {seconds:.0f} s: {job.message}")

    world.scheduler.spawn(watch)


def _is_well(machine: Machine) -> bool:
    """Return whether a machine drives, reaches everything, has its rights, and has no further faults in the plan."""
    now = machine.world.scheduler.now
    if not machine.plan.rights or machine.down or now - machine.world.scheduler.start < machine.plan.starts + 30:
        return False
    if machine.suspended > now or machine.plan.dies or machine.astray or machine.driving != machine.process:
        return False
    if any(until > now for each in (machine.cut, machine.deaf, machine.denied) for until in each.values()):
        return False
    return all(number < (machine.changes if change else machine.calls) for change, number in machine.faults)


def _is_disturbed(world: World, since: float) -> bool:
    """Return whether hosts or the API kept a driver from seeing the job."""
    silent = any(until > since for until in world.cloud.quiet.values())
    return world.blocked > since or bool(world.cloud.taken) or silent
