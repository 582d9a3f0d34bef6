"""JobSets of other senders: shown, adopted, stopped and sent again."""

from __future__ import annotations

import pytest

from support.fake_cluster import FakeCluster, Killed
from support.gke_driving import place_on
from tpukit.core.clock import ManualClock
from tpukit.core.errors import Conflict, NotYet, TpukitError
from tpukit.jobs.reasons import State

FAULTS = ("refused", "lost", "killed", "killed after")


def theirs(cluster: FakeCluster, name: str = "theirs") -> None:
    containers = [{"name": "main", "resources": {"limits": {"google.com/tpu": 4}}}]
    selector = {"cloud.google.com/gke-tpu-accelerator": "tpu-v4-podslice", "cloud.google.com/gke-tpu-topology": "2x2x2"}
    template = {"spec": {"template": {"spec": {"containers": containers, "nodeSelector": selector}}, "parallelism": 2}}
    cluster.create(
        {
            "apiVersion": "jobset.x-k8s.io/v1alpha2",
            "kind": "JobSet",
            "metadata": {"name": name, "namespace": "research", "labels": {"kueue.x-k8s.io/queue-name": "research"}},
            "spec": {"replicatedJobs": [{"name": "workers", "replicas": 2, "template": template}]},
        }
    )


@pytest.fixture
def world(tmp_path):
    cluster = FakeCluster(ManualClock())
    theirs(cluster)
    place = place_on(cluster, tmp_path)
    yield cluster, place
    place.close()


def only(place):
    (one,) = place.unmanaged(["research"])
    return one


def test_unmanaged_jobset_is_shown_with_its_shape_state_and_hosts(world):
    cluster, place = world
    one = only(place)
    assert (one.id, one.tpu, one.slices, one.adopted) == ("research/theirs", "tpu-v4-podslice 2x2x2", 2, False)
    assert one.state is State.SCHEDULED
    cluster.admit("theirs")
    cluster.start("theirs")
    assert only(place).state is State.RUNNING
    assert [host.state for host in place.unmanaged_hosts(one)] == ["running"] * 4


def test_unmanaged_jobset_is_touched_only_once_adopted(world):
    _, place = world
    with pytest.raises(Conflict, match="was sent by others"):
        place.stop_unmanaged(only(place))
    with pytest.raises(Conflict, match="was sent by others"):
        place.rerun_unmanaged(only(place))
    place.adopt(only(place), "ada")
    assert only(place).owner == "ada"
    place.stop_unmanaged(only(place))
    assert only(place).message == "is being removed"


def test_rerun_of_one_that_runs_is_refused(world):
    cluster, place = world
    place.adopt(only(place), "ada")
    cluster.admit("theirs")
    with pytest.raises(Conflict, match="`tpu job stop research/theirs` first"):
        place.rerun_unmanaged(only(place))


def ended(cluster, place):
    place.adopt(only(place), "ada")
    cluster.admit("theirs")
    cluster.start("theirs")
    cluster.complete("theirs")
    return cluster.jobset("theirs")["metadata"]["uid"]


def test_rerun_makes_the_new_one_only_after_the_old_one_is_gone(world):
    cluster, place = world
    old = ended(cluster, place)
    with pytest.raises(NotYet, match="still stopping"):
        place.rerun_unmanaged(only(place))
    assert cluster.jobset("theirs")["metadata"]["uid"] == old
    cluster.leave("theirs")
    (half,) = place.unmanaged(["research"])
    assert (half.state, half.adopted, half.slices) == (State.PENDING, True, 2)
    place.rerun_unmanaged(half)
    new = cluster.jobset("theirs")
    assert new["metadata"]["uid"] != old
    assert new["metadata"]["labels"] == {"kueue.x-k8s.io/queue-name": "research"}
    assert not cluster.objects["ConfigMap"]


@pytest.mark.parametrize("fault", FAULTS)
def test_rerun_cut_off_at_any_call_loses_nothing_and_goes_on(tmp_path, fault):
    for number in range(12):
        cluster = FakeCluster(ManualClock())
        theirs(cluster)
        place = place_on(cluster, tmp_path / f"{number}")
        old = ended(cluster, place)
        job = only(place)
        cluster.faults[cluster.calls + number] = fault
        made = set()
        cluster.meanwhile = lambda cluster=cluster: leave(cluster)
        for _ in range(5):
            try:
                place.rerun_unmanaged(job)
            except (Killed, TpukitError):
                assert cluster.jobset("theirs") or cluster.objects.get("ConfigMap"), "what to make is lost"
                job = only(place)
                if job.state is State.SCHEDULED:  # it was created, and only the answer was lost
                    break
                continue
            break
        made.add(cluster.jobset("theirs")["metadata"]["uid"])
        assert old not in made
        assert cluster.log.count("create JobSet") <= 3
        place.close()


def leave(cluster):
    jobset = cluster.jobset("theirs")
    if jobset and "deletionTimestamp" in jobset["metadata"]:
        cluster.leave("theirs")


def test_rerun_goes_on_from_what_was_recorded_and_forgets_it_when_done(world):
    cluster, place = world
    ended(cluster, place)
    cluster.meanwhile = lambda: leave(cluster)
    cluster.faults[cluster.calls + 6] = "killed after"
    job = only(place)
    for _ in range(3):
        try:
            place.rerun_unmanaged(job)
        except Killed:
            continue
        break
    assert not cluster.objects["ConfigMap"]
    assert cluster.log.count("create JobSet") == 2


def test_logs_of_pods_that_are_there(world):
    cluster, place = world
    cluster.admit("theirs")
    cluster.start("theirs")
    for one in cluster.pods("theirs"):
        cluster.say(one, "hello")
    assert [line.text for line in place.unmanaged_logs(only(place))] == ["hello"] * 4
