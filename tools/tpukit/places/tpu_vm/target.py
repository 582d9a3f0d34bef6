"""What a job's TPU VMs are called, how they are asked for, and by which labels they are known again."""

from __future__ import annotations

import getpass
import hashlib
from collections.abc import Mapping

from tpukit.catalogue import Slice
from tpukit.core.errors import Invalid
from tpukit.google.tpu_vm import Request
from tpukit.jobs.plan import Plan, VmTarget
from tpukit.jobs.spec import Settings
from tpukit.jobs.spec.job import Reservation

JOB, ATTEMPT, STORE = "tpukit-job", "tpukit-attempt", "tpukit-store"
SHARED_STORE = "tpukit-shared-store"
"""Label of TPU VMs that tpukit created for people: the store on whose behalf. No sweep removes them."""
# https://cloud.google.com/tpu/docs/runtimes
_RUNTIMES = {
    "v2": "tpu-ubuntu2204-base",
    "v3": "tpu-ubuntu2204-base",
    "v4": "tpu-ubuntu2204-base",
    "v5e": "v2-alpha-tpuv5-lite",
    "v5p": "v2-alpha-tpuv5",
    "v6e": "v2-alpha-tpuv6e",
}


def of(plan: Plan) -> VmTarget:
    if plan.vms is None:
        raise Invalid(f"the plan of {plan.id} names no project and zone", hint="send the job again")
    return plan.vms


def is_own(plan: Plan) -> bool:
    """Whether the job makes its TPU VMs, and gives them back."""
    return not of(plan).nodes


def nodes(plan: Plan) -> tuple[str, ...]:
    """Names of the TPU VMs, slice by slice."""
    return of(plan).nodes or tuple(f"{plan.id}-{index}" for index in range(plan.spec.slices))


def login_user(settings: Settings) -> str:
    """As whom hosts are entered. None lets root in: https://cloud.google.com/tpu/docs/manage-tpus-tpu-vm"""
    user = settings.ssh_user or getpass.getuser()
    return "tpukit" if user == "root" else user


def store_label(sender: str) -> str:
    """A store as the value of a label, which takes few characters."""
    return hashlib.sha256(sender.encode()).hexdigest()[:24]


def made_for(labels: Mapping[str, str], plan: Plan) -> int | None:
    """The attempt of this job that something was made for; None: it was not made for this job."""
    number = labels.get(ATTEMPT, "")
    return int(number) if labels.get(JOB) == plan.id and number.isdigit() else None


def runtime(plan: Plan) -> str:
    return runtime_of(plan.slice, plan.settings)


def runtime_of(shape: Slice, settings: Settings) -> str:
    known = settings.runtime_version or _RUNTIMES.get(shape.generation)
    if known is None:
        raise Invalid(
            f"tpu: {shape.name} is not rented as TPU VMs", hint="send the job to a cluster, or use another tpu"
        )
    return known


def requests(plan: Plan, attempt: int, sender: str, key: str) -> list[Request]:
    """One for all slices that the job makes itself, so that they come together; one for each that a person named."""
    capacity = plan.spec.capacity
    target, names = of(plan), nodes(plan)
    groups = [(plan.id, names)] if is_own(plan) else [(name, (name,)) for name in names]
    return [
        Request(
            name,
            members,
            accelerator=plan.slice.name,
            runtime=runtime(plan),
            spot=capacity == "spot",
            reservation=_reservation(target, capacity) if isinstance(capacity, Reservation) else "",
            # What a person named stays theirs when it is recreated: it is not swept.
            labels={
                JOB: plan.id,
                ATTEMPT: str(attempt),
                (STORE if is_own(plan) else SHARED_STORE): store_label(sender),
            },
            metadata={"ssh-keys": f"{target.user}:{key}"},
            external_ips=plan.settings.external_ips,
            # Without a driver nothing would use the hardware. A driver that is there makes the request again.
            valid_seconds=plan.spec.max.unattended if is_own(plan) else 0,
        )
        for name, members in groups
    ]


def _reservation(target: VmTarget, capacity: Reservation) -> str:
    name = capacity.reservation
    return name if "/" in name else f"projects/{target.project}/locations/{target.zone}/reservations/{name}"
