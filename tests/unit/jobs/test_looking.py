"""Jobs without a driver, as `tpu job list` shows them: what the driver would decide, without deciding it."""

from __future__ import annotations

import pytest

from support.gke_driving import Driving
from tpukit.cli import context
from tpukit.jobs.reasons import State
from tpukit.jobs.records import JOBS
from tpukit.jobs.use_cases import looking


@pytest.fixture
def driving(tmp_path, monkeypatch):
    driving = Driving(tmp_path)
    monkeypatch.setattr(context, "store", lambda: driving.store)
    monkeypatch.setattr(context, "places", lambda: {"gke": driving.place})
    monkeypatch.setattr(context, "CLOCK", driving.clock)
    yield driving
    driving.close()


def undriven(driving: Driving, **fields) -> str:
    job_id = driving.send(**{"rule": "pre", **fields})
    driving.run(job_id)
    for lease in driving.store.leases():
        driving.store.release(lease)
    return job_id


def shown(driving: Driving, job_id: str):
    before = driving.store.get(JOBS, job_id)
    (job,) = looking.as_seen_by_places(context.session(), [before.value])
    assert driving.store.get(JOBS, job_id) == before, "looking changes no record"
    return job


@pytest.mark.parametrize("times", [1, 2])
def test_evicted_job_that_waits_in_the_queue_is_shown_as_waiting_and_says_so(driving, times):
    job_id = undriven(driving)
    for number in range(times):
        if number:
            driving.cluster.admit(job_id)
            driving.cluster.start(job_id)
        driving.cluster.evict(job_id)
        driving.cluster.leave(job_id)
    job = shown(driving, job_id)
    assert (job.state, job.ended) == (State.SCHEDULED, 0.0)
    assert job.message


def test_job_that_jobset_restarted_is_shown_as_what_its_new_attempt_is(driving):
    job_id = undriven(driving, max={"restarts": 3})
    driving.cluster.fail(job_id, "userError", 0)
    job = shown(driving, job_id)
    assert not job.state.ended


def test_job_that_failed_for_good_is_shown_as_failed(driving):
    job_id = undriven(driving, max={"restarts": 0})
    driving.cluster.fail(job_id, "userError", 0)
    assert shown(driving, job_id).state is State.FAILED


def test_job_that_completed_is_shown_as_completed(driving):
    job_id = undriven(driving)
    driving.cluster.complete(job_id)
    assert shown(driving, job_id).state is State.COMPLETED
