"""Find risks of losing work in a job that is about to be sent. Pure."""

from __future__ import annotations

from tpukit.jobs.plan import Plan
from tpukit.jobs.spec import settings

SHORT_GRACE = 10
"""Seconds below which few programs manage to save a checkpoint."""


def of(plan: Plan, workdir: str, *, this_machine: bool) -> list[str]:
    """Return the risks as sentences with what to do.

    `workdir` is where the place puts checkpoints. `this_machine`: its disks are not lost with the job.
    """
    found = []
    if not this_machine and not _durable(plan, workdir):
        lost = (
            "a preemption of spot capacity deletes them"
            if plan.spec.capacity == "spot"
            else "they are lost when the TPU VM is deleted or recreated"
        )
        fix = f"write `workdir: gs://BUCKET/PATH` into the job file; or {settings.hint('artifacts')}"
        found.append(f"checkpoints are on the hosts' disks ({workdir}), and {lost}; {fix}")
    if plan.spec.max.grace < SHORT_GRACE:
        found.append(
            f"max.grace is {plan.spec.max.grace} s: hosts that are stopped or preempted have no time to save; "
            "write `max: {grace: 30s}` into the job file"
        )
    return found


def _durable(plan: Plan, workdir: str) -> bool:
    folders = [mount.path for mount in plan.spec.mounts] + ([plan.vms.mount] if plan.vms and plan.vms.mount else [])
    return workdir.startswith("gs://") or any(
        workdir == one or workdir.startswith(f"{one.rstrip('/')}/") for one in folders
    )
