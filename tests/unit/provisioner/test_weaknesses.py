"""Known defects of the Go provisioner (https://github.com/ai-on-gke/tpu-provisioner), one test for each."""

from __future__ import annotations

from support.provisioner_world import V4_16, ProvisionerWorld
from support.simulated_gke import STOCKOUT
from tpukit import catalogue
from tpukit.provisioner import pool_names, pools
from tpukit.provisioner.needs import Choice, Need
from tpukit.provisioner.settings import Capacity


def test_weakness_1_finished_is_not_taken_for_succeeded():
    world = ProvisionerWorld()
    world.gke.stock["us-central2-b", "on-demand"] = 0
    world.cluster.send("train")
    world.pass_time(120)
    assert any(one.error == STOCKOUT for one in world.gke.operations() if one.done)
    assert world.cluster.event_texts("NodePoolStockOut")
    assert not world.cluster.event_texts("NodePoolReady")


def test_weakness_1_create_whose_pool_vanished_with_its_error_is_an_error():
    world = ProvisionerWorld()
    world.cluster.send("train")
    world.pass_time(20)
    (one,) = world.gke.ops
    one |= {"done": True, "ended": world.clock.now(), "error": "An internal error has occurred."}
    world.gke.pool_docs.clear()
    world.pass_time(300)
    assert world.cluster.event_texts("NodePoolFailed")
    assert world.cluster.running("train") == 1


def test_weakness_2_error_pool_is_removed_and_made_again():
    world = ProvisionerWorld()
    world.gke.breaks[""] = 2
    world.cluster.send("train")
    world.pass_time(1500)
    assert world.cluster.running("train") == 1
    assert list(world.gke.made.values()) == [3]


def test_weakness_2_error_pool_is_made_again_up_to_a_limit():
    world = ProvisionerWorld(error_limit="3")
    world.gke.breaks[""] = 1000
    world.cluster.send("train")
    world.pass_time(6000)
    assert list(world.gke.made.values()) == [3]
    assert world.cluster.event_texts("NodePoolGivenUp")
    assert world.pools() == []
    calls = len(world.gke.calls)
    world.pass_time(600)
    assert not [call for call in world.gke.calls[calls:] if call.startswith(("create", "delete"))]


def test_weakness_2_limit_holds_over_a_restart_of_the_controller():
    world = ProvisionerWorld(error_limit="3")
    world.gke.breaks[""] = 1000
    world.cluster.send("train")
    for _ in range(30):
        world.pass_time(200)
        world.start()
    assert list(world.gke.made.values()) == [3]


def test_weakness_3_pool_being_deleted_counts_as_absent_and_is_made_again():
    world = ProvisionerWorld()
    world.cluster.send("train")
    world.pass_time(200)
    (name,) = world.pools()
    world.gke.delete_pool(name, {})
    world.cluster.restart("train")
    world.cluster._nodes.clear()
    world.pass_time(30)
    assert world.gke.made[name] == 1
    world.pass_time(300)
    assert world.gke.made[name] == 2
    assert world.cluster.running("train") == 1


def test_weakness_3_error_of_a_list_stops_nothing_else():
    world = ProvisionerWorld()
    world.cluster.send("train")
    world.gke.faults = {1: "lost", 2: "refused", 4: "lost"}
    for _ in range(60):
        try:
            world.pass_time(5)
        except Exception as error:  # the loop retries a failed round  # noqa: BLE001
            assert "connection was reset" in str(error) or "Too many" in str(error)
    assert world.cluster.running("train") == 1


def test_weakness_4_pool_that_fails_after_it_matched_is_examined_again():
    """The pod does not change, and the pool is examined again all the same."""
    world = ProvisionerWorld()
    world.gke.breaks[""] = 1
    world.cluster.send("train")
    world.pass_time(600)
    assert world.cluster.running("train") == 1


def test_weakness_5_stock_outs_do_not_hold_up_other_jobsets():
    world = ProvisionerWorld(zones=("us-central2-b",), max_operations="3")
    world.gke.seconds = (300.0, 300.0)
    world.gke.stock["us-central2-b", "spot"] = 0
    for number in range(3):
        world.cluster.send(f"stuck-{number}", annotations={"capacity": "spot"})
    # With another shape, because pods of the same shape would take its pool.
    world.cluster.send("train", selector={**V4_16, "cloud.google.com/gke-tpu-topology": "2x2x4"}, hosts=4)
    world.pass_time(1500)
    assert world.cluster.running("train") == 1


def test_weakness_5_refused_polls_and_a_restart_lose_nothing():
    world = ProvisionerWorld()
    world.cluster.send("train")
    world.pass_time(20)
    world.start()
    world.pass_time(200)
    assert list(world.gke.made.values()) == [1]
    assert world.cluster.running("train") == 1


def test_weakness_6_failed_removal_is_tried_again():
    world = ProvisionerWorld()
    world.cluster.send("train")
    world.pass_time(200)
    world.gke.breaks["delete"] = 2
    world.cluster.delete("train")
    world.pass_time(900)
    assert world.pools() == []


def test_weakness_6_refused_removal_is_tried_again_and_visible():
    world = ProvisionerWorld()
    world.cluster.send("train")
    world.pass_time(200)
    world.cluster.finish("train")
    world.gke.trouble = lambda: "refused" if world.gke.calls[-1].startswith("delete") else ""
    world.pass_time(300)
    assert any("Too many operations" in text for text in world.complaints)
    assert world.cluster.event_texts("NodePoolTrouble")
    world.gke.trouble = lambda: ""
    world.pass_time(300)
    assert world.pools() == []


def test_weakness_6_end_of_a_jobset_is_noticed_without_any_change_of_nodes():
    world = ProvisionerWorld()
    world.cluster.send("train")
    world.pass_time(200)
    nodes = world.cluster.nodes()
    world.cluster.finish("train")
    world.pass_time(30)
    assert world.cluster.nodes() == nodes or not world.cluster.nodes()
    world.pass_time(100)
    assert world.pools() == []


def test_weakness_6_removal_waits_for_its_delay():
    world = ProvisionerWorld(removal_delay="100")
    world.cluster.send("train")
    world.pass_time(200)
    world.cluster.finish("train")
    world.pass_time(90)
    assert not [call for call in world.gke.calls if call.startswith("delete")]
    world.pass_time(200)
    assert world.pools() == []


def test_weakness_7_orphan_without_nodes_is_collected():
    world = ProvisionerWorld()
    world.cluster.send("train")
    world.pass_time(200)
    world.cluster._nodes.clear()
    world.cluster.delete("train")
    world.start()
    world.pass_time(200)
    assert world.pools() == []


def test_weakness_8_hosts_come_from_the_catalogue():
    one_host = catalogue.find_shape("v5e", "2x4", machine_type="ct5lp-hightpu-8t")
    need = Need("p", "n", "j", "u", "job", "pod", "uid", 0.0, "", ())
    body = pools.body("p", need, Choice(one_host, 1, "us-west4-a", Capacity("on-demand")), 0, 0.0)
    assert body["initialNodeCount"] == 1
    assert "placementPolicy" not in body


def test_weakness_8_eight_chips_on_two_hosts_when_the_pods_ask_for_four():
    v5e = {
        "cloud.google.com/gke-tpu-accelerator": "tpu-v5-lite-podslice",
        "cloud.google.com/gke-tpu-topology": "2x4",
    }
    world = ProvisionerWorld()
    world.cluster.send("train", selector=v5e, chips=4, hosts=2)
    world.pass_time(20)
    (name,) = world.pools()
    body = world.gke.pool_docs[name]["body"]
    assert (body["initialNodeCount"], body["config"]["machineType"]) == (2, "ct5lp-hightpu-4t")
    assert body["placementPolicy"] == {"type": "COMPACT", "tpuTopology": "2x4"}


def test_weakness_9_names_do_not_collide():
    made = {pool_names.pool_name("a-rather-long-name-of-a-jobset-indeed", f"uid-{n}", "job") for n in range(20_000)}
    assert len(made) == 20_000
    assert all(len(name) <= 40 for name in made)


def test_weakness_9_stock_out_in_one_zone_goes_on_in_the_next():
    world = ProvisionerWorld(zones=("us-central2-b", "us-central2-c"))
    world.gke.stock["us-central2-b", "on-demand"] = 0
    world.cluster.send("train")
    world.pass_time(400)
    assert world.cluster.running("train") == 1


def test_weakness_9_no_chips_of_one_kind_goes_on_with_the_next_reservation_spot_then_flex_start():
    v5e = {
        "cloud.google.com/gke-tpu-accelerator": "tpu-v5-lite-podslice",
        "cloud.google.com/gke-tpu-topology": "4x4",
    }
    world = ProvisionerWorld(zones=("us-west4-a",))
    for kind in ("reservation", "spot"):
        world.gke.stock["us-west4-a", kind] = 0
    capacity = {"capacity": "reservation:ours,spot,flex-start"}
    world.cluster.send("train", selector=v5e, chips=4, hosts=4, annotations=capacity)
    world.pass_time(900)
    (name,) = world.pools()
    assert world.gke.pool_docs[name]["body"]["config"]["flexStart"]
    assert world.cluster.running("train") == 1
    assert len(world.cluster.event_texts("NodePoolStockOut")) == 2


def test_weakness_9_stock_outs_are_tried_for_ever_and_ever_more_rarely_but_errors_are_not():
    def creates(world: ProvisionerWorld, seconds: float) -> int:
        before = sum(world.gke.made.values())
        world.pass_time(seconds)
        return sum(world.gke.made.values()) - before

    dry, broken = ProvisionerWorld(), ProvisionerWorld(error_limit="3")
    dry.gke.stock["us-central2-b", "on-demand"] = 0
    broken.gke.breaks[""] = 1000
    for world in (dry, broken):
        world.cluster.send("train")
    first, later = creates(dry, 1200), creates(dry, 1200)
    assert first > later > 0
    assert creates(dry, 7200) > 0
    assert (creates(broken, 7200), creates(broken, 7200)) == (3, 0)


def test_weakness_9_metrics_say_what_became_of_operations():
    world = ProvisionerWorld()
    world.cluster.send("train")
    world.pass_time(200)
    assert 'tpukit_provisioner_operations_total{act="create",outcome="ok"} 1' in world.metrics.text()


def test_weakness_9_pod_that_is_gone_mid_create_leaves_no_pool():
    world = ProvisionerWorld()
    world.cluster.send("train")
    world.pass_time(20)
    world.cluster.delete("train")
    world.pass_time(300)
    assert world.pools() == []


def test_weakness_10_pools_are_deleted_by_the_call_for_pools():
    world = ProvisionerWorld()
    world.cluster.send("train")
    world.pass_time(200)
    (name,) = world.pools()
    world.cluster.delete("train")
    world.pass_time(200)
    assert f"delete {name}" in world.gke.calls


def test_jobs_that_swapped_pools_do_not_wait_for_ever_when_one_pool_is_broken():
    """Each job is on the other's pool, and one is lost: https://github.com/GoogleCloudPlatform/ai-on-gke/pull/596."""
    world = ProvisionerWorld()
    world.cluster.send("train", jobs=2)
    world.pass_time(200)
    first, second = world.cluster.pods_of("train")
    first["spec"]["nodeName"], second["spec"]["nodeName"] = second["spec"]["nodeName"], first["spec"]["nodeName"]
    lost = world.cluster.pool_of(first)
    world.gke.pool_docs.pop(lost)
    world.cluster._nodes = {
        name: node
        for name, node in world.cluster._nodes.items()
        if node["metadata"]["labels"]["cloud.google.com/gke-nodepool"] != lost
    }
    world.cluster._pods.pop(first["metadata"]["uid"])
    jobset = world.cluster._jobsets["research", "train"]
    world.cluster.add_leader(jobset, first["metadata"]["labels"]["batch.kubernetes.io/job-name"], "slice", V4_16, 4)
    world.pass_time(300)
    assert world.cluster.running("train") == 2
    assert len(world.pools()) == 2
