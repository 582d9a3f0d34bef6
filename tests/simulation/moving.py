"""A person moves the store to its other backend while jobs are active.

Drivers are stopped and restarted with the new setting; one of them may be suspended instead.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from simulation import people
from simulation.plans import Event, Fault
from simulation.records import StoreOf
from tpukit.core.errors import TpukitError
from tpukit.kernel.leases import SECONDS

if TYPE_CHECKING:
    from simulation.jobs_scene import JobsScene
    from simulation.world import World

TRIES = 10
NOTICED_SECONDS = 240.0
"""Seconds for which an awakened driver continues with the former setting."""
LATE_SECONDS = 300.0
"""Seconds of suspension below which an awakened driver finds that a person stops a job."""


def happen(world: World, scene: JobsScene, event: Event) -> None:
    """Move the store.

    `event.which` is the machine that is suspended for the event's duration, if there is such a machine.
    """
    asleep = world.machines[event.which] if event.which < len(world.machines) else None
    stopped = [one for one in world.machines if one is not asleep and not one.down]
    if any(job not in {one.id for one in world.store.jobs()} for job in world.jobs):
        return  # the person is about to send one
    if asleep is not None:
        asleep.faults[False, asleep.calls] = Fault(asleep.index, asleep.calls, "pause", event.seconds)
    for machine in stopped:
        machine.process += 1
    moved = False
    for _ in range(TRIES):
        world.scheduler.sleep(SECONDS / 2)
        if moved := _move(world):
            break
    for machine in stopped:
        world.restart(machine, 1.0)
    if moved and asleep is not None:  # its user notices, and corrects the settings there
        asleep.astray = True
        if event.seconds < LATE_SECONDS:
            world.happen("stop", event.seconds)
        world.scheduler.sleep(event.seconds + NOTICED_SECONDS)
        asleep.process += 1
        asleep.astray = False
        world.restart(asleep, 1.0)


def _move(world: World) -> bool:
    from tpukit.cli import store as command

    target = world.home.elsewhere()
    try:
        with people.at(world.person, StoreOf(world.person, world.store), {}):
            command.move.callback(target.address, False)  # type: ignore[misc]
    except TpukitError as error:
        world.trace.add("person", f"store move: {error.message[:80]}")
        return False
    world.trace.add("person", f"store moved to {target.address}")
    world.store = world.store.over(target)
    world.home.moved()
    return True
