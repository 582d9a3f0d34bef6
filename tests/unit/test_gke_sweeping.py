"""What is swept: only what this store sent, that nobody knows of, that is old, and that was seen twice."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tpukit.clock import ManualClock
from tpukit.places.base import Handle, Known
from tpukit.places.gke import code
from tpukit.places.gke.sweeping import CODE_AGE
from tpukit.plan import Snapshot
from tpukit.reasons import State
from unit.fake_cluster import FakeCluster
from unit.gke_driving import Driving, place_on
from unit.gke_world import handle


@pytest.fixture
def stray(tmp_path):
    """A JobSet that a driver sent and never recorded."""
    cluster = FakeCluster(ManualClock())
    place = place_on(cluster, tmp_path / "data")
    sent = handle()
    place.submit(sent)
    return cluster, place, sent


def test_sweep_removes_a_stray_only_when_it_is_old_and_was_seen_twice(stray):
    cluster, place, sent = stray
    assert place.sweep(Known) == []
    cluster.clock.sleep(3600.0)
    assert place.sweep(Known) == []
    cluster.clock.sleep(59.0)
    assert place.sweep(Known) == []
    cluster.clock.sleep(2.0)
    assert place.sweep(Known) == [f"research/{sent.plan.id}"]
    assert "deletionTimestamp" in cluster.jobset(sent.plan.id)["metadata"]
    assert place.sweep(Known) == []


def test_sweep_leaves_what_a_job_knows_of(stray):
    cluster, place, sent = stray
    for _ in range(5):
        cluster.clock.sleep(3600.0)
        assert place.sweep(lambda: Known([sent])) == []


def test_sweep_with_a_lost_or_second_state_folder_deletes_nothing_of_others(stray, tmp_path):
    cluster, _, sent = stray
    second = place_on(cluster, tmp_path / "second", sender="another store")
    second.submit(handle(plan=handle().plan.__class__.from_json({**sent.plan.to_json(), "id": "other-1"})))
    cluster.forget("other-1")
    for _ in range(5):
        cluster.clock.sleep(3600.0)
        assert second.sweep(Known) == []
    assert cluster.jobset(sent.plan.id) is not None


def test_sweep_that_lost_its_jobset_to_another_of_the_same_name_begins_to_count_anew(stray):
    cluster, place, sent = stray
    cluster.clock.sleep(3600.0)
    place.sweep(Known)
    cluster.forget(sent.plan.id)
    place.submit(sent)
    cluster.clock.sleep(3600.0)
    assert place.sweep(Known) == []


def test_sweep_leaves_finished_jobsets_for_people_to_see(stray):
    cluster, place, sent = stray
    cluster.admit(sent.plan.id)
    cluster.complete(sent.plan.id)
    for _ in range(3):
        cluster.clock.sleep(3600.0)
        assert place.sweep(Known) == []


def test_sweep_of_whoever_never_sent_anything_asks_nobody(tmp_path):
    cluster = FakeCluster(ManualClock())
    assert place_on(cluster, tmp_path).sweep(Known) == []
    assert cluster.calls == 0


def test_sweep_beside_a_driver_leaves_its_jobs_alone(tmp_path):
    driving = Driving(tmp_path)
    job_id = driving.send()
    driving.run(job_id)
    for _ in range(4):
        driving.clock.sleep(3600.0)
        assert driving.driver.sweep() == []
    assert driving.job(job_id).state is State.RUNNING
    assert Handle.of(driving.job(job_id))
    driving.close()


def test_sweep_removes_code_that_nobody_used_for_a_month_and_keeps_what_a_job_or_jobset_has(tmp_path):
    cluster = FakeCluster(ManualClock())
    place = place_on(cluster, tmp_path / "data")
    plan = handle().plan
    digests = {name: letter * 64 for name, letter in (("old", "a"), ("needed", "b"), ("sent", "c"))}
    for digest in digests.values():
        for document in code.config_maps("research", digest, [b"one", b"two"]):
            cluster.create(document)
    with_code = {name: Snapshot(digest, "", False) for name, digest in digests.items()}
    sent = handle(plan=replace(plan, snapshot=with_code["sent"]))
    needed = handle(plan=replace(plan, id="needed-1", snapshot=with_code["needed"]))
    place.submit(sent)
    assert place.sweep(lambda: Known([sent, needed])) == [], "all of it is young"
    cluster.clock.sleep(CODE_AGE + 86400.0)
    removed = place.sweep(lambda: Known([sent, needed]))
    assert removed == [f"research/{name}" for name in code.names(digests["old"], 2)]
    left = {one["metadata"]["name"] for one in cluster.list("ConfigMap", "research")}
    assert left == {name for kind in ("needed", "sent") for name in code.names(digests[kind], 2)}
    assert place.sweep(lambda: Known([sent, needed])) == []
