"""The limit for slices without a driver: set at submission, extended by the driver, never moved back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.fake_cluster import FakeCluster
from support.gke_driving import place_on
from support.gke_world import condition, handle, jobset, planned, time
from tpukit.core import fence
from tpukit.core.clock import ManualClock
from tpukit.core.errors import LeaseLost
from tpukit.jobs import render
from tpukit.jobs.plan import SLICE_JOB
from tpukit.jobs.reasons import Reason
from tpukit.places.base import FollowUp
from tpukit.places.gke import failure, unattended
from tpukit.places.gke.jobsets import NAME, REPLICATED_JOB, UID, JobSetState

DAY = 86400
START = 1_700_000_000.0


@pytest.fixture
def cluster():
    return FakeCluster(ManualClock())


@pytest.fixture
def place(cluster, tmp_path):
    place = place_on(cluster, tmp_path / "data")
    yield place
    place.close()


def run(cluster, place, one=None):
    """Send the job and let its slices run, each as a Job."""
    one = one or handle()
    place.submit(one)
    cluster.admit(one.plan.id)
    cluster.start(one.plan.id)
    made = cluster.jobset(one.plan.id)
    spec = made["spec"]["replicatedJobs"][0]["template"]["spec"]
    for index in range(2):
        labels = {NAME: one.plan.id, UID: made["metadata"]["uid"], REPLICATED_JOB: SLICE_JOB}
        meta = {"name": f"{one.plan.id}-slice-{index}", "namespace": "research", "labels": labels}
        limits = {key: spec[key] for key in ("activeDeadlineSeconds",) if key in spec}
        cluster._add("Job", {"metadata": meta, "spec": limits, "status": {"startTime": cluster.time()}})
    return one


def deadlines(cluster):
    return [job["spec"].get("activeDeadlineSeconds") for job in cluster._kind("Job").values()]


def drive(cluster, place, one, hours, every=1):
    for _ in range(0, hours, every):
        cluster.clock.sleep(every * 3600.0)
        (seen,) = place.observe([one])
        if seen.follow_up:
            place.follow_up(one, seen.follow_up)
    return seen


@pytest.mark.parametrize(("limits", "expected"), [({}, DAY), ({"unattended": "2h"}, 7200), ({"runtime": "1h"}, 3600)])
def test_job_that_is_sent_ends_by_itself_when_no_driver_renews_it(cluster, place, limits, expected):
    run(cluster, place, handle(plan=planned(max=limits)))
    assert deadlines(cluster) == [expected, expected]


def test_job_without_a_limit_has_no_deadline(cluster, place):
    run(cluster, place, handle(plan=planned(max={"unattended": "0s"})))
    assert deadlines(cluster) == [None, None]


def test_job_of_a_sender_that_may_not_renew_has_no_deadline(cluster, place):
    cluster.denied.add("Job")
    run(cluster, place)
    assert deadlines(cluster) == [None, None]


def test_manifest_for_people_has_no_deadline():
    (document,) = render.documents(planned())
    assert "activeDeadlineSeconds" not in document["spec"]["replicatedJobs"][0]["template"]["spec"]


def test_job_with_a_driver_runs_for_weeks(cluster, place):
    one = run(cluster, place)
    drive(cluster, place, one, 21 * 24)
    left = [deadline - 21 * DAY for deadline in deadlines(cluster)]
    assert all(DAY * 3 / 4 < one <= DAY for one in left)
    assert cluster.asked["patch Job"] <= 2 * 9 * 21


def test_job_whose_driver_left_keeps_its_deadline(cluster, place):
    one = run(cluster, place)
    drive(cluster, place, one, 24)
    last = deadlines(cluster)
    cluster.clock.sleep(10 * DAY)
    assert deadlines(cluster) == last
    assert all(deadline <= 2 * DAY for deadline in last)


def test_job_that_is_only_looked_at_is_not_renewed(cluster, place):
    one = run(cluster, place)
    for _ in range(24):
        cluster.clock.sleep(3600.0)
        place.observe([one])
    assert deadlines(cluster) == [DAY, DAY]


def test_job_is_not_renewed_beyond_its_longest_runtime(cluster, place):
    one = run(cluster, place, handle(plan=planned(max={"runtime": "30h"})))
    drive(cluster, place, one, 29)
    assert deadlines(cluster) == [30 * 3600] * 2


def test_renewal_by_a_driver_whose_clock_is_behind_moves_on_all_the_same(cluster, place):
    one = run(cluster, place)
    cluster.clock.set(cluster.clock.now() - 30 * DAY)
    drive(cluster, place, one, 10 * 24)
    assert all(deadline >= 10 * DAY + DAY / 2 for deadline in deadlines(cluster))


def test_renewal_by_a_driver_that_lost_its_lease_is_not_sent(cluster, place):
    one = run(cluster, place)
    cluster.clock.sleep(DAY / 2)

    def lost():
        raise LeaseLost("another driver owns it")

    with fence.held(lost), pytest.raises(LeaseLost):
        place.follow_up(one, FollowUp(renew=True))
    assert deadlines(cluster) == [DAY, DAY]


def test_renewal_by_a_driver_that_may_not_is_a_warning_and_it_still_drives(cluster, place):
    one = run(cluster, place)
    cluster.denied.add("Job")
    seen = drive(cluster, place, one, 5)
    assert "max.unattended" in seen.warning
    cluster.denied.clear()
    assert drive(cluster, place, one, 5).warning == ""
    assert all(deadline > DAY for deadline in deadlines(cluster))


@given(
    current=st.integers(1, 10 * DAY),
    passed=st.floats(-DAY, 30 * DAY),
    limit=st.integers(60, 7 * DAY),
    since=st.floats(0, 7 * DAY),
    runtime=st.none() | st.integers(60, 10 * DAY),
)
def test_deadline_is_never_moved_back_nor_beyond_the_runtime(current, passed, limit, since, runtime):
    job = {"spec": {"activeDeadlineSeconds": current}, "status": {"startTime": time(START)}}
    wanted = unattended.later(job, limit, runtime, START + passed, since)
    if wanted is not None:
        assert wanted > current
        assert runtime is None or wanted <= runtime


@pytest.mark.parametrize(("deadline", "runtime", "says"), [(DAY, None, True), (DAY, 2 * DAY, True), (DAY, DAY, False)])
def test_end_by_the_limit_is_told_from_an_end_by_the_runtime(deadline, runtime, says):
    failed = condition("Failed", "DeadlineExceeded")
    job = {"metadata": {"name": "j"}, "spec": {"activeDeadlineSeconds": deadline}, "status": {"conditions": [failed]}}
    said = failure.why(JobSetState(jobset(condition("Failed")), None, [job]), {}, runtime)
    assert said.reason is Reason.TIMEOUT
    assert ("max.unattended" in said.detail) == says
