"""A cluster's view of one JobSet."""

from support.gke_world import ADMITTED, condition, jobset, pod, state_of, time, workload
from tpukit.places.gke.jobsets import JobSetState, seconds
from tpukit.places.gke.namespace import listing


def job(*conditions, suspend=False, **metadata):
    labels = {"jobset.sigs.k8s.io/jobset-name": "train-1", "jobset.sigs.k8s.io/jobset-uid": "js"}
    return {
        "metadata": {"name": "j", "labels": labels, **metadata},
        "spec": {"suspend": suspend},
        "status": {"conditions": list(conditions)},
    }


def test_jobset_of_others_has_no_sender():
    theirs = JobSetState({"metadata": {"name": "theirs"}, "spec": {}})
    assert (theirs.sender, theirs.made_for, theirs.finished) == ("", 0, False)


def test_current_pods_leave_out_those_of_earlier_restarts_and_of_earlier_admissions():
    old_restart, old_admission = pod("a-0-0-x", restart=0), pod("b-0-0-x", restart=1, created=90.0)
    now = pod("c-0-0-x", restart=1, created=100.0)
    of = jobset(restarts=1)
    state = state_of(old_restart, old_admission, now, of=of, queued=workload(condition("Admitted", at=100.0)))
    assert state.current_pods() == [now]


def test_current_pods_none_while_it_waits_or_those_of_the_evicted_attempt_leave():
    assert state_of(pod(), queued=workload(condition("Admitted", status="False"))).current_pods() == []
    assert state_of(pod(), queued=workload(ADMITTED, condition("Evicted"))).current_pods() == []


def test_admitted_without_kueue_is_whether_it_is_suspended():
    free, held = jobset(), jobset()
    held["spec"]["suspend"] = True
    assert JobSetState(free).admitted_at == 0.0
    assert JobSetState(held).admitted_at is None


def test_active_while_the_jobset_is_unfinished_or_a_pod_runs_or_a_job_can_still_make_one():
    finished = jobset(condition("Failed"))
    assert JobSetState(jobset()).active
    assert JobSetState(jobset(deletionTimestamp=time(1.0))).active
    assert not JobSetState(finished, pods=[pod(phase="Failed", code=1)]).active
    assert JobSetState(finished, pods=[pod()]).active
    assert JobSetState(None, pods=[pod(deletionTimestamp=time(1.0))]).active
    assert JobSetState(None, jobs=[job()]).active
    assert not JobSetState(None, jobs=[job(suspend=True), job(condition("Failed")), job(condition("Complete"))]).active
    assert not JobSetState(None).active


def test_ended_at_is_when_it_finished_or_was_told_to_leave():
    assert JobSetState(jobset(condition("Completed", at=300.0))).ended_at == 300.0
    assert JobSetState(jobset(deletionTimestamp=time(200.0))).ended_at == 200.0
    assert JobSetState(jobset()).ended_at == 0.0


def test_listing_joins_workloads_by_owner_and_pods_by_name():
    listed = listing([jobset()], [workload(ADMITTED)], [job()], [pod()])
    state = listed.state("train-1", "me")
    assert (state.workload is not None, len(state.jobs), len(state.pods)) == (True, 1, 1)
    assert listed.state("other", "me").jobset is None


def test_listing_what_belongs_to_somebody_elses_jobset_is_left_out():
    ours_leaving = pod("old-0-0-x")
    ours_leaving["metadata"]["labels"] |= {"jobset.sigs.k8s.io/jobset-uid": "ours"}
    state = listing([jobset()], [workload(ADMITTED)], [job()], [pod(), ours_leaving]).state("train-1", "another store")
    assert (state.jobset, state.foreign, state.jobs, state.pods) == (None, "js", [], [ours_leaving])


def test_seconds_reads_what_kubernetes_writes():
    assert seconds(time(1_700_000_000)) == 1_700_000_000
    assert seconds("2026-01-02T03:04:05.123456Z") == 1767323045.123456
    assert seconds(None) == 0.0
