"""What a world is about: which controller runs on its machines, what people do with it, and what has to be true."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from simulation.machines import Machine

if TYPE_CHECKING:
    from simulation.plans import Event
    from simulation.world import World


class Scene(Protocol):
    def process(self, machine: Machine, number: int) -> tuple[Callable[[], None], Any]:
        """Start the controller on a machine; return its round, and what renews its leases beside it (or None)."""

    def happen(self, event: Event) -> bool:
        """Do what an event of this scene says; return False for an event that is not of this scene."""

    def calm(self) -> None:
        """Nothing bad happens from now on."""

    def may_lose(self, machine: Machine) -> bool:
        """Whether a machine may be lost for good now."""

    def over(self) -> bool:
        """Whether everything has ended and nothing is left that costs money."""

    def judge(self) -> None:
        """Report what has not ended in time."""


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
