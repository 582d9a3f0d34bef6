"""Workers as Kubernetes Jobs: one for each time a job is scheduled, and what follows when they fail."""

from __future__ import annotations

import copy
import itertools

import kubernetes_validate
import pytest

from tpukit.clock import ManualClock
from tpukit.errors import Conflict, Invalid, Transient
from tpukit.queue import claims
from tpukit.queue.client import Client
from tpukit.queue.cluster import ClusterStarter
from tpukit.queue.decide import Outcome
from tpukit.queue.driver import Driver
from tpukit.queue.manifest import Target, manifest
from tpukit.queue.records import CANCELLED, COMPLETED, FAILED, PENDING, SCHEDULED, TPU_JOBS, QueuedJob
from tpukit.reasons import Reason
from tpukit.store import Holder
from tpukit.store.sqlite import SqliteStore

TARGET = Target("research", "image:1", "firestore://p", "gs://b/results", "v5e-4:spot")


class Jobs:
    """The Jobs of an API server: names are taken once, answers can be lost, pods fail when told to."""

    def __init__(self):
        self.jobs: dict[str, dict] = {}
        self.made = itertools.count()
        self.lose_answers = 0

    def list(self, kind, namespace, *, labels):
        assert (kind, namespace, labels) == ("Job", "research", "tpukit.dev/queue=worker")
        return copy.deepcopy(list(self.jobs.values()))

    def create(self, document):
        kubernetes_validate.validate(document, kubernetes_validate.latest_version(), strict=True)
        name = document["metadata"]["name"]
        if name in self.jobs:
            raise Conflict(f"jobs.batch {name!r} already exists")
        next(self.made)
        self.jobs[name] = copy.deepcopy(document)
        if self.lose_answers:
            self.lose_answers -= 1
            raise Transient("no answer")

    def delete(self, kind, name, namespace):
        self.jobs.pop(name, None)

    def end(self, kind, message=""):
        for job in self.jobs.values():
            job["status"] = {"conditions": [{"type": kind, "status": "True", "message": message}]}


class World:
    def __init__(self, folder):
        self.clock = ManualClock()
        self.store = SqliteStore(folder / "store.db", now=self.clock.now)
        self.client, self.jobs = Client(self.store), Jobs()
        self.driver = Driver(self.store, self.clock, Holder("d"), starter=ClusterStarter(self.jobs, TARGET))

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
    assert world.status(key) == "running"  # its worker may live: the lease decides
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
    [("v5e-3", "v5e-3"), ("v4-32", "hosts"), ("v5e-4:cheap", "no way to get a slice"), ("v2-8", "GKE has no")],
)
def test_job_that_asks_for_what_cannot_be_had_fails_and_says_so(world, tpu, said):
    key = world.client.submit("result = 1", metadata={"tpu": tpu})
    world.driver.round()
    job = world.client.get(key)
    assert (job.status, job.reason) == (FAILED, "cannot start")
    assert said in job.error


def test_manifest_asks_for_the_chips_of_the_slice_and_no_privileges():
    made = manifest("a/b", QueuedJob(code="x", metadata={"tpu": "v5e-8"}, schedules=1), TARGET)
    pod = made["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert container["resources"]["limits"]["google.com/tpu"] == "8"
    assert pod["nodeSelector"]["cloud.google.com/gke-tpu-topology"] == "2x4"
    assert pod["automountServiceAccountToken"] is False
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    with pytest.raises(Invalid, match="hosts"):
        manifest("a", QueuedJob(code="x", metadata={"tpu": "v5e-16"}), TARGET)
