"""A host is lost while a job runs on a cluster and its peers exit with code 1: the user is not charged."""

from __future__ import annotations

import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from support import lost_hosts
from support.fake_cluster import _set
from support.gke_driving import Driving, charged
from support.lost_hosts import LOOPS, tail_of
from tpukit.core.errors import Denied, Transient
from tpukit.jobs.reasons import Reason, State
from tpukit.jobs.records import JOBS
from tpukit.places.gke.doubt import NODE_SECONDS

VALUE_ERROR = (
    "Traceback (most recent call last):",
    '  File "/code/train.py", line 7, in <module>',
    "ValueError: no batch from host 1",
)


@pytest.fixture
def driving(tmp_path):
    driving = Driving(tmp_path)
    yield driving
    driving.close()


def begin(driving, **fields):
    """Start a job of four hosts, and return its id and the node of its second host."""
    job_id = driving.send(**{"rule": "pre", "max": {"restarts": 0}, **fields})
    driving.run(job_id)
    lost_hosts.add_nodes(driving.cluster, job_id)
    driving.tick()
    return job_id, lost_hosts.node_of(driving.cluster, job_id, 1)


def go_on(driving, job_id):
    """Let the cluster carry out what the driver and JobSet request, until the next attempt runs."""
    first = driving.job(job_id).attempts[0]
    for _ in range(int(NODE_SECONDS) + 60):
        cluster = driving.cluster
        jobset = cluster.jobset(job_id)
        if jobset:
            cluster.leave(job_id)
            if cluster.jobset(job_id) and not cluster.pods(job_id):
                cluster.admit(job_id)
            cluster.start(job_id)
        driving.tick()
        job = driving.job(job_id)
        if job.state.ended or (len(job.attempts) > 1 and job.state is State.RUNNING):
            return job
    raise AssertionError((first, driving.job(job_id)))


@pytest.mark.parametrize("restarts", [0, 3])
@pytest.mark.parametrize("loop", LOOPS)
def test_lost_host_whose_peers_raise_and_exit_with_1_is_not_charged(driving, loop, restarts):
    job_id, node = begin(driving, max={"restarts": restarts})
    lost_hosts.lose(driving.cluster, node)
    driving.tick(5)
    lost_hosts.peers_fail(driving.cluster, job_id, tail_of(loop))
    driving.tick(35)
    lost_hosts.notice(driving.cluster, node)
    driving.tick(15)
    lost_hosts.come_back(driving.cluster, node)
    job = go_on(driving, job_id)
    assert (job.state, charged(job)) == (State.RUNNING, 0)
    assert job.attempts[0].reason in (Reason.HOST_LOST, Reason.PEER_LOST)


@pytest.mark.parametrize("restarts", [0, 3])
def test_error_of_its_own_that_a_lost_host_caused_waits_for_the_node_and_is_not_charged(driving, restarts):
    job_id, node = begin(driving, max={"restarts": restarts})
    lost_hosts.lose(driving.cluster, node)
    lost_hosts.peers_fail(driving.cluster, job_id, VALUE_ERROR)
    driving.tick(40)
    assert driving.job(job_id).state is State.RUNNING
    assert driving.job(job_id).attempts[0].reason is None
    assert "waiting" in driving.job(job_id).message
    lost_hosts.notice(driving.cluster, node)
    driving.tick(15)
    lost_hosts.come_back(driving.cluster, node)
    job = go_on(driving, job_id)
    assert (job.state, charged(job)) == (State.RUNNING, 0)
    assert (job.attempts[0].reason, job.attempts[0].host) == (Reason.HOST_LOST, f"{job_id}-slice-0-1")


def test_node_that_went_and_came_back_while_nothing_drove_is_seen_by_the_next_driver(driving):
    job_id, node = begin(driving, max={"restarts": 3})
    cluster = driving.cluster
    lost_hosts.lose(cluster, node)
    lost_hosts.peers_fail(cluster, job_id, VALUE_ERROR)
    driving.clock.sleep(45.0)
    lost_hosts.notice(cluster, node)
    driving.clock.sleep(15.0)
    lost_hosts.come_back(cluster, node)
    cluster.leave(job_id)
    driving.clock.sleep(30.0)
    driving.new_driver()
    job = go_on(driving, job_id)
    assert (job.state, charged(job)) == (State.RUNNING, 0)


def test_node_that_went_and_came_back_after_nodes_were_last_listed_is_seen_before_the_charge(driving):
    job_id, node = begin(driving)
    lost_hosts.lose(driving.cluster, node)
    lost_hosts.peers_fail(driving.cluster, job_id, VALUE_ERROR)
    driving.tick()  # lists nodes; all are ready
    lost_hosts.notice(driving.cluster, node)
    driving.clock.sleep(1.0)
    lost_hosts.come_back(driving.cluster, node)
    driving.cluster.leave(job_id)
    job = go_on(driving, job_id)
    assert (job.state, charged(job)) == (State.RUNNING, 0)
    assert (job.attempts[0].reason, job.attempts[0].host) == (Reason.HOST_LOST, f"{job_id}-slice-0-1")


def test_nodes_that_are_not_listed_before_a_charge_delay_it(driving, monkeypatch):
    job_id, _ = begin(driving)
    listed, away = driving.cluster.list, [True]

    def without_nodes(kind, *args, **options):
        if kind == "Node" and away[0]:
            raise Transient("the server does not answer")
        return listed(kind, *args, **options)

    monkeypatch.setattr(driving.cluster, "list", without_nodes)
    lost_hosts.peers_fail(driving.cluster, job_id, VALUE_ERROR)
    driving.tick(5)
    assert driving.job(job_id).attempts[0].reason is None
    away[0] = False
    driving.clock.sleep(60.0)
    driving.tick(2)
    assert driving.job(job_id).attempts[0].reason is Reason.USER_ERROR


def test_node_that_is_deleted_is_a_lost_host(driving):
    job_id, node = begin(driving)
    lost_hosts.lose(driving.cluster, node)
    lost_hosts.peers_fail(driving.cluster, job_id, VALUE_ERROR)
    driving.tick(20)
    lost_hosts.remove(driving.cluster, node)
    job = go_on(driving, job_id)
    assert (job.state, charged(job)) == (State.RUNNING, 0)
    assert job.attempts[0].reason is Reason.HOST_LOST


def test_events_of_its_pods_tell_where_nodes_may_not_be_listed(driving, monkeypatch):
    job_id, node = begin(driving)
    listed = driving.cluster.list

    def without_nodes(kind, *args, **options):
        if kind == "Node":
            raise Denied("nodes is forbidden")
        return listed(kind, *args, **options)

    monkeypatch.setattr(driving.cluster, "list", without_nodes)
    lost_hosts.lose(driving.cluster, node)
    lost_hosts.peers_fail(driving.cluster, job_id, VALUE_ERROR)
    driving.tick(40)
    lost_hosts.notice(driving.cluster, node)
    driving.tick(15)
    lost_hosts.come_back(driving.cluster, node)
    job = go_on(driving, job_id)
    assert (job.state, charged(job)) == (State.RUNNING, 0)


def test_host_that_does_not_leave_while_its_node_stays_ready_is_charged_after_a_bounded_wait(driving):
    job_id, node = begin(driving)
    lost_hosts.lose(driving.cluster, node)
    lost_hosts.peers_fail(driving.cluster, job_id, VALUE_ERROR)
    driving.tick(int(NODE_SECONDS) - 5)
    assert driving.job(job_id).attempts[0].reason is None
    driving.tick(15)
    assert driving.job(job_id).attempts[0].reason is Reason.USER_ERROR
    lost_hosts.come_back(driving.cluster, node)
    driving.cluster.leave(job_id)
    assert driving.until(job_id, State.FAILED).reason is Reason.USER_ERROR


def test_wait_is_bounded_although_a_new_driver_comes_every_minute(driving):
    job_id, node = begin(driving)
    lost_hosts.lose(driving.cluster, node)
    lost_hosts.peers_fail(driving.cluster, job_id, VALUE_ERROR)
    for _ in range(3):
        driving.tick(60)
        driving.new_driver()
    driving.tick(2)
    assert driving.job(job_id).attempts[0].reason is Reason.USER_ERROR


def test_error_of_a_program_is_charged_at_once_where_all_hosts_have_ended(driving):
    job_id, _ = begin(driving)
    lost_hosts.peers_fail(driving.cluster, job_id, VALUE_ERROR)
    driving.tick(2)
    assert driving.job(job_id).attempts[0].reason is Reason.USER_ERROR


def test_node_that_was_away_long_before_the_failure_excuses_no_program(driving):
    job_id, node = begin(driving)
    lost_hosts.notice(driving.cluster, node)
    lost_hosts.come_back(driving.cluster, node)
    driving.clock.sleep(3600.0)
    lost_hosts.peers_fail(driving.cluster, job_id, VALUE_ERROR)
    driving.tick(2)
    assert driving.job(job_id).attempts[0].reason is Reason.USER_ERROR


def test_rule_pass_does_not_stop_what_jobset_restarted_after_a_lost_host(driving):
    job_id, node = begin(driving, rule="pass", max={"restarts": 3})
    lost_hosts.lose(driving.cluster, node)
    lost_hosts.peers_fail(driving.cluster, job_id, tail_of("psum"))
    driving.tick(45)
    lost_hosts.notice(driving.cluster, node)
    driving.tick(10)
    lost_hosts.come_back(driving.cluster, node)
    job = go_on(driving, job_id)
    assert (job.state, charged(job)) == (State.RUNNING, 0)


def test_of_many_hosts_those_whose_logs_were_not_read_are_not_charged_after_a_lost_peer(driving):
    job_id, node = begin(driving, tpu="v4-128", slices=1)
    lost_hosts.lose(driving.cluster, node)
    lost_hosts.peers_fail(driving.cluster, job_id, tail_of("allgather"))
    driving.tick(45)
    lost_hosts.notice(driving.cluster, node)
    driving.tick(10)
    lost_hosts.come_back(driving.cluster, node)
    job = go_on(driving, job_id)
    assert (job.state, charged(job)) == (State.RUNNING, 0)


@settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    seed=st.integers(0, 10_000),
    loop=st.sampled_from([*LOOPS, "its own error"]),
    restarts=st.sampled_from([0, 2]),
    order=st.permutations(["peers fail", "notice", "look"]),
    away=st.sampled_from(["back", "removed"]),
    new_driver=st.booleans(),
)
def test_lost_host_in_any_order_of_evidence_charges_nothing_and_ends_no_job(
    tmp_path_factory, seed, loop, restarts, order, away, new_driver
):
    dice = random.Random(seed)
    driving = Driving(tmp_path_factory.mktemp("driving"))
    try:
        job_id, node = begin(driving, max={"restarts": restarts})
        cluster = driving.cluster
        lost_hosts.lose(cluster, node)
        noticed = failed = False
        for what in order:
            if what == "look":
                driving.tick()
            elif what == "peers fail":
                failed = True
                driving.clock.sleep(dice.uniform(0, 50) if noticed else dice.uniform(0, 10))
                lost_hosts.peers_fail(cluster, job_id, VALUE_ERROR if loop == "its own error" else tail_of(loop))
            else:
                noticed = True
                driving.clock.sleep(dice.uniform(1, 45))
                driving.tick() if failed else None
                lost_hosts.notice(cluster, node)
        if new_driver:
            driving.new_driver()
        driving.clock.sleep(dice.uniform(0, 20))
        lost_hosts.come_back(cluster, node) if away == "back" else lost_hosts.remove(cluster, node)
        if away == "removed":
            lost_hosts.add_node(cluster, node)
        job = go_on(driving, job_id)
        assert (job.state, charged(job)) == (State.RUNNING, 0)
    finally:
        driving.close()


@pytest.mark.parametrize("restarts", [0, 3])
def test_lost_host_that_does_not_come_back_is_named_with_its_node_while_the_next_attempt_waits(driving, restarts):
    job_id, node = begin(driving, max={"restarts": restarts})
    lost_hosts.lose(driving.cluster, node)
    driving.tick(5)
    lost_hosts.peers_fail(driving.cluster, job_id, tail_of("allgather"))
    driving.tick(35)
    lost_hosts.notice(driving.cluster, node)
    for _ in range(60):
        driving.cluster.leave(job_id)
        driving.tick()
    job = driving.job(job_id)
    assert job.state is State.SCHEDULED
    assert f"{job_id}-slice-0-1 of the last attempt is terminating on node {node}, which is NotReady since" in (
        job.message
    )
    events = [one.text for one in driving.store.events(JOBS, job_id)]
    assert sum("is terminating on node" in text for text in events) == 1


def hold_back(driving, job_id, node):
    """Fail the peers as Kubernetes does: a Job with a failed host fails only after the last of the others ended."""
    for pod in driving.cluster.pods(job_id):
        if pod["spec"]["nodeName"] == node:
            pod["metadata"]["deletionTimestamp"] = driving.cluster.time()
            continue
        ended = {"exitCode": 1, "reason": "Error", "finishedAt": driving.cluster.time()}
        pod["status"] |= {"phase": "Failed"}
        pod["status"]["containerStatuses"] = [{"name": "host", "image": "i", "state": {"terminated": ended}}]


def test_lost_host_that_keeps_its_job_from_ending_is_named_with_its_node_while_the_record_says_running(driving):
    job_id, node = begin(driving)
    lost_hosts.lose(driving.cluster, node)
    hold_back(driving, job_id, node)
    driving.tick(15)
    job = driving.job(job_id)
    assert job.state is State.RUNNING
    assert job.message == f"{job_id}-slice-0-0 failed; waiting for {job_id}-slice-0-1 on node {node} to end"
    lost_hosts.notice(driving.cluster, node)
    driving.tick(15)
    job = driving.job(job_id)
    assert job.message.startswith(
        f"{job_id}-slice-0-0 failed; {job_id}-slice-0-1 is terminating on node {node}, which is NotReady since"
    )
    assert "about 10 minutes" in job.message
    lost_hosts.come_back(driving.cluster, node)
    driving.tick(15)
    assert "NotReady" not in driving.job(job_id).message


def test_node_that_is_not_ready_is_named_before_any_host_fails(driving):
    job_id, node = begin(driving)
    lost_hosts.lose(driving.cluster, node)
    lost_hosts.notice(driving.cluster, node)
    for pod in driving.cluster.pods(job_id):
        if pod["spec"]["nodeName"] == node:
            _set(pod, "Ready", "False", "", at=driving.cluster.time())
    driving.tick(15)
    job = driving.job(job_id)
    assert (job.state, job.reason) == (State.RUNNING, None)
    assert job.message.startswith(f"{job_id}-slice-0-1 is on node {node}, which is NotReady since")
