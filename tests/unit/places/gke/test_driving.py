"""Jobs on a cluster that continues without a driver."""

from __future__ import annotations

import pytest

from support.fake_cluster import _set
from support.gke_driving import Driving, charged
from tpukit.core.errors import Transient
from tpukit.jobs.reasons import Reason, State


@pytest.fixture
def driving(tmp_path):
    driving = Driving(tmp_path)
    yield driving
    driving.close()


def test_job_runs_to_its_end_in_one_attempt(driving):
    job_id = driving.send()
    driving.run(job_id)
    driving.cluster.complete(job_id)
    at = driving.clock.now()
    driving.clock.sleep(500.0)
    job = driving.until(job_id, State.COMPLETED)
    assert driving.reasons(job_id) == ["done"]
    assert job.attempts[0].ended == at
    assert job.ended == at


@pytest.mark.parametrize("rule", ["pass", "resume", "rerun", "reapply", "pre"])
def test_two_evictions_while_nobody_drove_and_one_before_the_first_look_are_not_charged(driving, rule):
    job_id = driving.send(rule=rule)
    driving.tick()
    cluster = driving.cluster
    for _ in range(3):
        cluster.admit(job_id)
        cluster.start(job_id)
        driving.clock.sleep(60.0)
        cluster.evict(job_id)
        cluster.leave(job_id)
        driving.clock.sleep(60.0)
    uid = cluster.jobset(job_id)["metadata"]["uid"]
    cluster.admit(job_id)
    cluster.start(job_id)
    driving.new_driver()
    job = driving.until(job_id, State.RUNNING)
    assert driving.reasons(job_id) == ["evicted"] * 3
    assert job.attempt.number == 3
    assert cluster.jobset(job_id)["metadata"]["uid"] == uid
    assert charged(job) == 0
    cluster.complete(job_id)
    driving.until(job_id, State.COMPLETED)


@pytest.mark.parametrize("watched", [True, False])
@pytest.mark.parametrize("rule", ["pass", "resume", "pre"])
def test_eviction_that_jobset_takes_for_a_failure_of_the_leaving_hosts_is_still_one(driving, rule, watched):
    """The hosts end with 143, which fails the JobSet under rule pass before the driver sees the suspension."""
    job_id = driving.send(rule=rule)
    cluster = driving.cluster
    driving.run(job_id) if watched else driving.tick()
    cluster.admit(job_id)
    cluster.start(job_id)
    cluster.evict(job_id)
    _set(cluster.jobset(job_id), "Failed", "True", "FailedJobs", at=cluster.time())
    cluster.leave(job_id)
    driving.clock.sleep(60.0)
    driving.new_driver()
    driving.tick(5)
    cluster.leave(job_id)  # the JobSet that ended frees its room
    driving.tick(5)
    cluster.admit(job_id)
    cluster.start(job_id)
    job = driving.until(job_id, State.RUNNING)
    assert driving.reasons(job_id) == ["evicted"]
    assert (job.attempt.number, job.attempt.stage, charged(job)) == (1, 1, 0)
    cluster.complete(job_id)
    driving.until(job_id, State.COMPLETED)


@pytest.mark.parametrize("rule", ["pass", "resume", "pre"])
def test_eviction_that_fails_the_jobset_when_it_is_let_in_again_is_still_one(driving, rule):
    """The driver saw the eviction; once the Jobs are resumed, they count the hosts that had left."""
    job_id = driving.send(rule=rule)
    cluster = driving.cluster
    driving.run(job_id)
    cluster.evict(job_id)
    cluster.leave(job_id)
    driving.tick(3)
    assert driving.reasons(job_id) == ["evicted"]
    _set(cluster.jobset(job_id), "Failed", "True", "FailedJobs", at=cluster.time())
    driving.tick(5)
    cluster.leave(job_id)
    driving.tick(5)
    cluster.admit(job_id)
    cluster.start(job_id)
    job = driving.until(job_id, State.RUNNING)
    assert set(driving.reasons(job_id)) == {"evicted"}
    assert charged(job) == 0


def test_restarts_that_nobody_saw_are_charged_as_jobset_counted_them(driving):
    job_id = driving.send(rule="pre", max={"restarts": 5})
    driving.run(job_id)
    for how in ("userError", "preempted", "userError", "peerLost"):
        driving.cluster.fail(job_id, how)
        driving.cluster.restart(job_id)
        driving.cluster.start(job_id)
    driving.tick(8)
    job = driving.job(job_id)
    assert (len(job.attempts), charged(job)) == (5, 2)
    assert job.state is State.RUNNING


def test_program_that_aborts_by_itself_is_charged_and_stopped_when_its_budget_is_spent(driving):
    """JobSet treats exit code 134 as a lost peer, and would repeat it forever."""
    job_id = driving.send(rule="pre", max={"restarts": 1})
    cluster = driving.cluster
    driving.run(job_id)
    for _ in range(2):
        first = cluster.pods(job_id)[0]
        cluster.say(first, "F0000 00:00:00.000000   12 train.cc:7] Check failed: batch > 0 (0 vs. 0)")
        cluster.fail(job_id, "peerLost", host=0)
        driving.tick(3)
        if not driving.job(job_id).outcome:
            cluster.restart(job_id)
            cluster.start(job_id)
            driving.until(job_id, State.RUNNING)
    cluster.leave(job_id)
    job = driving.until(job_id, State.FAILED)
    assert driving.reasons(job_id) == ["user error", "user error"]
    assert "Check failed: batch > 0" in job.message
    assert job.attempts[0].host == f"{job_id}-slice-0-0"
    assert cluster.jobset(job_id) is None


def test_attempts_end_is_that_of_the_cluster_and_not_of_the_look(driving):
    job_id = driving.send(rule="pass")
    driving.run(job_id)
    driving.cluster.evict(job_id)
    at = driving.clock.now()
    driving.clock.sleep(3000.0)
    driving.tick()
    assert driving.job(job_id).attempts[0].ended == at


def test_user_error_names_the_host_and_its_last_words(driving):
    job_id = driving.send(max={"restarts": 0})
    driving.run(job_id)
    driving.cluster.fail(job_id, "userError", host=2)
    job = driving.until(job_id, State.FAILED)
    assert job.reason is Reason.USER_ERROR
    assert job.attempts[0].host == f"{job_id}-slice-1-0"
    assert "it broke" in job.message


def test_words_of_a_failed_host_are_known_to_a_driver_that_comes_when_its_pods_are_gone(driving):
    job_id = driving.send(rule="pre", max={"restarts": 1})
    driving.run(job_id)
    pods = driving.cluster.pods(job_id)
    ended = {"exitCode": 3, "reason": "Error", "finishedAt": driving.cluster.time()}
    pods[3]["status"] |= {"phase": "Failed"}
    pods[3]["status"]["containerStatuses"][0]["state"] = {"terminated": ended}
    driving.tick()
    driving.cluster.fail(job_id, "userError", host=3)
    driving.cluster.restart(job_id)
    driving.new_driver()
    driving.tick(2)
    first = driving.job(job_id).attempts[0]
    assert (first.reason, first.host) == (Reason.USER_ERROR, f"{job_id}-slice-1-1")
    assert "exit code 3" in first.detail


def test_stop_while_the_jobset_restarts_between_two_looks_removes_it_before_the_record_says_so(driving):
    job_id = driving.send(rule="pre")
    driving.run(job_id)
    driving.stop(job_id)
    driving.cluster.fail(job_id, "preempted")
    driving.cluster.restart(job_id)
    driving.tick(2)
    assert not driving.job(job_id).state.ended
    driving.cluster.leave(job_id)
    driving.until(job_id, State.CANCELLED)
    assert driving.cluster.jobset(job_id) is None
    assert driving.reasons(job_id) == ["cancelled"]


@pytest.mark.parametrize("fault", ["refused", "lost", "killed", "killed after"])
def test_stop_that_fails_at_any_call_is_done_in_the_end(tmp_path, fault):
    for number in range(12):
        driving = Driving(tmp_path / str(number))
        job_id = driving.send(rule="pre")
        driving.run(job_id)
        driving.stop(job_id)
        driving.cluster.faults[driving.cluster.calls + number] = fault
        for _ in range(30):
            driving.tick()
            jobset = driving.cluster.jobset(job_id)
            if jobset and "deletionTimestamp" in jobset["metadata"]:
                driving.cluster.leave(job_id)
            if driving.job(job_id).state.ended:
                break
        assert driving.job(job_id).state is State.CANCELLED
        assert driving.cluster.jobset(job_id) is None
        driving.close()


@pytest.mark.parametrize("fault", ["refused", "lost", "killed", "killed after"])
def test_submit_cut_off_at_any_call_makes_one_jobset(tmp_path, fault):
    for number in range(12):
        driving = Driving(tmp_path / str(number))
        driving.cluster.faults[number] = fault
        job_id = driving.send()
        driving.tick(10)
        assert driving.cluster.log.count("create JobSet") <= 2
        driving.cluster.admit(job_id)
        driving.cluster.start(job_id)
        driving.until(job_id, State.RUNNING)
        assert len(driving.job(job_id).attempts) == 1
        driving.close()


def test_jobset_that_somebody_deletes_ends_the_job_and_is_not_made_again(driving):
    job_id = driving.send()
    driving.run(job_id)
    driving.cluster.delete("JobSet", job_id, "research", foreground=True)
    at = driving.clock.now()
    driving.clock.sleep(10.0)
    driving.tick()
    assert driving.job(job_id).state is State.RUNNING
    driving.cluster.leave(job_id)
    driving.clock.sleep(1000.0)
    job = driving.until(job_id, State.CANCELLED)
    assert "its JobSet was deleted by another user or tool" in job.message
    assert job.attempts[0].ended == at
    driving.tick(3)
    assert driving.cluster.jobset(job_id) is None


def test_jobset_deleted_in_the_background_is_over_only_when_its_jobs_can_make_no_more_pods(driving):
    job_id = driving.send()
    driving.run(job_id)
    uid = driving.cluster.jobset(job_id)["metadata"]["uid"]
    labels = {"jobset.sigs.k8s.io/jobset-name": job_id, "jobset.sigs.k8s.io/jobset-uid": uid}
    metadata = {"name": f"{job_id}-slice-0", "namespace": "research", "labels": labels}
    driving.cluster.forget(job_id)
    driving.cluster._add("Job", {"metadata": metadata, "spec": {}, "status": {}})
    driving.tick(3)
    assert driving.job(job_id).state is State.RUNNING
    driving.cluster.objects["Job"].clear()
    driving.until(job_id, State.CANCELLED)


def test_resume_of_an_ended_job_makes_a_new_jobset_after_the_old_one_is_gone(driving):
    job_id = driving.send(max={"restarts": 0})
    driving.run(job_id)
    driving.cluster.fail(job_id, "userError")
    driving.until(job_id, State.FAILED)
    old = driving.cluster.jobset(job_id)["metadata"]["uid"]
    driving.again(job_id, "resume")
    driving.tick(3)
    assert driving.cluster.jobset(job_id)["metadata"]["uid"] == old
    driving.cluster.leave(job_id)
    driving.tick(2)
    assert driving.cluster.jobset(job_id)["metadata"]["uid"] != old
    driving.cluster.admit(job_id)
    driving.cluster.start(job_id)
    job = driving.until(job_id, State.RUNNING)
    assert (job.attempt.number, job.attempt.stage) == (1, 1)


def test_job_that_the_api_server_refuses_ends_with_its_words(driving):
    driving.cluster.refuse = "spec.replicatedJobs: too long"
    job_id = driving.send()
    job = driving.until(job_id, State.FAILED)
    assert job.reason is Reason.CANNOT_START
    assert "too long" in job.message


def test_jobset_of_somebody_else_with_the_same_name_is_not_touched_and_the_job_says_so(driving):
    job_id = driving.send()
    theirs = {"apiVersion": "v", "kind": "JobSet", "metadata": {"name": job_id, "namespace": "research"}, "spec": {}}
    driving.cluster.create(theirs)
    driving.tick(6)
    assert "sent by another user or tool" in driving.job(job_id).message
    driving.stop(job_id)
    driving.clock.sleep(600.0)
    for _ in range(40):
        driving.driver.round()
        driving.clock.sleep(60.0)
        if driving.job(job_id).state.ended:
            break
    assert driving.job(job_id).state is State.CANCELLED
    assert "delete JobSet" not in driving.cluster.log


def test_many_jobs_cost_as_many_requests_a_round_as_one(driving):
    ids = [driving.send(name=f"train-{number}") for number in range(20)]
    driving.tick()
    for job_id in ids:
        driving.cluster.admit(job_id)
        driving.cluster.start(job_id)
    driving.tick(2)
    assert {driving.job(job_id).state for job_id in ids} == {State.RUNNING}
    driving.cluster.log.clear()
    driving.tick()
    listed = [call for call in driving.cluster.log if call != "logs"]
    assert sorted(listed) == ["list Job", "list JobSet", "list Pod", "list Workload"]


def report(driving, job_id, step):
    for pod in driving.cluster.pods(job_id):
        driving.cluster.say(pod, f'tpukit-progress {{"step": {step}, "saved": {step}, "time": {driving.clock.now()}}}')


def test_logs_that_cannot_be_read_for_an_hour_stop_nobody(driving, monkeypatch):
    job_id = driving.send(max={"stall": "60s"})
    driving.run(job_id)
    report(driving, job_id, 1)
    driving.tick(5)

    def broken(*_, **__):
        raise Transient("the connection was lost")
        yield

    monkeypatch.setattr(driving.cluster, "logs", broken)
    for _ in range(360):
        driving.clock.sleep(9.0)
        driving.tick()
    monkeypatch.undo()
    report(driving, job_id, 9)
    driving.clock.sleep(120.0)
    driving.tick(3)
    job = driving.job(job_id)
    assert (job.state, len(job.attempts), job.attempt.saved) == (State.RUNNING, 1, 9)


def test_host_that_is_read_and_makes_no_steps_is_a_hang_and_the_job_resumes(driving):
    job_id = driving.send(rule="pre", max={"stall": "60s"})
    driving.run(job_id)
    report(driving, job_id, 5)
    for _ in range(30):
        driving.clock.sleep(5.0)
        driving.tick()
        if driving.job(job_id).attempt.stopping:
            break
    driving.cluster.leave(job_id)
    driving.tick(2)
    job = driving.job(job_id)
    assert driving.reasons(job_id) == ["hang"]
    assert (job.attempts[0].saved, job.attempt.number, job.attempt.stage) == (5, 1, 1)
    assert driving.cluster.jobset(job_id)["metadata"]["annotations"]["tpukit.dev/attempt"] == "1"


def test_api_server_that_is_away_costs_nothing_but_time(driving):
    job_id = driving.send()
    driving.run(job_id)
    driving.cluster.away = True
    for _ in range(20):
        driving.clock.sleep(60.0)
        driving.tick()
    assert "does not respond" in driving.job(job_id).message
    driving.cluster.away = False
    driving.cluster.complete(job_id)
    driving.clock.sleep(120.0)
    assert driving.until(job_id, State.COMPLETED).attempts[0].reason is Reason.DONE


RULES = ("pass", "resume", "rerun", "reapply", "pre")


@pytest.mark.parametrize("seed", range(30))
def test_cluster_that_acts_by_itself_between_any_two_calls(tmp_path, seed):
    """An ended record implies that nothing runs (checked after every round).

    Lost hardware is never charged, and every active job ends once the faults are over.
    """
    driving = Driving(tmp_path, seed)
    dice, cluster = driving.cluster.dice, driving.cluster
    ids = [
        driving.send(name=f"job-{number}", rule=dice.choice(RULES), max={"restarts": dice.randrange(3)})
        for number in range(3)
    ]
    cluster.meanwhile = lambda: cluster.step() if dice.random() < 0.2 else None
    for number in range(60):
        if dice.random() < 0.2:
            cluster.faults[cluster.calls + dice.randrange(20)] = dice.choice(
                ["refused", "lost", "killed", "killed after"]
            )
        if number % 20 == 10:
            driving.stop(dice.choice(ids))
        if dice.random() < 0.1:
            driving.clock.sleep(120.0)
            for _ in range(dice.randrange(12)):
                cluster.step()
        driving.tick()
    cluster.meanwhile = lambda: None
    for _ in range(300):
        cluster.step(calm=True)
        if not driving.tick():
            break
    for job_id in ids:
        job = driving.job(job_id)
        assert job.state.ended, job
        truth = cluster.truth.get(job_id, [])
        assert charged(job) <= truth.count("user"), (truth, driving.reasons(job_id))
        assert driving.reasons(job_id).count("evicted") <= truth.count("evicted")
    driving.close()
