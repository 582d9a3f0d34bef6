"""The subject of a world: the controller on its machines, the acts of people, and the expected result."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from simulation.machines import Machine

if TYPE_CHECKING:
    from simulation.plans import Event
    from simulation.world import World


class Scene(Protocol):
    def process(self, machine: Machine, number: int) -> tuple[Callable[[], None], Any]:
        """Start the controller on a machine; return its round, and the leases to renew in parallel (or None)."""

    def happen(self, event: Event) -> bool:
        """Handle an event; return False if it does not belong to this scene."""

    def calm(self) -> None:
        """Stop all faults of this scene."""

    def may_lose(self, machine: Machine) -> bool:
        """Return whether a machine may be lost for good now."""

    def over(self) -> bool:
        """Return whether everything has ended and no hardware is left."""

    def judge(self) -> None:
        """Report everything that has not ended in time."""


def make(world: World) -> Scene:
    name = world.plan.scene
    if name == "fleet":
        from simulation.fleet_scene import FleetScene

        return FleetScene(world)
    if name == "queue":
        from simulation.queue_scene import QueueScene

        return QueueScene(world)
    if name == "provisioner":
        from simulation.provisioner_scene import ProvisionerScene

        return ProvisionerScene(world)
    if name == "local":
        from simulation.local_scene import LocalScene

        return LocalScene(world)
    if name == "gke":
        from simulation.cluster_scene import ClusterScene

        return ClusterScene(world)
    from simulation.jobs_scene import JobsScene

    return JobsScene(world)
