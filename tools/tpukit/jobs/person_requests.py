"""Record a person's request on a job: stop, resume or rerun. Drivers carry it out."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from tpukit.core.errors import Conflict
from tpukit.jobs.plan import Plan
from tpukit.jobs.reasons import State
from tpukit.jobs.records import JOBS, Job
from tpukit.kernel.store import Store, change
from tpukit.places.base import Place


def stop(store: Store, job_id: str, who: str, now: float) -> None:
    """Mark a job to be stopped. A job that has ended stays as it is."""
    change(
        store,
        JOBS,
        job_id,
        lambda job: job if job.state.ended else replace(job, wanted="stop"),
        note=f"stop requested by {who}",
        at=now,
    )


def again(store: Store, job_id: str, wanted: str, who: str, now: float) -> Job:
    """Mark an ended job to resume from its last checkpoint, or to rerun from the beginning.

    Raises:
        Conflict: The job has not ended.
    """
    note = f"{wanted} requested by {who}"
    return change(store, JOBS, job_id, lambda one: asked(one, wanted), note=note, at=now).value


def check_code(places: Mapping[str, Place], job: Job) -> None:
    """Raise Invalid if the job's code was removed."""
    places[job.place].check_code(Plan.from_json(job.plan))


def asked(job: Job, wanted: str) -> Job:
    if not job.state.ended:
        raise Conflict(f"{job.id} is {job.state}", hint=f"`tpu job stop {job.id}` first")
    return replace(job, state=State.PENDING, wanted=wanted, reason=None, message="", ended=0.0)
