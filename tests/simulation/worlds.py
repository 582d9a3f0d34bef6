"""The worlds that there are, by name: how a plan is drawn from a seed, and what runs it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from simulation import cluster_plans, plans
from simulation.cluster_world import ClusterWorld
from simulation.plans import Plan
from simulation.world import World


@dataclass(frozen=True, slots=True)
class Kind:
    draw: Callable[[int], Plan]
    make: type[World]


WORLDS = {
    "tpu-vm": Kind(plans.draw, World),
    "gke": Kind(cluster_plans.draw, ClusterWorld),
}
