"""Renew the limit of max.unattended where hosts see it without contact to a driver.

A host counts from the last request of a driver. A host that only this driver cannot reach would stop its program and
delete the hardware of all hosts at the limit, so the driver writes the time into the metadata of the TPU VM.
"""

from __future__ import annotations

from tpukit.google.tpu_vm import Node, TpuVms
from tpukit.jobs.plan import Plan
from tpukit.places.tpu_vm import target
from tpukit.places.tpu_vm.machines import Machines

RENEWED = "tpukit-renewed"
"""Key in the metadata: the time when a driver last renewed the limit."""
RENEWALS = 4
"""Number of renewals within the limit."""


def are_due(plan: Plan, machines: Machines, silent: float, now: float) -> bool:
    """Return whether a host was silent for so long that its limit is due, and no driver renewed it lately."""
    every = plan.spec.max.unattended / RENEWALS
    return bool(every) and silent >= every and any(_is_due(node, now, every) for node in machines.there)


def renew(client: TpuVms, plan: Plan, machines: Machines, now: float) -> None:
    every, mark = plan.spec.max.unattended / RENEWALS, {RENEWED: str(int(now))}
    for node in machines.there:
        if _is_due(node, now, every):
            client.set_metadata(target.of(plan).zone, node.name, node.id, lambda found: {**found, **mark})


def _is_due(node: Node, now: float, every: float) -> bool:
    """Return whether the mark is older than `every`. A mark from a clock that was ahead counts as old."""
    mark = node.metadata.get(RENEWED, "")
    return not mark.isdigit() or abs(now - int(mark)) >= every
