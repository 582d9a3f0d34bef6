"""The reason why a job on a cluster does not run yet, in one sentence."""

import pytest

from support.gke_world import condition, jobset, planned, pod, state_of, workload
from tpukit.jobs.reasons import Reason
from tpukit.jobs.render.node_labels import host_labels
from tpukit.places.gke.jobsets import JobSetState
from tpukit.places.gke.pending import Surroundings
from tpukit.places.gke.pending import why as waiting
from tpukit.teams.waiting import Queues

PLAN = planned()
LABELS = host_labels(PLAN.slice, "spot")


def why(*arguments):
    return waiting(*arguments).detail


def node(*, ready=True, **labels):
    status = {"conditions": [condition("Ready", status="True" if ready else "False")]}
    return {"metadata": {"name": "n", "labels": {**LABELS, **labels}}, "status": status}


def unplaced(name="train-1-slice-0-0-x", message="0/3 nodes are available"):
    one = pod(name, phase="Pending")
    one["status"]["conditions"].append(condition("PodScheduled", "Unschedulable", message, status="False"))
    return one


def event(reason, message="", about="train-1-slice-0-0-x", uid=""):
    return {"reason": reason, "message": message, "involvedObject": {"name": about, "uid": uid}}


def test_why_kueue_has_not_seen_it():
    held = jobset()
    held["spec"]["suspend"] = True
    assert why(PLAN, JobSetState(held), Surroundings()) == "Kueue has not looked at it yet"


def test_why_in_the_queue_without_a_right_to_see_it():
    waits = state_of(queued=workload(condition("QuotaReserved", status="False")))
    assert "queue of its team" in why(PLAN, waits, Surroundings())


def test_why_no_such_nodes_names_their_labels():
    said = why(PLAN, state_of(unplaced()), Surroundings(nodes=[]))
    assert said.startswith("the cluster has no nodes of v4-16 (2x2x2)")
    assert "gke-tpu-topology=2x2x2" in said


def test_why_too_few_of_them_are_ready():
    said = why(PLAN, state_of(unplaced()), Surroundings(nodes=[node(), node(ready=False)]))
    assert said == "4 hosts of v4-16 (2x2x2) needed; the cluster has 1 ready"


def test_why_pool_is_being_made():
    events = [event("TriggeredScaleUp")]
    assert why(PLAN, state_of(unplaced()), Surroundings(nodes=[], events=events)) == (
        "a pool of v4-16 (2x2x2) is being created for the job"
    )


def test_why_pool_that_cannot_be_made_says_what_google_said():
    events = [event("TriggeredScaleUp"), event("FailedScaleUp", "GCE_STOCKOUT in us-central2-b")]
    assert "GCE_STOCKOUT" in why(PLAN, state_of(unplaced()), Surroundings(nodes=[], events=events))


def test_why_nodes_are_taken_passes_on_the_schedulers_words():
    said = why(PLAN, state_of(unplaced()), Surroundings(nodes=[node()] * 4))
    assert said == "1 of 4 hosts have no node of v4-16 (2x2x2): 0/3 nodes are available"


def test_why_hosts_that_nobody_may_make():
    job = {"metadata": {"name": "j", "uid": "job-1"}}
    events = [
        event("FailedCreate", "follower pod node selector for topology domain not found", uid="job-1"),
        event("FailedCreate", 'serviceaccount "cloud-tpu-sa" not found', uid="job-1"),
    ]
    said = why(PLAN, state_of(jobs=(job,)), Surroundings(events=events))
    assert said == 'its hosts cannot be created: serviceaccount "cloud-tpu-sa" not found'
    assert why(PLAN, state_of(jobs=(job,)), Surroundings(events=events[:1])) == "0 of 4 hosts have started"


def test_why_container_that_lacks_something():
    one = pod(phase="Pending")
    state = {"waiting": {"reason": "CreateContainerConfigError", "message": 'configmap "c" not found'}}
    one["status"]["containerStatuses"] = [{"name": "host", "image": "i", "state": state}]
    said = why(PLAN, state_of(one, *(pod(f"h-{n}-x") for n in range(3))), Surroundings())
    assert said == 'train-1-slice-0-0-abcde cannot start: configmap "c" not found'


def creating(reason="ContainerCreating"):
    one = pod(phase="Pending")
    one["status"]["containerStatuses"] = [{"name": "host", "image": "i", "state": {"waiting": {"reason": reason}}}]
    return one


@pytest.mark.parametrize("where", ["containerStatuses", "initContainerStatuses"])
def test_why_image_that_is_not_pulled_is_said_with_the_kubelets_reason(where):
    one = pod(phase="Pending")
    state = {"waiting": {"reason": "ImagePullBackOff", "message": "Back-off pulling image"}}
    one["status"][where] = [{"name": "host", "image": "i", "state": state}]
    said = why(PLAN, state_of(one, *(pod(f"h-{n}-x") for n in range(3))), Surroundings())
    assert said == "the image cannot be pulled: i: ImagePullBackOff: Back-off pulling image"


def not_mounted(message, at="2026-01-01T00:00:00Z"):
    uid = pod()["metadata"]["uid"]
    return {**event("FailedMount", message, uid=uid), "lastTimestamp": at}


def test_why_bucket_that_may_not_be_read_names_it_and_the_role_that_is_missing():
    refused = (
        'MountVolume.SetUp failed for volume "mount-0" : rpc error: code = PermissionDenied desc = failed to get GCS '
        'bucket "my-runs": googleapi: Error 403: Caller does not have storage.objects.list access'
    )
    events = [not_mounted(refused, "2026-01-01T00:00:09Z"), not_mounted("another thing, before")]
    said = why(PLAN, state_of(creating()), Surroundings(events=events))
    assert said.startswith(f"train-1-slice-0-0-abcde cannot start: {refused}; ")
    assert "roles/storage.objectUser" in said


def test_why_volume_that_is_missing_is_said_in_the_kubelets_words():
    missing = 'MountVolume.SetUp failed for volume "code" : configmap "code-1" not found'
    said = why(PLAN, state_of(creating("PodInitializing")), Surroundings(events=[not_mounted(missing)]))
    assert said == f"train-1-slice-0-0-abcde cannot start: {missing}"


def test_why_mount_that_failed_before_the_host_started_is_no_reason():
    events = [not_mounted("it was not there")]
    said = why(PLAN, state_of(pod()), Surroundings(events=events))
    assert "not there" not in said


def test_why_stock_and_quota_are_reasons_of_their_own():
    for message, reason in (("GCE out of resources", Reason.NO_CAPACITY), ("GCE quota exceeded", Reason.NO_QUOTA)):
        events = [event("FailedScaleUp", f"Node scale up in zones us-central2-b failed: {message}")]
        assert waiting(PLAN, state_of(unplaced()), Surroundings(nodes=[], events=events)).reason is reason
    assert waiting(PLAN, state_of(unplaced()), Surroundings(nodes=[])).reason is None


def test_why_queue_that_can_never_hold_it_is_no_quota():
    flavors = [{"name": "v4", "resources": [{"name": "google.com/tpu", "nominalQuota": "4"}]}]
    groups = [{"coveredResources": ["google.com/tpu"], "flavors": flavors}]
    cluster_queue = {"metadata": {"name": "common"}, "spec": {"resourceGroups": groups}, "status": {}}
    local = {"metadata": {"name": "research", "namespace": "research"}, "spec": {"clusterQueue": "common"}}
    flavor = {"metadata": {"name": "v4"}, "spec": {"nodeLabels": {}}}
    queued = workload(condition("QuotaReserved", status="False"))
    requests = {"limits": {"google.com/tpu": "4"}}
    template = {"spec": {"containers": [{"name": "host", "resources": requests}]}}
    queued["spec"]["podSets"] = [{"name": "slice", "count": 4, "template": template}]
    queued["metadata"]["creationTimestamp"] = "2026-01-01T00:00:00Z"
    said = waiting(PLAN, state_of(queued=queued), Surroundings(Queues([queued], [local], [cluster_queue], [flavor])))
    assert said.reason is Reason.NO_QUOTA
    assert "can never run" in said.detail


def test_why_host_of_the_last_attempt_that_cannot_leave_a_silent_node_is_named():
    last = pod("train-1-slice-0-1-x", restart=0, deletionTimestamp="2026-01-01T00:00:00Z")
    silent = {**node(ready=False), "metadata": {"name": "node-1", "labels": LABELS}}
    restarted = state_of(last, unplaced("train-1-slice-1-0-y"), of=jobset(restarts=1))
    said = why(PLAN, restarted, Surroundings(nodes=[silent]))
    assert said.startswith(
        "train-1-slice-0-1 of the last attempt is terminating on node node-1, which is NotReady since 00:01:40 UTC; "
    )
    assert "about 10 minutes" in said  # the remedy
    ready = {**node(), "metadata": {"name": "node-1", "labels": LABELS}}
    assert "terminating" not in why(PLAN, restarted, Surroundings(nodes=[ready]))
    assert "terminating" not in why(PLAN, restarted, Surroundings(nodes=None))


def test_why_hosts_of_the_last_attempt_that_are_leaving_are_counted_where_nodes_may_not_be_seen():
    leaving = [pod(f"train-1-slice-0-{n}-x", restart=0, deletionTimestamp="2026-01-01T00:00:00Z") for n in (0, 1)]
    said = why(PLAN, state_of(*leaving, of=jobset(restarts=1)), Surroundings(nodes=None))
    assert said == "2 hosts of the last attempt are leaving; the first is train-1-slice-0-0 on node node-1"
