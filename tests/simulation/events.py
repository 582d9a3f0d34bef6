"""Spontaneous events of the machines, the network and the cloud of a world."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from simulation.engine import Scheduler
from simulation.machines import Crashed
from simulation.plans import Event
from tpukit.core.errors import TpukitError

if TYPE_CHECKING:
    from simulation.world import World

ZONE = "us-central2-b"


class WorldClock:
    """The true time."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler

    def now(self) -> float:
        return self._scheduler.now


def happen(world: World, event: Event) -> None:
    from simulation.world import Stop

    world.trace.add("world", str(event))
    world.changes += 1
    world.under_way -= 1
    try:
        if not world.scene.happen(event) and event.kind in _HAPPEN:
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
    """Lose one host; the API reports it minutes later."""
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


def _clear_state(world: World, event: Event) -> None:
    """Delete tpukit's folder on a machine, as a person: keys, staged code, logs."""
    machine = world.machines[event.which % len(world.machines)]
    if machine.index == 0 and not world.scene.may_lose(machine):
        return
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
    "clear state": _clear_state,
    "clock ahead": _clock_ahead,
    "no rights": _no_rights,
}
