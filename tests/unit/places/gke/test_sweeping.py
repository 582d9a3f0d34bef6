"""Sweeps remove only JobSets that this store sent, that no record knows, that are old, and that were seen twice."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from support.fake_cluster import DirectLister, FakeCluster
from support.gke_driving import SENDER, Driving, place_on
from support.gke_world import handle
from tpukit.core.clock import ManualClock
from tpukit.core.errors import Transient
from tpukit.jobs.plan import ClusterName, Plan, Snapshot
from tpukit.jobs.reasons import State
from tpukit.kube import Context
from tpukit.places.base import Handle, Known
from tpukit.places.gke import code
from tpukit.places.gke.clusters import Clusters, Kubeconfig
from tpukit.places.gke.place import GkePlace
from tpukit.places.gke.sweeping import BETWEEN_SECONDS, CODE_AGE, MINIMUM_AGE


@pytest.fixture
def stray(tmp_path):
    """Return a JobSet that a driver sent and never recorded."""
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


def in_team(team, name):
    given = handle().plan.to_json()
    plan = Plan.from_json({**given, "id": name, "settings": {**given["settings"], "team": team}})
    return handle(plan=plan)


def swept(cluster, place, known):
    """Sweep three times, an hour apart, and return the removals and complaints."""
    removed, complaints = [], []
    for _ in range(3):
        cluster.clock.sleep(3600.0)
        removed += place.sweep(lambda: known, complaints.append)
    return removed, complaints


def test_sweep_goes_on_after_a_namespace_that_cannot_be_listed_and_names_it(tmp_path):
    cluster = FakeCluster(ManualClock())
    place = place_on(cluster, tmp_path / "data")
    dead, living = in_team("aaa-dead", "one-1"), in_team("research", "two-1")
    for one in (dead, living):
        place.submit(one)
    cluster.hidden |= {"", "aaa-dead"}
    removed, complaints = swept(cluster, place, Known(ended=[dead.plan, living.plan]))
    assert removed == ["research/two-1"]
    assert any("aaa-dead" in text for text in complaints)


def test_sweep_goes_on_after_a_jobset_that_cannot_be_removed(stray):
    cluster, place, sent = stray
    other = in_team("research", "aaa-1")
    place.submit(other)
    delete = cluster.delete

    def refuse(kind, name, *words, **named):
        if name == "aaa-1":
            raise Transient("no answer")
        return delete(kind, name, *words, **named)

    cluster.delete = refuse
    removed, complaints = swept(cluster, place, Known())
    assert removed == [f"research/{sent.plan.id}"]
    assert any("aaa-1" in text for text in complaints)


def test_sweep_goes_on_after_a_cluster_that_is_away_and_sweeps_those_that_jobs_were_sent_to(tmp_path):
    clock = ManualClock()
    here, there = FakeCluster(clock), FakeCluster(clock)
    there.server, there.identity = "https://there.example", lambda seconds=20.0: "uid-of-there"
    by_context = {"fake": here, "there": there}
    contexts = [Context(name, one.server) for name, one in by_context.items()]
    clusters = Clusters(clock, Kubeconfig(lambda: contexts, lambda: "fake", by_context.__getitem__))
    place = GkePlace(
        tmp_path, clock, lambda: SENDER, clusters=clusters, log_workers=0, connect=DirectLister
    )  # fmt: skip
    plan = replace(handle().plan, target=ClusterName("there", there.server, "uid-of-there"))
    place.submit(handle(plan=plan))
    here.away = True
    removed, complaints = swept(here, place, Known(ended=[plan]))
    assert removed == [f"research/{plan.id}"]
    assert any(here.server in text for text in complaints)


def test_sweep_leaves_the_jobset_of_a_record_that_cannot_be_read(stray):
    cluster, place, sent = stray
    assert swept(cluster, place, Known(unreadable=frozenset([sent.plan.id]))) == ([], [])


def test_sweep_leaves_code_that_a_job_began_to_use_since_it_was_listed(tmp_path):
    cluster = FakeCluster(ManualClock())
    place = place_on(cluster, tmp_path / "data")
    place._note_sent()
    digest = "a" * 64
    for document in code.config_maps("research", digest, [b"one"]):
        cluster.create(document)
    cluster.clock.sleep(CODE_AGE + 86400.0)
    (name,) = code.names(digest, 1)
    delete = cluster.delete

    def used_first(*words, **named):
        cluster.patch("ConfigMap", name, code.mark_used(cluster.clock.now()), "research")
        return delete(*words, **named)

    cluster.delete = used_first
    assert place.sweep(Known) == []
    assert [one["metadata"]["name"] for one in cluster.list("ConfigMap", "research")] == [name]


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.tuples(st.sampled_from([SENDER, "another"]), st.sampled_from(["active", "unreadable", "unknown"])),
        min_size=1, max_size=6,
    ),
    st.lists(st.floats(0.0, 900.0), min_size=1, max_size=6),
)  # fmt: skip
def test_sweep_removes_only_what_is_ours_unknown_old_and_was_seen_twice(tmp_path_factory, jobs, pauses):
    cluster = FakeCluster(ManualClock())
    folder = tmp_path_factory.mktemp("sweep")
    place = place_on(cluster, folder / SENDER)
    place._note_sent()
    sent = {}
    for number, (sender, state) in enumerate(jobs):
        one = in_team("research", f"job-{number}")
        place_on(cluster, folder / sender, sender=sender).submit(one)
        sent[one.plan.id] = sender, state, one
    known = Known(
        [one for _, state, one in sent.values() if state == "active"],
        frozenset(name for name, (_, state, _) in sent.items() if state == "unreadable"),
    )
    age, seen = 0.0, {}
    for pause in pauses:
        cluster.clock.sleep(pause)
        age += pause
        for name in (one.partition("/")[2] for one in place.sweep(lambda: known)):
            sender, state, _ = sent[name]
            assert (sender, state) == (SENDER, "unknown")
            assert age >= MINIMUM_AGE
            assert age - seen[name] >= BETWEEN_SECONDS
        if age >= MINIMUM_AGE:
            seen = {name: seen.get(name, age) for name in sent}
