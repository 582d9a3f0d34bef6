"""The provisioner over a cluster and a GKE that act by themselves."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from support.provisioner_world import V4_16, ProvisionerWorld
from tpukit.provisioner.settings import Settings


def test_provisioner_jobset_of_two_slices_gets_two_pools_and_runs():
    world = ProvisionerWorld()
    world.cluster.send("train", jobs=2)
    world.pass_time(200)
    assert world.cluster.running("train") == 2
    assert len(world.pools("train")) == 2
    assert len(world.cluster.event_texts("NodePoolCreating")) == 2
    assert len(world.cluster.event_texts("NodePoolReady")) == 2


@pytest.mark.parametrize("how", ["Completed", "Failed", "deleted"])
def test_provisioner_jobset_that_ends_loses_its_pools(how):
    world = ProvisionerWorld()
    world.cluster.send("train", jobs=2)
    world.pass_time(200)
    if how == "deleted":
        world.cluster.delete("train")
    else:
        world.cluster.finish("train", how)
    world.pass_time(200)
    assert world.pools() == []


def test_provisioner_jobset_that_restarts_finds_its_pools_again():
    world = ProvisionerWorld()
    world.cluster.send("train", jobs=2)
    world.pass_time(200)
    before = set(world.pools())
    for _ in range(5):
        world.cluster.restart("train")
        world.pass_time(60)
    assert set(world.pools()) == before
    assert set(world.gke.made.values()) == {1}
    assert world.cluster.running("train") == 2


def test_provisioner_jobset_recreated_under_its_name_gets_pools_of_its_own():
    world = ProvisionerWorld()
    world.cluster.send("train")
    world.pass_time(200)
    before = world.pools()
    world.cluster.delete("train")
    world.cluster.send("train")
    world.pass_time(400)
    assert world.cluster.running("train") == 1
    world.cluster.finish("train")
    world.pass_time(400)
    assert world.pools() == []
    assert before


def test_provisioner_pool_of_wrong_shape_is_replaced():
    world = ProvisionerWorld()
    world.cluster.send("train")
    world.pass_time(200)
    (name,) = world.pools()
    larger = {**V4_16, "cloud.google.com/gke-tpu-topology": "2x2x4"}
    jobset = world.cluster._jobsets["research", "train"]
    jobset["_jobs"] = [(job, one, larger, chips) for job, one, _, chips in jobset["_jobs"]]
    jobset["spec"]["replicatedJobs"][0]["template"]["spec"]["parallelism"] = 4
    world.cluster.restart("train")
    world.pass_time(400)
    assert world.pools() == [name]
    assert world.gke.pool_docs[name]["body"]["placementPolicy"]["tpuTopology"] == "2x2x4"
    assert world.gke.made[name] == 2
    assert world.cluster.running("train") == 1


def test_provisioner_replicated_jobs_of_different_shapes_each_get_theirs():
    v5e = {
        "cloud.google.com/gke-tpu-accelerator": "tpu-v5-lite-podslice",
        "cloud.google.com/gke-tpu-topology": "2x4",
    }
    world = ProvisionerWorld()
    world.cluster.send("mixed", replicated=[("eval", v5e, 8, 1)])
    world.pass_time(300)
    machines = sorted(doc["body"]["config"]["machineType"] for doc in world.gke.pool_docs.values())
    assert machines == ["ct4p-hightpu-4t", "ct5lp-hightpu-8t"]
    assert world.cluster.running("mixed") == 2


def test_provisioner_suspended_jobset_loses_its_pools_after_a_while_and_gets_them_again():
    world = ProvisionerWorld()
    world.cluster.send("train")
    world.pass_time(200)
    world.cluster.suspend("train")
    world.pass_time(40)
    assert len(world.pools()) == 1
    world.pass_time(200)
    assert world.pools() == []
    world.cluster.suspend("train", on=False)
    world.pass_time(200)
    assert world.cluster.running("train") == 1


def test_provisioner_pool_in_use_by_a_pod_of_somebody_else_is_not_removed_until_it_leaves():
    world = ProvisionerWorld()
    world.cluster.send("train")
    world.pass_time(200)
    (name,) = world.pools()
    world.cluster.foreign.append(
        {"metadata": {"name": "guest", "namespace": "kitchen"}, "spec": {"nodeName": f"gke-{name}-0"}, "status": {}}
    )
    world.cluster.delete("train")
    world.pass_time(300)
    assert world.pools() == [name]
    assert "kitchen/guest" in world.driver.steps[name].reason
    world.cluster.foreign.clear()
    world.pass_time(200)
    assert world.pools() == []


def _pass_until(world: ProvisionerWorld, true: Callable[[], bool]) -> None:
    for _ in range(200):
        if true():
            return
        world.pass_time(5)
    raise AssertionError("it never came")


def test_provisioner_pool_that_is_removed_takes_no_pod_of_the_next_jobset():
    """The removed pool has the labels that the next JobSet selects, and its hosts exist until the operation ends."""
    world = ProvisionerWorld()
    world.cluster.send("first")
    world.pass_time(200)
    world.cluster.finish("first")
    _pass_until(world, lambda: any(one["kind"] == "DELETE_NODE_POOL" for one in world.gke.ops))
    world.cluster.send("second")
    (pod,) = world.cluster.pods_of("second")
    world.pass_time(400)
    assert world.cluster.pods_of("second") == [pod]  # it was never lost with a host
    assert world.cluster.running("second") == 1
    assert len(world.pools()) == 1


def test_provisioner_pool_that_was_cordoned_and_is_taken_after_all_is_opened_again():
    world = ProvisionerWorld()
    world.cluster.send("train", jobs=1)
    world.pass_time(200)
    world.cluster.suspend("train")
    _pass_until(world, lambda: "patch Node" in world.cluster.calls)
    world.cluster.suspend("train", on=False)
    world.pass_time(400)
    assert world.cluster.running("train") == 1
    assert not [node for node in world.cluster.nodes() if node.get("spec", {}).get("unschedulable")]


def test_provisioner_host_that_a_person_cordoned_stays_so():
    world = ProvisionerWorld()
    world.cluster.send("train")
    world.pass_time(200)
    node = world.cluster.nodes()[0]
    node["spec"] = {"unschedulable": True}
    world.pass_time(100)
    assert node["spec"] == {"unschedulable": True}


def test_provisioner_pods_of_the_jobset_itself_hold_a_pool_that_looks_vacant():
    world = ProvisionerWorld()
    world.cluster.send("train")
    world.pass_time(200)
    (name,) = world.pools()
    observer = world.driver._observer
    seen = observer.observe(Settings(), world.clock.now())
    assert observer.with_foreign(seen, [name]).foreign == {name: ()}
    assert observer.with_foreign(seen, [name], {name}).foreign[name][0].startswith("research/train")


def test_provisioner_daemonset_pods_do_not_hold_a_pool():
    world = ProvisionerWorld()
    world.cluster.send("train")
    world.pass_time(200)
    (name,) = world.pools()
    owner = [{"kind": "DaemonSet", "name": "log-agent"}]
    meta = {"name": "log-agent-x", "namespace": "kube-system", "ownerReferences": owner}
    world.cluster.foreign.append({"metadata": meta, "spec": {"nodeName": f"gke-{name}-0"}, "status": {}})
    world.cluster.delete("train")
    world.pass_time(200)
    assert world.pools() == []


def test_provisioner_pools_without_our_labels_are_never_touched():
    world = ProvisionerWorld()
    config = {"machineType": "ct4p-hightpu-4t", "labels": {"team": "research"}}
    body = {"name": "static-0", "locations": ["us-central2-b"], "initialNodeCount": 2, "config": config}
    world.gke.pool_docs["static-0"] = {"body": body, "status": "ERROR", "message": "broken"}
    world.cluster.send("train")
    world.pass_time(200)
    world.cluster.delete("train")
    world.pass_time(200)
    assert world.pools() == ["static-0"]
    assert not [call for call in world.gke.calls if "delete static" in call]


def test_provisioner_that_cannot_read_jobsets_removes_nothing():
    world = ProvisionerWorld()
    world.cluster.send("train")
    world.pass_time(200)
    world.cluster.delete("train")
    world.cluster.away = True
    world.pass_time(300)
    assert len(world.pools()) == 1
    world.cluster.away = False
    world.pass_time(200)
    assert world.pools() == []


def test_provisioner_impossible_request_is_told_on_pod_and_jobset():
    world = ProvisionerWorld()
    world.cluster.send("train", chips=3)
    world.pass_time(60)
    said = world.cluster.event_texts("NodePoolImpossible")
    assert len(said) == 2
    assert all("write google.com/tpu: 4" in text for text in said)
    assert {one["involvedObject"]["kind"] for one in world.cluster.events.values()} == {"Pod", "JobSet"}
    assert world.pools() == []


def test_provisioner_jobset_that_opts_out_is_left_alone():
    world = ProvisionerWorld()
    world.cluster.send("train", annotations={"disable": "true"})
    world.pass_time(60)
    assert world.pools() == []


def test_provisioner_config_map_that_cannot_be_read_is_told_and_the_settings_before_it_hold():
    world = ProvisionerWorld()
    world.cluster.configure(capacity="sometimes", minimum_age="20", removal_delay="10")
    world.cluster.send("train")
    world.pass_time(200)
    assert world.cluster.running("train") == 1
    assert any("reservation:NAME" in text for text in world.complaints)


def test_provisioner_choices_are_tried_in_order_when_chips_run_out():
    world = ProvisionerWorld(zones=("us-central2-b", "us-central2-c"))
    for zone, kind in (("us-central2-b", "spot"), ("us-central2-c", "spot"), ("us-central2-b", "on-demand")):
        world.gke.stock[zone, kind] = 0
    world.cluster.send("train", annotations={"capacity": "spot,on-demand"})
    world.pass_time(1200)
    assert world.cluster.running("train") == 1
    (name,) = world.pools()
    body = world.gke.pool_docs[name]["body"]
    assert body["locations"] == ["us-central2-c"]
    assert not body["config"].get("spot")
    assert len(world.cluster.event_texts("NodePoolStockOut")) == 3


def test_provisioner_quota_is_told_and_tried_again_until_there_is_some():
    world = ProvisionerWorld()
    world.gke.quota = 0
    world.cluster.send("train")
    world.pass_time(600)
    creates = [call for call in world.gke.calls if call.startswith("create")]
    assert 2 <= len(creates) <= 8
    assert world.cluster.event_texts("NodePoolQuota")
    world.gke.quota = 100
    world.pass_time(900)
    assert world.cluster.running("train") == 1


def test_provisioner_another_replica_that_does_not_lead_does_nothing():
    world = ProvisionerWorld()
    world.leader.is_leading = False
    world.cluster.send("train")
    world.pass_time(100)
    assert world.gke.calls == []


def test_provisioner_preempted_hosts_that_never_return_are_replaced():
    world = ProvisionerWorld(node_timeout="300")
    world.cluster.send("train")
    world.pass_time(200)
    (name,) = world.pools()
    world.cluster.remove_hosts(name)
    world.pass_time(1200)
    assert world.gke.made[name] == 2
    assert world.cluster.running("train") == 1


def test_provisioner_api_server_requests_of_a_slice_that_comes_up_are_two():
    world = ProvisionerWorld()
    world.cluster.send("train", jobs=20)
    world.pass_time(1200)
    assert world.cluster.running("train") == 20
    assert len(world.cluster.calls) <= 2 * 20


def test_provisioner_pool_that_is_there_at_once_is_told_as_ready_once():
    world = ProvisionerWorld()
    world.gke.seconds = (0.0, 0.0)
    world.cluster.send("train", jobs=2)
    world.pass_time(100)
    assert len(world.cluster.event_texts("NodePoolReady")) == 2


def test_provisioner_pool_that_became_ready_while_nobody_led_is_told_later():
    world = ProvisionerWorld()
    world.cluster.send("train")
    world.pass_time(20)
    world.leader.is_leading = False
    world.pass_time(100)
    assert not world.cluster.event_texts("NodePoolReady")
    world.leader.is_leading = True
    world.pass_time(20)
    assert len(world.cluster.event_texts("NodePoolReady")) == 1


def test_provisioner_decision_that_came_to_nothing_is_made_again():
    """The kernel skips a round while the previous one is still running."""
    world = ProvisionerWorld()
    world.cluster.send("train")
    world.pass_time(20)
    world.clock.sleep(100)
    world.gke.tick()
    world.driver._next()
    world.driver._next()
    world.pass_time(20)
    assert len(world.cluster.event_texts("NodePoolReady")) == 1


def test_provisioner_pool_outlives_a_change_of_defaults():
    world = ProvisionerWorld()
    world.cluster.send("train")
    world.pass_time(200)
    world.cluster.configure(capacity="spot", zones="us-central2-c", removal_delay="10", minimum_age="20")
    world.cluster.restart("train")
    world.pass_time(200)
    assert set(world.gke.made.values()) == {1}
    assert world.cluster.running("train") == 1


@pytest.mark.parametrize("fault", ["refused", "conflict"])
def test_provisioner_call_that_gke_has_no_time_for_slows_it_down_and_fails_nothing(fault):
    world = ProvisionerWorld(max_operations="4")
    world.gke.seconds = (300.0, 300.0)
    for number in range(4):
        world.cluster.send(f"train-{number}")
    world.gke.faults = {3: fault}  # after listing pools and operations
    world.pass_time(15)
    assert len([one for one in world.gke.ops if not one["done"]]) == 3
    world.pass_time(10)  # half of them may be running now
    assert len(world.gke.ops) == 3
    world.pass_time(900)
    assert sum(world.cluster.running(f"train-{number}") for number in range(4)) == 4
    assert set(world.gke.made.values()) == {1}


@pytest.mark.parametrize(
    "pin", [{"cloud.google.com/gke-nodepool": "static"}, {"kubernetes.io/hostname": "gke-static-0"}]
)
def test_provisioner_pod_that_is_pinned_elsewhere_gets_no_pool_and_an_event_on_its_jobset(pin):
    world = ProvisionerWorld()
    world.cluster.send("train", selector={**V4_16, **pin})
    world.pass_time(600)
    assert world.gke.made == {}
    (text,) = set(world.cluster.event_texts("NodePoolImpossible"))
    assert next(iter(pin)) in text
    kinds = {one["involvedObject"]["kind"] for one in world.cluster.events.values()}
    assert "JobSet" in kinds


def test_provisioner_pool_that_its_pod_never_comes_to_is_explained_removed_and_not_bought_again_at_once():
    world = ProvisionerWorld()
    world.cluster.schedule = lambda: None
    world.cluster.send("train")
    world.pass_time(900)
    (name,) = world.pools()
    world.pass_time(600)
    assert world.pools() == []
    (text,) = world.cluster.event_texts("NodePoolUnused")
    assert "ready for 15 min" in text and "0/0 nodes" in text and "1 h" in text
    world.pass_time(1800, step=30.0)
    assert world.gke.made[name] == 1
    assert "unused" in world.driver.steps[name].reason
    world.pass_time(3600, step=30.0)
    assert world.gke.made[name] == 2


def test_provisioner_pool_whose_pod_comes_late_is_kept():
    world = ProvisionerWorld()
    schedule, world.cluster.schedule = world.cluster.schedule, lambda: None
    world.cluster.send("train")
    world.pass_time(900)
    world.cluster.schedule = schedule
    world.pass_time(3600, step=30.0)
    assert world.cluster.running("train") == 1
    assert set(world.gke.made.values()) == {1}


def test_provisioner_restarts_of_a_jobset_do_not_add_up_to_an_unused_pool():
    world = ProvisionerWorld()
    world.cluster.send("train")
    world.pass_time(200)
    for _ in range(30):
        world.cluster.restart("train")
        world.pass_time(60)
    assert set(world.gke.made.values()) == {1}


def test_provisioner_that_cannot_read_the_cluster_removes_no_pool():
    world = ProvisionerWorld(node_timeout="60")
    world.cluster.schedule = lambda: None
    world.cluster.send("train")
    world.pass_time(300)
    world.cluster.away = True
    world.pass_time(3600, step=30.0)
    assert len(world.pools()) == 1
