"""Jobs of `tpu cluster verify`: real place, use cases and store on a cluster in memory."""

from __future__ import annotations

import pytest

from support.gke_driving import SETTINGS
from support.verify_world import GOOD, V4_16, World
from tpukit.cluster.verify import checks, running
from tpukit.cluster.verify.targets import Job
from tpukit.core.errors import Denied, Invalid, NotFound


@pytest.fixture
def world(tmp_path):
    world = World(tmp_path)
    yield world
    world.close()


def states(results):
    return {(one.target, one.check): one.state for one in results}


def texts(results, check):
    return {one.target: one.text for one in results if one.check == check}


def test_each_pool_is_measured_by_a_job_of_its_own_and_two_together_by_another(world):
    results = world.verify()
    assert {one.target for one in results} == {"pool-0", "pool-1", "v4-16:spot × 2"}
    assert set(states(results).values()) == {"passed"}, [one for one in results if one.state != "passed"]
    assert len(world.jobs) == 3
    assert not world.cluster._kind("JobSet"), "the slices are free again"
    assert {one.check for one in results} == set(checks.NAMES)


def test_fault_of_one_pool_is_reported_for_the_pool_on_which_the_job_ran(world):
    slow = {**GOOD, "chips": 3}

    def measured(job, host):
        nodes = {pod["spec"]["nodeName"] for pod in world.cluster.pods(job)}
        return {"values": slow if "pool-0-1" in nodes and host == "0-1" else GOOD}

    world.values = measured
    results = [one for one in world.verify() if one.target.startswith("pool")]
    (failed,) = checks.failed(results)
    assert (failed.target, failed.check, failed.text) == ("pool-0", "chips", "0-1")


def test_one_pool_alone_is_reported_and_two_slices_are_not_joined(world):
    results = world.verify(pool="pool-1")
    assert {one.target for one in results} == {"pool-1"}
    assert len(world.jobs) == 2, "a job cannot name its pool, so its equals are held too"


def test_job_that_waits_in_its_queue_is_not_seen_and_removed(world):
    world.admits = False
    results = world.verify(seconds=5)
    assert set(states(results).values()) == {"not seen"}
    assert "no report in time" in texts(results, "chips")["pool-0"]
    assert set(checks.blind(results)) == {"pool-0", "pool-1", "v4-16:spot × 2"}
    assert not world.cluster._kind("JobSet")


def test_host_that_prints_nothing_leaves_its_pool_without_verdicts(world):
    world.values = lambda job, host: None if host == "0-1" else {"values": GOOD}
    results = world.verify(pool="pool-0", seconds=5)
    found = states(results)
    assert found["pool-0", "chips"] == found["pool-0", "bucket-write"] == "not seen"
    assert found["pool-0", "image"] == "passed", "its pod shows it"


def test_image_that_cannot_be_pulled_fails_that_check_with_the_words_of_the_node(world):
    world.image = "403 Forbidden"
    results = world.verify(pool="pool-0", seconds=5)
    (failed,) = checks.failed(results)
    assert failed.check == "image"
    assert "ErrImagePull: 403 Forbidden" in failed.text


def test_program_that_breaks_is_not_seen_with_the_end_of_the_job_as_reason(world):
    world.breaks = "userError"
    world.values = lambda job, host: None
    results = world.verify(pool="pool-0", seconds=30)
    assert states(results)["pool-0", "chips"] == "not seen"
    assert "the job ended: user error" in texts(results, "chips")["pool-0"]


def test_pool_without_all_of_its_hosts_gets_no_job(world):
    world.add_nodes("pool-9", hosts=1)
    results = world.verify()
    assert texts(results, "chips")["pool-9"] == "1 of 2 hosts is ready"
    assert states(results)["pool-9", "chips"] == "not seen"
    assert len(world.jobs) == 3


def test_job_that_is_refused_is_not_seen_with_the_refusal(world):
    del world.cluster._kind("LocalQueue")["research", "research"]
    results = world.verify()
    assert set(states(results).values()) == {"not seen"}
    assert "research has no queue" in texts(results, "chips")["pool-0"]
    assert not world.jobs


def test_jobs_that_cannot_be_sent_as_they_are_are_an_error_with_what_to_write(world):
    with pytest.raises(Invalid, match="no image is named") as error:
        world.verify(image="")
    assert "tpu image push" in str(error.value)
    assert not world.jobs


def test_interrupted_verification_stops_its_jobs(world):
    presses = iter([KeyboardInterrupt])

    def interrupt(job, host):
        for press in presses:
            raise press
        return {"values": GOOD}

    world.values = interrupt
    with pytest.raises(KeyboardInterrupt):
        world.verify()
    assert not world.cluster._kind("JobSet")


def test_unknown_pool_and_cluster_without_slices_are_errors(world, tmp_path):
    with pytest.raises(NotFound, match="there is no pool other") as error:
        world.verify(pool="other")
    assert "pool-0, pool-1" in error.value.hint
    empty = World(tmp_path, pools=0)
    with pytest.raises(NotFound, match="no TPU slices"):
        empty.verify()
    empty.close()


def test_access_is_that_of_the_team_or_the_default(world):
    assert running.access_of(world.cluster, "research") == "restricted"
    world.cluster._kind("Namespace")["", "research"]["metadata"]["labels"]["tpukit.dev/access"] = "tpu"
    assert running.access_of(world.cluster, "research") == "tpu"
    with pytest.raises(NotFound, match="no team other"):
        running.access_of(world.cluster, "other")

    class Closed:
        def get(self, kind, name):
            raise Denied("no")

    assert running.access_of(Closed(), "research") == "restricted"


@pytest.mark.parametrize("capacity", ["spot", "on-demand", "flex-start", "reservation:mine"])
def test_job_asks_for_the_slice_and_the_capacity_of_its_pool(capacity):
    target = checks.Target("pool-0", V4_16, 2, checks.Network(None, None))
    spec = running.spec_of(Job(target, capacity), running.Request(SETTINGS, "research", "", 900, "tpu"))
    assert spec.slice == V4_16
    assert (spec.slices, spec.rule, spec.access, spec.max.runtime) == (2, "pass", "tpu", 900)
    word = spec.capacity if isinstance(spec.capacity, str) else f"reservation:{spec.capacity.reservation}"
    assert word == capacity


def test_wrong_image_is_refused_as_in_a_job_file():
    target = checks.Target("pool-0", V4_16, 1, checks.Network(None, None))
    with pytest.raises(Invalid, match="image"):
        running.spec_of(Job(target, "spot"), running.Request(SETTINGS, "research", "not an image", 900, "tpu"))
