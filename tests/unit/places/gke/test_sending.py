"""Creation and removal of JobSets: idempotent, and never of another driver's JobSet."""

from __future__ import annotations

from contextlib import suppress

import pytest

from support.fake_cluster import FakeCluster
from support.gke_driving import place_on
from support.gke_world import handle, planned
from tpukit.core import fence
from tpukit.core.clock import ManualClock
from tpukit.core.errors import Conflict, Invalid, LeaseLost, NotYet, Transient
from tpukit.jobs.plan import Plan, Snapshot
from tpukit.jobs.reasons import State
from tpukit.places.gke import code


@pytest.fixture
def cluster():
    return FakeCluster(ManualClock())


@pytest.fixture
def place(cluster, tmp_path):
    place = place_on(cluster, tmp_path / "data")
    yield place
    place.close()


def learned(cluster, one):
    return {"uid": cluster.jobset(one.plan.id)["metadata"]["uid"], "restarts": 0, "evictions": 0, "counted": 0}


def replace_by_a_newer_one(cluster, place, number=1):
    """Replace the JobSet by a newer one, as another driver might."""
    newer = handle(number)
    cluster.meanwhile = lambda: None
    cluster.forget(newer.plan.id)
    place.submit(newer)
    return cluster.jobset(newer.plan.id)["metadata"]["uid"]


def once_before(cluster, call, action):
    """Run `action` right before the next call of that name."""
    original = cluster._call

    def hooked(name):
        if name == call:
            cluster._call = original
            action()
        return original(name)

    cluster._call = hooked


def test_submit_twice_is_once(cluster, place):
    place.submit(handle())
    uid = cluster.jobset(handle().plan.id)["metadata"]["uid"]
    place.submit(handle())
    assert cluster.jobset(handle().plan.id)["metadata"]["uid"] == uid


def test_submit_of_an_attempt_that_the_jobset_began_by_itself_is_nothing_to_do(cluster, place):
    place.submit(handle())
    place.submit(handle(3, learned=learned(cluster, handle())))
    assert cluster.log.count("create JobSet") == 1
    assert "delete JobSet" not in cluster.log


def test_submit_waits_until_the_hosts_of_the_last_attempt_have_left(cluster, place):
    place.submit(handle())
    cluster.admit(handle().plan.id)
    cluster.start(handle().plan.id)
    for _ in range(2):
        with pytest.raises(NotYet, match="still stopping"):
            place.submit(handle(1))
    cluster.leave(handle().plan.id)
    place.submit(handle(1))
    made = cluster.jobset(handle().plan.id)["metadata"]["annotations"]
    assert (made["tpukit.dev/attempt"], made["tpukit.dev/sender"]) == ("1", "this-store")


def test_submit_waits_for_hosts_that_outlive_their_jobset(cluster, place):
    place.submit(handle())
    cluster.admit(handle().plan.id)
    cluster.start(handle().plan.id)
    del cluster.objects["JobSet"]["research", handle().plan.id]
    with pytest.raises(NotYet, match="still stopping"):
        place.submit(handle(1))
    assert cluster.jobset(handle().plan.id) is None


def test_submit_of_a_paused_driver_leaves_the_jobset_of_a_later_attempt_alone(cluster, place):
    place.submit(handle(2))
    with pytest.raises(Conflict, match="later than attempt 1"):
        place.submit(handle(1))
    assert "delete JobSet" not in cluster.log


def test_submit_between_whose_looking_and_removing_another_one_came_removes_nothing(cluster, place):
    place.submit(handle())
    uids = []
    once_before(cluster, "delete JobSet", lambda: uids.append(replace_by_a_newer_one(cluster, place, 2)))
    with pytest.raises(Conflict):
        place.submit(handle(1))
    assert cluster.jobset(handle().plan.id)["metadata"]["uid"] == uids[0]


def test_stop_of_a_paused_driver_leaves_the_jobset_of_a_later_attempt_alone(cluster, place):
    place.submit(handle())
    old = handle(0, state=State.RUNNING, learned=learned(cluster, handle()))
    uid = replace_by_a_newer_one(cluster, place)
    with pytest.raises(Conflict, match="this driver may not stop"):
        place.stop(old, 5.0)
    assert cluster.jobset(old.plan.id)["metadata"]["uid"] == uid


def test_stop_between_whose_looking_and_removing_another_one_came_removes_nothing(cluster, place):
    place.submit(handle())
    uids = []
    once_before(cluster, "delete JobSet", lambda: uids.append(replace_by_a_newer_one(cluster, place)))
    with pytest.raises(Conflict):
        place.stop(handle(), 5.0)
    assert "deletionTimestamp" not in cluster.jobset(handle().plan.id)["metadata"]
    assert cluster.jobset(handle().plan.id)["metadata"]["uid"] == uids[0]


def test_stop_of_what_hangs_gives_its_pods_no_time_and_asks_once(cluster, place):
    place.submit(handle())
    cluster.admit(handle().plan.id)
    cluster.start(handle().plan.id)
    for _ in range(3):
        place.stop(handle(), 1.0)
    assert {pod["metadata"]["deletionGracePeriodSeconds"] for pod in cluster.pods(handle().plan.id)} == {1}
    assert (cluster.log.count("delete Pod"), cluster.log.count("delete JobSet")) == (4, 1)


def with_code(digest="0" * 64):
    plan = planned().to_json()
    plan["snapshot"] = {"digest": digest, "commit": "", "dirty": False}
    return Plan.from_json(plan)


def test_code_that_is_gone_from_this_machine_and_from_the_cluster_is_said_and_waited_for(place):
    """Another machine that shares the store may have the code; a request for another attempt is refused."""
    with pytest.raises(Transient, match=r"neither the cluster nor this machine has its code"):
        place.submit(handle(plan=with_code()))
    with pytest.raises(Invalid, match=r"is no longer in"):
        place.check_code(with_code())


def test_code_that_is_gone_from_this_machine_is_used_from_the_cluster(cluster, place):
    plan = with_code()
    assert plan.snapshot == Snapshot("0" * 64, "", False)
    for document in code.config_maps("research", plan.snapshot.digest, [b"one", b"two"]):
        cluster.create(document)
    place.check_code(plan)
    place.submit(handle(plan=plan))
    volumes = cluster.jobset(plan.id)["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]["volumes"]
    (projected,) = [one["projected"] for one in volumes if "projected" in one]
    assert [one["configMap"]["name"] for one in projected["sources"]] == code.names(plan.snapshot.digest, 2)


def test_check_tells_what_the_cluster_lacks_and_makes_nothing(cluster, place):
    plan = planned(priority="high")
    said = [problem.what for problem in place.check(plan)]
    assert said == ["team: research has no queue", "priority: the cluster has no high"]
    assert not cluster.objects.get("JobSet")


def test_prepare_settles_the_cluster_and_refuses_what_gke_has_not(place):
    plan = place.prepare(planned())
    assert (plan.cluster.context, plan.cluster.uid) == ("fake", "uid-of-fake")
    assert place.group(plan) == "fake"
    with pytest.raises(Invalid, match="GKE has no v2-8"):
        place.prepare(planned(tpu="v2-8", slices=1))


def test_forget_says_where_a_jobset_may_be_left(place):
    said = place.forget(handle())
    assert all(word in said for word in (handle().plan.id, "research", "--context fake"))


def staged(place, plan):
    """Put the plan's code on this machine's shelf."""
    folder = place._root / "code" / plan.snapshot.digest
    folder.mkdir(parents=True)
    (folder / "train.py").write_text("pass")
    return plan


def half_uploaded(cluster, digest):
    """Upload the first of two parts, packed by another machine's compressor."""
    cluster.create(code.config_maps("research", digest, [b"one", b"two"])[0])


def test_code_that_another_machine_is_uploading_is_waited_for_and_not_removed(cluster, place):
    plan = staged(place, with_code())
    half_uploaded(cluster, plan.snapshot.digest)
    for _ in range(4):
        cluster.clock.sleep(60.0)
        with pytest.raises(NotYet, match="uploading"):
            place.submit(handle(plan=plan))
    assert len(cluster._kind("ConfigMap")) == 1
    for document in code.config_maps("research", plan.snapshot.digest, [b"one", b"two"])[1:]:
        cluster.create(document)
    place.submit(handle(plan=plan))
    assert cluster.jobset(plan.id) is not None


def test_code_whose_upload_was_cut_off_is_replaced(cluster, place):
    plan = staged(place, with_code())
    half_uploaded(cluster, plan.snapshot.digest)
    cluster.clock.sleep(code.UPLOAD_SECONDS + 1)
    place.submit(handle(plan=plan))
    assert cluster.jobset(plan.id) is not None


def test_code_that_is_half_uploaded_is_waited_for_by_a_driver_without_it(cluster, place):
    plan = with_code()
    half_uploaded(cluster, plan.snapshot.digest)
    for _ in range(3):
        cluster.clock.sleep(600.0)
        with pytest.raises(Transient):
            place.submit(handle(plan=plan))
    assert len(cluster._kind("ConfigMap")) == 1


def there(cluster):
    return str({kind: objects for kind, objects in cluster.objects.items() if objects})


def acts_of_a_fenced_driver():
    def submit(place):
        place.submit(handle())

    def submit_next(place):
        place.submit(handle(1))

    def stop(place):
        place.stop(handle(), 1.0)

    return [submit, submit_next, stop]


@pytest.mark.parametrize("act", acts_of_a_fenced_driver(), ids=lambda act: act.__name__)
@pytest.mark.parametrize("running", [False, True])
def test_act_of_a_driver_that_lost_its_lease_changes_nothing(cluster, place, act, running):
    if running:
        place.submit(handle())
        cluster.admit(handle().plan.id)
        cluster.start(handle().plan.id)

    def lost():
        raise LeaseLost("another driver owns it")

    before = there(cluster)
    with fence.held(lost), suppress(LeaseLost, NotYet):
        act(place)
    assert there(cluster) == before


@pytest.mark.parametrize("call", ["create JobSet", "delete JobSet"])
def test_act_whose_driver_was_paused_before_the_call_is_not_sent(cluster, place, call):
    """The lease is lost while the driver is suspended right before the call."""
    held = {"lease": True}

    def check():
        if not held["lease"]:
            raise LeaseLost("another driver owns it")
        return 10.0

    if call.startswith("delete"):
        place.submit(handle())
    once_before(cluster, call, lambda: held.update(lease=False))
    with fence.held(check), pytest.raises(LeaseLost):
        place.stop(handle(), 30.0) if call.startswith("delete") else place.submit(handle())
    there = cluster.jobset(handle().plan.id)
    assert (there is not None and "deletionTimestamp" not in there["metadata"]) == call.startswith("delete")
