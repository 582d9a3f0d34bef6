"""The environment of a training process on a host of a TPU VM. Pure.

JAX reads worker number and peers from the machine's metadata server, so no TPU_WORKER_HOSTNAMES is set here: it would
put JAX on the path of GKE. Slices that train together get the same variables that a queued resource for several slices
sets. https://cloud.google.com/tpu/docs/multislice-introduction
"""

from __future__ import annotations

from tpukit.jobs.plan import Plan
from tpukit.jobs.records import Attempt

HEARTBEAT_SECONDS = 30


def host(plan: Plan, attempt: Attempt, slice_index: int, host_index: int, coordinator: str) -> dict[str, str]:
    """Return the environment. `coordinator`: address of the first host of the first slice, as its peers reach it."""
    several = {
        "MEGASCALE_NUM_SLICES": str(plan.spec.slices),
        "MEGASCALE_SLICE_ID": str(slice_index),
        "MEGASCALE_COORDINATOR_ADDRESS": coordinator,
    }
    return {
        **plan.spec.env,
        "TPUKIT_JOB": plan.id,
        "TPUKIT_ATTEMPT": str(attempt.number),
        "TPUKIT_STAGE": str(attempt.stage),
        "TPUKIT_HEARTBEAT": str(HEARTBEAT_SECONDS),
        "TPUKIT_SLICE_HOSTS": str(plan.slice.hosts),
        "TPU_WORKER_ID": str(host_index),
        **(several if plan.spec.slices > 1 else {}),
    }
