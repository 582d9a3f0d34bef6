"""Workers as Kubernetes Jobs: one for each time a job is scheduled, and what follows when they fail."""

from __future__ import annotations

import copy
import dataclasses
import datetime
import itertools

import kubernetes_validate
import pytest

from tpukit.code_queue import claims
from tpukit.code_queue.client import Client
from tpukit.code_queue.decide import Outcome
from tpukit.code_queue.driver import Driver
from tpukit.code_queue.kube_workers import ClusterStarter
from tpukit.code_queue.manifest import Target, manifest
from tpukit.code_queue.records import CANCELLED, COMPLETED, FAILED, PENDING, SCHEDULED, TPU_JOBS, QueuedJob
from tpukit.core.clock import ManualClock
from tpukit.core.errors import Conflict, Denied, Invalid, NotFound, Transient
from tpukit.jobs.reasons import Reason
from tpukit.kernel.store import Holder
from tpukit.kernel.store.sqlite import SqliteStore

TARGET = Target("research", "image:1", "firestore://p", "gs://b/results", "v5e-4:spot")
PATIENCE = 1800.0


class Jobs:
    """The Jobs and JobSets of an API server, with unique names, lost answers and pods that fail on request."""

    def __init__(self):
        self.jobs: dict[str, dict] = {}
        self.pods: list[dict] = []
        self.workloads: list[dict] | Exception = []
        self.made = itertools.count()
        self.lose_answers = 0

    def list(self, kind, namespace, *, labels=""):
        assert namespace == "research"
        assert labels == ("" if kind == "Workload" else "tpukit.dev/queue=worker")
        if kind == "Workload" and isinstance(self.workloads, Exception):
            raise self.workloads
        named = {"Pod": self.pods, "Workload": self.workloads}
        return copy.deepcopy(named.get(kind) or [one for one in self.jobs.values() if one["kind"] == kind])

    def create(self, document):
        spec = document["spec"]
        job = document
        if document["kind"] == "JobSet":  # a JobSet's Job comes from its template
            template = spec["replicatedJobs"][0]["template"]
            job = {
                "apiVersion": "batch/v1",
                "kind": "Job",
                **template,
                "metadata": {"name": "a", **template["metadata"]},
            }
        kubernetes_validate.validate(job, kubernetes_validate.latest_version(), strict=True)
        name = document["metadata"]["name"]
        if name in self.jobs:
            raise Conflict(f"jobs.batch {name!r} already exists")
        next(self.made)
        self.jobs[name] = copy.deepcopy(document)
        self.jobs[name]["metadata"]["uid"] = f"uid-{name}"
        if self.lose_answers:
            self.lose_answers -= 1
            raise Transient("no answer")

    def get(self, kind, name, namespace):
        if name not in self.jobs or self.jobs[name]["kind"] != kind:
            raise NotFound(f"there is no {kind} {name}")
        return copy.deepcopy(self.jobs[name])

    def delete(self, kind, name, namespace, *, uid):
        if name in self.jobs and self.jobs[name]["kind"] == kind:
            assert self.jobs[name]["metadata"]["uid"] == uid
            del self.jobs[name]

    def end(self, kind, message=""):
        for job in self.jobs.values():
            job["status"] = {"conditions": [{"type": kind, "status": "True", "message": message}]}

    def add_pod(self, at, label="batch.kubernetes.io/job-name", **status):
        (name,) = self.jobs
        metadata = {"name": f"{name}-x", "labels": {label: name}, "creationTimestamp": stamp(at)}
        self.pods = [{"metadata": metadata, "status": status}]

    def add_workload(self, at, message):
        (name,) = self.jobs
        reserved = {"type": "QuotaReserved", "status": "False", "message": message, "lastTransitionTime": stamp(at)}
        owner = [{"kind": "Job", "name": name}]
        self.workloads = [{"metadata": {"name": "w", "ownerReferences": owner}, "status": {"conditions": [reserved]}}]


def stamp(at):
    return datetime.datetime.fromtimestamp(at, datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def waiting(reason, message=""):
    return {"containerStatuses": [{"image": "image:1", "state": {"waiting": {"reason": reason, "message": message}}}]}


class World:
    def __init__(self, folder):
        self.clock = ManualClock()
        self.store = SqliteStore(folder / "store.db", now=self.clock.now)
        self.client, self.jobs = Client(self.store), Jobs()
        self.driver = Driver(self.store, self.clock, Holder("d"), starter=self.starter(TARGET))

    def starter(self, target):
        return ClusterStarter(self.jobs, target, patience=PATIENCE, now=self.clock.now)

    def status(self, key):
        return self.client.get(key).status

    def claim(self, key):
        return claims.take_one(self.store, Holder("pod"), self.store.get(TPU_JOBS, key))


@pytest.fixture
def world(tmp_path):
    made = World(tmp_path)
    yield made
    made.driver.close()
    made.store.close()


def test_pending_job_becomes_one_kubernetes_job_however_often_it_is_observed(world):
    key = world.client.submit("result = 1")
    for _ in range(3):
        world.driver.round()
    (made,) = world.jobs.jobs.values()
    assert world.status(key) == SCHEDULED
    assert made["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "research"
    assert made["spec"]["ttlSecondsAfterFinished"] == 3600
    assert made["spec"]["template"]["spec"]["containers"][0]["command"][:4] == ["tpu", "queue", "work", key]
    claims.finish(world.store, world.claim(key), Outcome(Reason.DONE, "1"))
    world.driver.round()
    assert world.status(key) == COMPLETED


def test_creation_whose_answer_was_lost_is_made_once(world):
    world.client.submit("result = 1")
    world.jobs.lose_answers = 1
    for _ in range(3):
        world.driver.round()
        world.clock.sleep(5.0)
    assert next(world.jobs.made) == 1


def test_pod_that_fails_is_removed_and_another_one_started_after_a_while(world):
    key = world.client.submit("result = 1")
    world.driver.round()
    world.jobs.end("Failed", "node was preempted")
    world.driver.round()
    job = world.client.get(key)
    assert (job.status, job.faults, job.error) == (PENDING, 1, "its pod failed: node was preempted")
    assert world.jobs.jobs == {}
    world.clock.sleep(60.0)
    world.driver.round()
    assert world.status(key) == SCHEDULED
    assert next(world.jobs.made) == 2


def test_pod_that_dies_while_it_runs_the_code_is_replaced_when_its_lease_is_over(world):
    key = world.client.submit("result = 1")
    world.driver.round()
    world.claim(key)
    world.jobs.end("Failed", "evicted")
    world.driver.round()
    assert world.status(key) == "running"  # the worker may be alive: the lease decides
    world.clock.sleep(claims.SECONDS + 1)
    world.driver.round()
    assert world.status(key) == PENDING


def test_cancel_of_a_scheduled_job_removes_its_pod_first(world):
    key = world.client.submit("result = 1")
    world.driver.round()
    world.client.cancel(key)
    world.driver.round()
    assert world.jobs.jobs == {}
    world.driver.round()
    assert world.status(key) == CANCELLED


@pytest.mark.parametrize(
    ("tpu", "said"),
    [("v5e-3", "v5e-3"), ("v4-32", "hosts"), ("v5e-4:cheap", "is not a capacity"), ("v2-8", "GKE has no")],
)
def test_job_that_asks_for_what_cannot_be_had_fails_and_says_so(world, tpu, said):
    asked = QueuedJob(code="result = 1", metadata={"tpu": tpu}, created_at=1.0)  # as written by an application
    world.store.create(TPU_JOBS, "asked", asked)
    world.driver.round()
    job = world.client.get("asked")
    assert (job.status, job.reason) == (FAILED, "cannot start")
    assert said in job.error


def test_manifest_of_a_job_that_names_no_slice_asks_for_a_spot_one_where_the_queue_has_those():
    pod = manifest("a", QueuedJob(code="x"), TARGET)["spec"]["template"]["spec"]
    assert pod["nodeSelector"]["cloud.google.com/gke-spot"] == "true"


def test_manifest_asks_for_the_chips_of_the_slice_and_no_privileges():
    made = manifest("a/b", QueuedJob(code="x", metadata={"tpu": "v5e-8"}, schedules=1), TARGET)
    pod = made["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert container["resources"]["limits"]["google.com/tpu"] == "8"
    assert pod["nodeSelector"]["cloud.google.com/gke-tpu-topology"] == "2x4"
    assert set(container["resources"]["limits"]) == {"google.com/tpu", "cpu", "memory"}  # what the queues grant
    assert pod["automountServiceAccountToken"] is False
    rights = container["securityContext"]
    assert (rights["readOnlyRootFilesystem"], rights["allowPrivilegeEscalation"]) == (True, False)
    assert not rights.get("privileged") and not rights["capabilities"].get("add")
    with pytest.raises(Invalid, match="16 has 4 hosts, which use the network"):
        manifest("a", QueuedJob(code="x", metadata={"tpu": "v5e-16"}), TARGET)


def test_slice_of_several_hosts_is_one_jobset_that_ends_like_a_job(world):
    world.driver.close()
    starter = world.starter(dataclasses.replace(TARGET, network=True))
    driver = Driver(world.store, world.clock, Holder("e"), starter=starter)
    key = world.client.submit("result = 1", metadata={"tpu": "v5e-16"})
    for _ in range(3):
        driver.round()
    (made,) = world.jobs.jobs.values()
    slices = made["spec"]["replicatedJobs"][0]["template"]["spec"]
    assert (made["kind"], made["metadata"]["labels"]["kueue.x-k8s.io/queue-name"]) == ("JobSet", "research")
    assert (made["spec"]["ttlSecondsAfterFinished"], made["spec"]["failurePolicy"]) == (3600, {"maxRestarts": 0})
    assert (slices["completions"], slices["parallelism"], slices["completionMode"]) == (4, 4, "Indexed")
    assert slices["template"]["metadata"]["labels"]["tpukit.dev/queue-hosts"] == "many"
    assert slices["template"]["spec"]["containers"][0]["command"][-1] == "--network"
    world.jobs.end("Failed", "a host was preempted")
    driver.round()
    assert (world.status(key), world.jobs.jobs) == (PENDING, {})
    world.clock.sleep(60.0)
    driver.round()
    world.client.cancel(key)
    driver.round()
    assert world.jobs.jobs == {}
    driver.close()


UNSCHEDULABLE = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/9 nodes fit"}


@pytest.mark.parametrize(
    ("status", "after", "reason", "said"),
    [
        (waiting("ImagePullBackOff", "image:1: not found"), 60, "bad image", "image:1: not found"),
        (waiting("InvalidImageName"), 60, "bad image", "InvalidImageName"),
        (waiting("ErrImagePull", "registry is away"), 400, "bad image", "registry is away"),
        (waiting("ErrImagePull", "registry is away"), 200, "", ""),
        (waiting("CreateContainerConfigError", "secret x not there"), 400, "cannot start", "secret x not there"),
        (waiting("CreateContainerConfigError", "secret x not there"), 200, "", ""),
        (waiting("ContainerCreating"), 100_000, "", ""),
    ],
)
def test_pod_that_can_never_start_ends_its_job_with_the_reason_and_one_that_may_is_waited_for(
    world, status, after, reason, said
):
    key = world.client.submit("result = 1")
    world.driver.round()
    world.jobs.add_pod(world.clock.now(), **status)
    world.clock.sleep(after)
    world.driver.round()
    job = world.client.get(key)
    assert (job.status, job.reason) == ((FAILED, reason) if reason else (SCHEDULED, ""))
    assert said in (job.error or "")
    assert bool(world.jobs.jobs) == (not reason)  # no Job is left that pulls the image endlessly


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        ("insufficient quota for google.com/tpu in flavor a, request (8) > maximum capacity (4)", "no quota"),
        (
            "couldn't assign flavors to pod set slice: resource ephemeral-storage unavailable in ClusterQueue",
            "no quota",
        ),
        ("flavor cpu doesn't match node affinity, untolerated taint {cloud.google.com/gke-spot true}", "no quota"),
        ("flavor cpu doesn't match node affinity, insufficient unused quota for google.com/tpu in flavor a", ""),
        ("insufficient unused quota for google.com/tpu in flavor a, 4 more needed", ""),
    ],
)
def test_job_that_its_queue_can_never_hold_ends_and_one_whose_turn_comes_later_waits(world, message, reason):
    key = world.client.submit("result = 1")
    world.driver.round()
    world.jobs.add_workload(world.clock.now(), message)
    world.clock.sleep(100_000.0)
    world.driver.round()
    job = world.client.get(key)
    assert (job.status, job.reason) == ((FAILED, reason) if reason else (SCHEDULED, ""))
    assert not reason or message in job.error


def test_pod_without_a_node_is_tried_again_as_after_a_lost_host_and_given_up_at_last(world):
    key = world.client.submit("result = 1", max_faults=2)
    for faults in (1, 2):
        world.driver.round()
        now = world.clock.now()
        world.jobs.add_pod(now, conditions=[{**UNSCHEDULABLE, "lastTransitionTime": stamp(now)}])
        world.clock.sleep(PATIENCE - 10.0)
        world.driver.round()
        assert world.status(key) == SCHEDULED
        world.clock.sleep(20.0)
        world.driver.round()
        job = world.client.get(key)
        assert (job.faults, job.reason, world.jobs.jobs) == (faults, "no capacity", {})
        world.clock.sleep(300.0)
    assert (job.status, job.dead_letter) == (FAILED, True)
    assert "0/9 nodes fit" in job.error


def test_workloads_that_may_not_be_seen_mean_waiting(world):
    key = world.client.submit("result = 1")
    world.driver.round()
    world.jobs.workloads = Denied("not yours")
    world.clock.sleep(1000.0)
    world.driver.round()
    assert world.status(key) == SCHEDULED


def test_object_of_another_owner_that_has_the_name_of_a_worker_stays(world):
    key = world.client.submit("result = 1")
    world.driver.round()
    (name,) = world.jobs.jobs
    world.jobs.jobs[name]["metadata"]["labels"] = {}
    world.starter(TARGET).stop(key, world.client.get(key))
    assert list(world.jobs.jobs) == [name]
