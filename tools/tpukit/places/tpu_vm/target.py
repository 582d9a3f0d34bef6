"""The names of a job's TPU VMs, the requests that create them, and the labels that identify them."""

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
from tpukit.places.tpu_vm import boot_limit

JOB, ATTEMPT, STORE = "tpukit-job", "tpukit-attempt", "tpukit-store"
SHARED_STORE = "tpukit-shared-store"
"""Label of TPU VMs that tpukit created for users: the store on whose behalf. No sweep removes them."""
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
    """Return whether the job creates its TPU VMs, and releases them."""
    return not of(plan).nodes


def nodes(plan: Plan) -> tuple[str, ...]:
    """Return the names of the TPU VMs, slice by slice."""
    return of(plan).nodes or tuple(f"{plan.id}-{index}" for index in range(plan.spec.slices))


def login_user(settings: Settings) -> str:
    """Return the user to log in to hosts as, never root: https://cloud.google.com/tpu/docs/manage-tpus-tpu-vm."""
    user = settings.ssh_user or getpass.getuser()
    return "tpukit" if user == "root" else user


def store_label(sender: str) -> str:
    """Return a label value for a store, since label values are short."""
    return hashlib.sha256(sender.encode()).hexdigest()[:24]


def made_for(labels: Mapping[str, str], plan: Plan) -> int | None:
    """Return the attempt of this job that something was created for; None if it was not created for this job."""
    number = labels.get(ATTEMPT, "")
    return int(number) if labels.get(JOB) == plan.id and number.isdigit() else None


def runtime(plan: Plan) -> str:
    return runtime_of(plan.slice, plan.settings)


def runtime_of(shape: Slice, settings: Settings) -> str:
    known = settings.runtime_version or _RUNTIMES.get(shape.generation)
    if known is None:
        raise Invalid(
            f"tpu: {shape.name} is not available as TPU VMs", hint="send the job to a cluster, or use another tpu"
        )
    return known


def requests(plan: Plan, attempt: int, sender: str, key: str) -> list[Request]:
    """Return one request for all slices that the job creates, so that they come together; else one per named TPU VM."""
    capacity = plan.spec.capacity
    target, names = of(plan), nodes(plan)
    groups = [(plan.id, names)] if is_own(plan) else [(name, (name,)) for name in names]
    limit = plan.spec.max.unattended if is_own(plan) else 0
    made = []
    for name, members in groups:
        labels = {
            JOB: plan.id,
            ATTEMPT: str(attempt),
            # A TPU VM that the user named stays the user's when it is recreated: it is not swept.
            (STORE if is_own(plan) else SHARED_STORE): store_label(sender),
        }
        urls = [
            boot_limit.hardware_url(target.project, target.zone, one, name * plan.settings.queued) for one in members
        ]
        request = Request(
            name,
            members,
            accelerator=plan.slice.name,
            runtime=runtime(plan),
            spot=capacity == "spot",
            reservation=_reservation(target, capacity) if isinstance(capacity, Reservation) else "",
            labels=labels,
            metadata={
                "ssh-keys": f"{target.user}:{key}",
                **boot_limit.metadata(dict.fromkeys(urls), labels, limit and limit + plan.spec.max.grace),
            },
            external_ips=plan.settings.external_ips,
            # Without a driver the hardware would be idle. An active driver repeats the request.
            valid_seconds=limit,
        )
        made.append(request)
    return made


def _reservation(target: VmTarget, capacity: Reservation) -> str:
    name = capacity.reservation
    return name if "/" in name else f"projects/{target.project}/locations/{target.zone}/reservations/{name}"
