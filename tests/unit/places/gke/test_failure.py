"""Reasons for the end of attempts on a cluster: found from their pods, and consistent with JobSet's decision."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.gke_world import condition, jobset, pod, state_of, workload
from tpukit.jobs import rules
from tpukit.jobs.reasons import MEANINGS, Budget, Reason
from tpukit.jobs.records import Attempt
from tpukit.jobs.render.restarts import restarts
from tpukit.jobs.rules import Action
from tpukit.places.gke import failure
from tpukit.places.gke.attempts import Event
from tpukit.places.gke.hosts import HostRecord, with_tails

HOSTS = ("h-0", "h-1")


def records(*pods, node=None, tails=None):
    known = {name: HostRecord.of(one, node) for name, one in zip(HOSTS, pods, strict=True) if one}
    known = with_tails(known, tails or {})
    return {name: known.get(name) for name in HOSTS}


def failed_job(reason, message=""):
    return {"metadata": {"name": "j"}, "status": {"conditions": [condition("Failed", reason, message)]}}


def why(*pods, tails=None, jobs=(), node=None):
    return failure.why(state_of(of=jobset(condition("Failed")), jobs=jobs), records(*pods, node=node, tails=tails))


def left(phase="Failed", code=143, **more):
    return pod(phase=phase, code=code, **more)


@pytest.mark.parametrize(
    ("disrupted", "reason"),
    [
        ("TerminationByKubelet", Reason.PREEMPTED),
        ("PreemptionByScheduler", Reason.PREEMPTED),
        ("EvictionByEvictionAPI", Reason.MAINTENANCE),
        ("DeletionByTaintManager", Reason.HOST_LOST),
        ("DeletionByPodGC", Reason.HOST_LOST),
        ("SomethingNew", Reason.HOST_LOST),
    ],
)
def test_why_disrupted_host_is_the_one_however_its_peers_ended(disrupted, reason):
    said = why(left(ended=200.0), left(disrupted=disrupted, ended=201.0, message="bye", reason="Terminated"))
    assert (said.reason, said.host) == (reason, "h-1")
    assert "node-1" in said.detail


def test_why_kubelet_shutdown_on_a_node_in_maintenance_is_maintenance():
    node = {"metadata": {"name": "node-1", "labels": {"cloud.google.com/active-node-maintenance": "ONGOING"}}}
    said = why(left(), left(disrupted="TerminationByKubelet"), node=node)
    assert said.reason is Reason.MAINTENANCE


def test_why_users_error_names_the_first_host_and_its_last_words_while_peers_abort():
    said = why(left(code=134, ended=203.0), left(code=1, ended=200.0), tails={"h-1": ["Traceback", "ValueError: no"]})
    assert (said.reason, said.host) == (Reason.USER_ERROR, "h-1")
    assert "ValueError: no" in said.detail


def test_why_memory_limit_is_out_of_memory():
    over = pod(phase="Failed", code=137)
    over["status"]["containerStatuses"][0]["state"]["terminated"]["reason"] = "OOMKilled"
    assert why(left(code=134), over).reason is Reason.OUT_OF_MEMORY


@pytest.mark.parametrize("code", [126, 127, 128])
def test_why_command_that_cannot_start_is_a_bad_command(code):
    said = why(left(code=code), left(code=143), tails={"h-0": ["sh: trian: not found"]})
    assert (said.reason, said.host) == (Reason.BAD_COMMAND, "h-0")
    assert "not found" in said.detail


def test_why_deadline_of_the_job_is_a_timeout():
    assert why(left(), left(), jobs=(failed_job("DeadlineExceeded"),)).reason is Reason.TIMEOUT


@pytest.mark.parametrize(
    ("reason", "message", "expected"),
    [
        ("PodFailurePolicy", "… matching FailJob rule at index 0", Reason.PREEMPTED),
        ("PodFailurePolicy", "… matching FailJob rule at index 1", Reason.PREEMPTED),
        ("PodFailurePolicy", "… matching FailJob rule at index 2", Reason.PEER_LOST),
        ("BackoffLimitExceeded", "Job has reached the specified backoff limit", Reason.USER_ERROR),
    ],
)
def test_why_nobody_saw_the_pods_the_job_tells(reason, message, expected):
    assert why(None, None, jobs=(failed_job(reason, message),)).reason is expected


def test_why_killed_by_signal_9_is_charged_to_the_user_where_kubernetes_did_so():
    said = why(left(code=137), left(code=143), jobs=(failed_job("BackoffLimitExceeded"),))
    assert (said.reason, said.host) == (Reason.USER_ERROR, "h-0")


RULE_OF = {"preempted": Reason.PREEMPTED, "peerLost": Reason.PEER_LOST, "userError": Reason.USER_ERROR}
codes = st.one_of(st.none(), st.sampled_from([0, 1, 2, 126, 127, 134, 137, 139, 143]))
some_pods = st.one_of(
    st.none(),
    st.builds(
        lambda phase, code, disrupted, ended: pod(phase=phase, code=code, disrupted=disrupted, ended=200.0 + ended),
        st.sampled_from(["Pending", "Running", "Succeeded", "Failed"]),
        codes,
        st.sampled_from(["", "TerminationByKubelet", "EvictionByEvictionAPI", "DeletionByPodGC"]),
        st.integers(0, 9),
    ),
)


JOB_RULES = ["pass", "resume", "rerun", "reapply", "pre"]
events = st.sampled_from(
    [(job, one.name) for job in JOB_RULES for one in restarts(job) if one.action.startswith("Restart")]
)


def restarted(job_rule, rule, first, second, *, seen=True):
    event = Event.USER if rule == "userError" else Event.HARDWARE
    return failure.restarted(event, rule if seen else "", job_rule, records(first, second))


@given(events, some_pods, some_pods)
def test_restarted_agrees_with_jobset_about_who_pays_unless_hardware_was_lost(event, first, second):
    job_rule, rule = event
    said = restarted(job_rule, rule, first, second)
    if rule == "userError" and MEANINGS[said.reason].lost:
        # JobSet saw an exit code before Kubernetes reported the disruption of a host.
        assert any(one and one["status"]["conditions"] for one in (first, second))
        return
    theirs, ours = MEANINGS[RULE_OF[rule]], MEANINGS[said.reason]
    assert (ours.budget, ours.lost) == (theirs.budget, theirs.lost)


@given(events, some_pods, some_pods, st.booleans())
def test_restarted_the_driver_never_gives_up_what_jobset_goes_on_with(event, first, second, seen):
    job_rule, rule = event
    said = restarted(job_rule, rule, first, second, seen=seen)
    attempt = Attempt(0, stage=0, origin=0, reason=said.reason, host=said.host, detail=said.detail)
    assert rules.decide([attempt], job_rule, restarts=1, begun=True).action is not Action.NOTHING


@given(st.sampled_from(JOB_RULES), some_pods, some_pods)
def test_restarted_what_jobset_did_not_count_is_never_charged_to_the_user(job_rule, first, second):
    said = failure.restarted(Event.HARDWARE, "", job_rule, records(first, second))
    assert MEANINGS[said.reason].budget is Budget.HARDWARE


def test_restarting_rule_is_told_while_jobset_restarts_and_not_after():
    restarting = state_of(of=jobset(condition("RestartingJobSet", "FailurePolicy_preempted")))
    assert failure.restarting_rule(restarting) == "preempted"
    assert (
        failure.restarting_rule(state_of(of=jobset(condition("RestartingJobSet", "JobsReady", status="False")))) == ""
    )


def test_evicted_says_for_whom():
    mine = workload(condition("Evicted", "Preempted", "Preempted to accommodate a workload (UID: 7, JobUID: 8) due"))
    mine["status"]["conditions"].append(condition("Preempted", "InClusterQueue", "…"))
    theirs = workload()
    theirs["metadata"] |= {"uid": "7", "namespace": "vision", "ownerReferences": [{"name": "big"}]}
    theirs["spec"]["priorityClassRef"] = {"name": "high"}
    assert failure.evicted(mine, [theirs]).detail == "for vision/big (high)"
    assert failure.evicted(mine, []).detail == "for a job of higher priority"
    assert failure.evicted(None, []).reason is Reason.EVICTED
    assert failure.evicted(mine, [theirs], last=False).detail == ""


def waiting_for_image(reason, message):
    one = pod(phase="Pending")
    state = {"waiting": {"reason": reason, "message": message}}
    one["status"]["containerStatuses"] = [{"name": "host", "image": "train:1", "state": state}]
    return one


@pytest.mark.parametrize(
    ("reason", "message", "hopeless"),
    [
        ("ErrImagePull", 'failed to resolve "train:1": not found', True),
        ("ImagePullBackOff", "Back-off pulling image: 403 Forbidden: denied", True),
        ("InvalidImageName", "couldn't parse", True),
        ("ImagePullBackOff", "dial tcp: i/o timeout", False),
    ],
)
def test_image_trouble_tells_what_waiting_can_mend(reason, message, hopeless):
    trouble = failure.image_trouble([pod(), waiting_for_image(reason, message)])
    assert trouble.host == "train-1-slice-0-0"
    assert message in trouble.said
    assert trouble.hopeless is hopeless


@pytest.mark.parametrize(
    "message",
    [
        'failed to resolve reference "us-docker.pkg.dev/p/r/t:1": failed to authorize: failed to fetch oauth token: '
        "unexpected status from GET request to https://us-docker.pkg.dev/v2/token: 403 Forbidden",
        'denied: Permission "artifactregistry.repositories.downloadArtifacts" denied on resource "projects/p"',
    ],
)
def test_image_trouble_of_nodes_that_may_not_read_names_the_role_and_is_not_waited_for(message):
    trouble = failure.image_trouble([waiting_for_image("ErrImagePull", message)])
    assert trouble.hopeless
    assert "roles/artifactregistry.reader" in trouble.said


def test_image_trouble_none_where_containers_are_just_being_made():
    assert failure.image_trouble([pod(), waiting_for_image("ContainerCreating", "")]) is None
