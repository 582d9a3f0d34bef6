"""Hosts that are preempted, drained, hung and lost, and that return."""

from __future__ import annotations

import json
import threading
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from support.agent_api import FakeApi
from support.agent_world import CPU, NODE, SPOT, ZONE, World, with_slice
from support.waiting import PATIENCE
from tpubox.box import emulator
from tpubox.kubelet import Pool, registered_pools, simulated_hosts
from tpubox.kubelet.driver import Driver
from tpubox.kubelet.registered_pools import allocatable
from tpubox.pools import kwok_pools
from tpukit.core.clock import ManualClock
from tpukit.core.errors import Conflict, Invalid, NotFound

FIRST, SECOND = SPOT.nodes


world = pytest.fixture(name="world")(with_slice)


def has_node(world: World, name: str) -> bool:
    return ("Node", "", name) in world.api.objects


def test_pool_becomes_nodes_with_gke_labels_taint_and_chips(world: World):
    node = world.api.get("Node", FIRST)
    labels = node["metadata"]["labels"]
    assert labels["cloud.google.com/gke-nodepool"] == "spot"
    assert labels["cloud.google.com/gke-tpu-accelerator"] == "tpu-v4-podslice"
    assert labels["cloud.google.com/gke-tpu-topology"] == "2x2x2"
    assert labels["cloud.google.com/gke-accelerator-count"] == "4"
    assert labels["cloud.google.com/gke-spot"] == "true"
    assert node["spec"]["taints"] == [
        {"key": "google.com/tpu", "value": "present", "effect": "NoSchedule"},
        {"key": "cloud.google.com/gke-spot", "value": "true", "effect": "NoSchedule"},
    ]
    assert node["status"]["capacity"]["google.com/tpu"] == "4"
    assert node["status"]["allocatable"] == allocatable(SPOT)
    assert node["status"]["allocatable"]["cpu"] != node["status"]["capacity"]["cpu"]
    assert node["status"]["conditions"][0]["status"] == "True"
    assert world.api.get("Lease", FIRST, "kube-node-lease")["spec"]["holderIdentity"] == FIRST
    assert "google.com/tpu" not in world.api.get("Node", NODE)["status"]["capacity"]


def test_pod_that_asks_for_some_chips_of_its_host_is_rejected_and_runs_nothing(world: World):
    world.shell("echo never", node=FIRST, resources={"limits": {"google.com/tpu": "2"}})
    status = world.phase("Failed")
    assert status["reason"] == "UnexpectedAdmissionError"
    assert "you must request all 4 chips on this node together" in status["message"]
    assert "containerStatuses" not in status, "an exit code would say that something ran"
    assert not any(one["type"] == "DisruptionTarget" for one in status["conditions"])
    world.shell("echo all", node=FIRST, name="whole", resources={"limits": {"google.com/tpu": "4"}})
    world.phase("Succeeded", name="whole")


def test_pod_on_a_simulated_host_that_asks_for_some_of_its_chips_is_rejected_as_on_any_other(world: World):
    pool = replace(SPOT, name="many", nodes={"kwok-0": ZONE, "kwok-1": ZONE}, labels=dict([simulated_hosts.LABEL]))
    for name in pool.nodes:
        world.api.put("Node", registered_pools.node_document(pool, name))
    running = {"phase": "Running", "containerStatuses": [{"name": "main", "state": {"running": {}}}]}
    for name, chips in (("all", "4"), ("some", "2")):
        made = world.shell("", node="kwok-1", name=name, resources={"limits": {"google.com/tpu": chips}})
        world.api.patch("Pod", name, {"metadata": {"uid": made["metadata"]["uid"]}, "status": running}, "default")
    status = world.phase("Failed", name="some")
    assert status["reason"] == "UnexpectedAdmissionError"
    assert "you must request all 4 chips on this node together" in status["message"]
    assert not status.get("containerStatuses"), "an exit code would say that something ran"
    assert world.status("all")["phase"] == "Running"


def test_pool_that_was_changed_brings_its_labels_and_taints_to_the_nodes_that_are_there(world: World):
    first = replace(SPOT, labels={"team": "research", "old": "yes"})
    world.client.add_pool(first)
    world.api.patch("Node", FIRST, {"metadata": {"labels": {"somebody": "else"}}})
    foreign = {"key": "node.kubernetes.io/unreachable", "effect": "NoSchedule"}
    world.api.patch("Node", FIRST, {"spec": {"taints": [*world.api.get("Node", FIRST)["spec"]["taints"], foreign]}})
    mine = {"key": "mine", "value": "1", "effect": "NoSchedule"}
    world.client.add_pool(replace(first, labels={"team": "speech"}, taints=(mine,)))
    node = world.api.get("Node", FIRST)
    labels = node["metadata"]["labels"]
    assert (labels["team"], labels.get("old"), labels["somebody"]) == ("speech", None, "else")
    assert [taint["key"] for taint in node["spec"]["taints"]] == ["google.com/tpu", "mine", foreign["key"]]
    world.client.add_pool(SPOT)
    assert "team" not in world.api.get("Node", FIRST)["metadata"]["labels"]


def test_preempted_slice_goes_as_a_whole_its_pods_fail_as_disrupted_and_it_comes_back(world: World):
    world.listening("trap 'exit 143' TERM", name="a", node=FIRST)
    world.listening("trap 'exit 143' TERM", name="b", node=SECOND)
    world.client.preempt(FIRST, back=0.5)
    for name in "ab":
        status = world.phase("Failed", name=name)
        condition = next(one for one in status["conditions"] if one["type"] == "DisruptionTarget")
        assert (condition["status"], condition["reason"]) == ("True", "TerminationByKubelet")
        assert status["reason"] == "Terminated"
        assert status["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 143
    world.until(lambda: all(("delete", "Node", name) in world.api.calls for name in (FIRST, SECOND)))
    order = [call[:3] for call in world.api.calls if call[0] == "delete" or call == ("patch", "Pod", "a", "status")]
    assert order.index(("patch", "Pod", "a")) < order.index(("delete", "Node", FIRST))
    assert has_node(world, NODE)
    world.until(lambda: has_node(world, FIRST) and has_node(world, SECOND))
    taints = [taint["key"] for taint in world.api.get("Node", FIRST)["spec"]["taints"]]
    assert taints == ["google.com/tpu", "cloud.google.com/gke-spot"]
    assert world.client.pools()["spot"]["presence"] == "here"


def test_pod_that_was_done_before_it_was_told_to_leave_keeps_its_result(world: World):
    world.shell("exit 0", node=FIRST)
    world.shell("exec sleep 60", name="q", node=FIRST)
    ends = "agent/pods/default_p_*/main/0/end"  # blank until then
    world.until(lambda: any(end.read_text().strip() for end in world.home.glob(ends)))
    world.client.preempt("spot", grace=1.0, back=None)
    assert "reason" not in world.phase("Succeeded")
    assert world.phase("Failed", name="q")["reason"] == "Terminated"


def test_preempted_pod_that_does_not_leave_is_killed_at_the_end_of_the_grace(world: World):
    world.listening("trap '' TERM", node=FIRST)
    world.client.preempt("spot", grace=1.0, back=None)
    ended = world.phase("Failed")["containerStatuses"][0]["state"]["terminated"]
    assert ended["exitCode"] == 137
    world.until(lambda: world.client.pools()["spot"]["presence"] == "away")
    time.sleep(0.5)
    assert not has_node(world, FIRST)
    world.client.restore("spot")
    assert has_node(world, FIRST)


def test_preemption_under_way_goes_on_after_the_agent_was_killed(world: World, home: Path):
    world.listening("trap 'sleep 1; exit 143' TERM", node=FIRST)
    world.client.preempt("spot", back=0.2)
    world.until(lambda: list(home.glob("agent/pods/*/main/0/stop")))
    world.stop()
    again = World(home, world.api)
    try:
        status = again.phase("Failed")
        assert status["reason"] == "Terminated"
        again.until(lambda: again.client.pools()["spot"]["presence"] == "here" and has_node(again, FIRST))
    finally:
        again.api.delete("Pod", "p", "default", grace=0)
        again.until(lambda: not list((home / "agent" / "pods").iterdir()))
        again.close()


REPORTS = {
    "reported": 'import json, os, time; open(os.environ["TPUKIT_PROGRESS"], "w").write(json.dumps({"step": %d}))',
    "printed": 'import time; print("step %d loss 1.0", flush=True)',
}


@pytest.mark.parametrize("report", REPORTS.values(), ids=REPORTS)
def test_fault_at_a_step_waits_for_that_step(world: World, report):
    code = f"{report % 4}; time.sleep(1); {report % 5}; time.sleep(60)"
    world.client.preempt("spot", step=5, grace=5, back=None)
    began = time.time()
    world.pod("python", "-c", code, node=SECOND)
    world.phase("Running")
    world.phase("Failed")
    assert time.time() - began > 1.0
    assert json.loads((world.home / "agent" / "faults.json").read_text()) == []


def test_lost_host_says_nothing_until_it_is_back(world: World):
    world.shell("echo $$$$; exec sleep 60", node=FIRST)
    world.phase("Running")
    pid = world.until(world.log).strip()
    world.client.lose(FIRST)
    world.until(lambda: not Path(f"/proc/{pid}").exists())
    renewed = world.api.get("Lease", FIRST, "kube-node-lease")["spec"]["renewTime"]
    other = world.api.get("Lease", SECOND, "kube-node-lease")["spec"]["renewTime"]
    world.until(lambda: world.api.get("Lease", SECOND, "kube-node-lease")["spec"]["renewTime"] != other)
    assert world.api.get("Lease", FIRST, "kube-node-lease")["spec"]["renewTime"] == renewed
    assert world.status()["phase"] == "Running"
    world.api.delete("Node", FIRST)  # deleted by someone else
    world.client.restore(FIRST)
    status = world.phase("Failed")
    assert status["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 137
    assert any(one["type"] == "DisruptionTarget" for one in status["conditions"]), "it was not the program's fault"
    assert has_node(world, FIRST)


def test_host_that_is_lost_while_its_pod_is_looked_at_says_nothing_either(world: World, monkeypatch):
    """A pod whose processes seem gone would count as a program that ended, and be charged to its user."""
    world.shell("exec sleep 60", node=FIRST)
    world.phase("Running")
    lost, looked = threading.Event(), threading.Event()
    drive, note = Driver.drive, Driver._note_reasons

    def lost_meanwhile(driver: Driver, *words: Any) -> float | None:
        if not lost.is_set():
            lost.set()
            world.client.lose(FIRST)
        return note(driver, *words)

    def driven(*words: Any) -> float | None:
        try:
            return drive(*words)
        finally:
            if lost.is_set():
                looked.set()

    monkeypatch.setattr(Driver, "_note_reasons", lost_meanwhile)
    monkeypatch.setattr(Driver, "drive", driven)
    world.api.patch("Pod", "p", {"metadata": {"labels": {"looked": "at"}}}, "default")
    assert looked.wait(PATIENCE)
    assert world.status()["phase"] == "Running"
    world.client.restore(FIRST)
    status = world.phase("Failed")
    assert any(one["type"] == "DisruptionTarget" for one in status["conditions"]), "it was not the program's fault"


def _quiet(world: World) -> str:
    """Return the log of a pod that prints all the time if it was silent for half a second, else an empty string."""
    before = world.log()
    time.sleep(0.5)
    return before if world.log() == before else ""


def test_hung_host_looks_well_and_does_nothing_until_restored(world: World):
    world.shell("while :; do echo tick; sleep 0.05; done", node=FIRST)
    world.until(lambda: world.status().get("phase") == "Running" and world.log())
    world.client.hang(FIRST)
    before = world.until(lambda: _quiet(world))
    assert world.status()["phase"] == "Running"
    world.client.restore(FIRST)
    world.until(lambda: len(world.log()) > len(before))


def test_machines_of_a_preempted_pool_and_a_lost_host_do_not_run_for_compute_engine_until_they_are_back(world: World):
    folder = world.home / "agent"
    assert emulator.not_running(folder, "spot") == {}
    world.client.lose(SECOND)
    assert emulator.not_running(folder, "spot") == {SECOND: "TERMINATED"}
    world.client.restore(SECOND)
    world.listening("trap '' TERM", node=FIRST)
    world.client.preempt("spot", grace=4, back=None)
    assert emulator.not_running(folder, "spot") == {FIRST: "STOPPING", SECOND: "STOPPING"}
    world.until(lambda: world.client.pools()["spot"]["presence"] == "away")
    assert emulator.not_running(folder, "spot") == {FIRST: "TERMINATED", SECOND: "TERMINATED"}
    world.client.restore("spot")
    assert emulator.not_running(folder, "spot") == emulator.not_running(folder, "nobody") == {}


def test_drained_host_evicts_its_pods_and_takes_no_new_ones_until_restored(world: World):
    world.shell("exec sleep 60", node=NODE, spec={"terminationGracePeriodSeconds": 1})
    world.phase("Running")
    world.client.drain(NODE)
    assert ("evict", "Pod", "p") in world.api.calls
    assert world.api.get("Node", NODE)["spec"]["unschedulable"] is True
    world.until(world.gone)
    world.client.restore(NODE)
    assert world.api.get("Node", NODE)["spec"]["unschedulable"] is False


def removing(world: World, patience: float = 3600.0, *, budgets: bool = False) -> threading.Thread:
    thread = threading.Thread(target=partial(world.client.remove_pool, "spot", patience, budgets=budgets))
    thread.start()
    return thread


def test_removed_pool_is_drained_its_pods_have_their_grace_and_its_nodes_are_gone_when_the_call_returns(
    world: World,
):
    go = world.shared / "go"
    world.listening(f"trap 'while [ ! -e {go} ]; do sleep 0.05; done; exit 0' TERM", node=FIRST)
    call = removing(world)
    world.until(lambda: "deletionTimestamp" in world.api.get("Pod", "p", "default")["metadata"])
    assert world.status()["phase"] == "Running", "it is still saving"
    why = {one["type"]: one.get("reason") for one in world.status()["conditions"]}
    assert why["DisruptionTarget"] == "EvictionByEvictionAPI"
    assert "reason" not in world.status(), "no host was shut down"
    node = world.api.get("Node", SECOND)
    assert node["spec"]["unschedulable"] is True
    assert all("impending" not in taint["key"] for taint in node["spec"]["taints"])
    go.touch()
    call.join(PATIENCE)
    assert world.gone()
    assert world.api.phases[-1] == ("p", "Succeeded")
    assert not has_node(world, FIRST)
    assert list(world.client.pools()) == ["cpu"]
    world.client.remove_pool("spot")  # idempotent


def test_removed_pool_keeps_no_budget_but_its_pods_have_their_grace(world: World):
    saved = world.shared / "saved"
    world.api.budgets.add("p")
    world.listening(f"trap 'sleep 0.5; touch {saved}; exit 0' TERM", node=FIRST)
    world.client.remove_pool("spot")
    world.until(world.gone)
    assert saved.exists()


def test_removed_pool_that_keeps_budgets_waits_for_their_pods_and_takes_them_with_it_in_the_end(world: World):
    world.api.budgets.add("p")
    world.shell("exec sleep 60", node=FIRST)
    world.phase("Running")
    call = removing(world, patience=4.0, budgets=True)
    world.until(lambda: ("evict", "Pod", "p") in world.api.calls)
    assert world.status()["phase"] == "Running"
    assert has_node(world, FIRST)
    call.join(PATIENCE)
    assert world.gone()
    assert not has_node(world, FIRST)


def test_pods_of_daemon_sets_do_not_keep_a_removed_pool_and_go_with_it(world: World):
    pod = world.shell("exec sleep 60", node=FIRST)
    world.phase("Running")
    world.api.patch("Pod", "p", {"metadata": {"ownerReferences": [{"kind": "DaemonSet", "uid": "d"}]}}, "default")
    world.until(lambda: any("ownerReferences" in one["metadata"] for one in world.agent.kubelet.on([FIRST])))
    world.client.remove_pool("spot", patience=30)
    assert ("evict", "Pod", "p") not in world.api.calls
    world.until(lambda: not list((world.home / "agent" / "pods").glob(f"*_{pod['metadata']['uid']}")))
    assert world.gone()


def test_simulated_pool_that_keeps_budgets_is_drained_and_waits_for_their_pods_for_a_while():
    class Kwok(FakeApi):
        def delete_pod(self, name: str, namespace: str = "default", grace: int | None = None) -> None:
            """Delete the pod at once, as kwok does."""
            self.delete("Pod", name, namespace, grace=0)

    api, clock = Kwok(), ManualClock()
    for name in SPOT.nodes:
        api.put("Node", {"metadata": {"name": name}, "spec": {}})
    for name in ("kept", "plain"):
        api.put("Pod", {"metadata": {"name": name}, "spec": {"nodeName": FIRST}, "status": {"phase": "Running"}})
    api.budgets.add("kept")
    kwok_pools.remove(api, SPOT, clock, patience=20.0, budgets=True)
    assert clock.now() >= 20.0
    assert api.calls.count(("evict", "Pod", "plain")) == 1
    assert api.calls.count(("evict", "Pod", "kept")) > 2
    order = [call[1:] for call in api.calls if call[0] == "delete"]
    assert order[:2] == [("Pod", "plain"), ("Pod", "kept")]
    assert {one[1] for one in order[2:]} >= set(SPOT.nodes)
    assert not api.objects


def test_pools_of_one_name_in_two_clusters_are_two_and_one_goes_without_the_other(world: World):
    clusters = [f"projects/p/locations/us-central2/clusters/{name}" for name in ("one", "two")]
    first, second = (
        Pool("shared", "e2-standard-4", {f"gke-{cluster[-3:]}-shared-0": ZONE}, cluster=cluster) for cluster in clusters
    )
    world.client.add_pool(first)
    world.client.add_pool(second)
    assert has_node(world, "gke-one-shared-0")
    assert has_node(world, "gke-two-shared-0")
    with pytest.raises(Invalid, match=f"2 pools are called shared\n.*{second.key}"):
        world.client.preempt("shared")
    world.client.drain(second.key)
    assert "unschedulable" not in world.api.get("Node", "gke-one-shared-0")["spec"]
    world.client.remove_pool(first.key)
    assert not has_node(world, "gke-one-shared-0")
    assert has_node(world, "gke-two-shared-0")
    world.client.drain("shared")  # the name is unique now
    assert list(world.client.pools()) == ["cpu", "spot", second.key]


def test_node_that_was_given_up_while_the_agent_was_silent_is_ready_again(world: World):
    """On a busy machine, heartbeats may come late; the state that Kubernetes sets then must not stay."""
    given_up = {"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown"}
    world.api.patch("Node", FIRST, {"status": {"conditions": [given_up]}}, part="status", way="strategic-merge")

    def ready() -> str:
        conditions = world.api.get("Node", FIRST)["status"]["conditions"]
        return next(one["status"] for one in conditions if one["type"] == "Ready")

    assert ready() == "Unknown"
    world.until(lambda: ready() == "True")


def test_node_that_somebody_deleted_is_registered_again(world: World):
    world.api.delete("Node", NODE)
    world.until(lambda: has_node(world, NODE))


def test_node_that_was_given_up_while_nobody_beat_for_it_is_ready_again(world: World):
    """Kubernetes leaves this state when an agent or machine was silent for longer than a node may be."""
    given_up = [{"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown"}]
    world.api.patch("Node", NODE, {"status": {"conditions": given_up}}, part="status")

    def ready() -> bool:
        conditions = world.api.get("Node", NODE)["status"]["conditions"]
        return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)

    world.until(ready)


def test_fault_on_a_pool_that_was_removed_is_not_found(world: World):
    world.client.remove_pool("spot")
    with pytest.raises(NotFound):
        world.client.lose(FIRST)


def test_sign_of_life_that_two_threads_make_at_once_is_made_once_and_adds_the_pool(home: Path):
    class Racing(FakeApi):
        """An API in which another client creates a Lease right after it was reported missing."""

        def patch(self, kind: str, name: str, change: Any, namespace: str = "", **how: Any) -> dict[str, Any]:
            try:
                return super().patch(kind, name, change, namespace, **how)
            except NotFound:
                self.put(kind, {"metadata": {"name": name, "namespace": namespace}, "spec": change["spec"]})
                raise

    world = World(home, Racing())
    world.client.add_pool(SPOT)
    assert has_node(world, FIRST)
    assert has_node(world, SECOND)
    world.stop()


def test_pool_without_tpus_grows_and_shrinks_and_pods_of_a_host_that_goes_end_first(world: World):
    more = replace(CPU, nodes={**CPU.nodes, "second": ZONE})
    world.client.add_pool(more)
    assert has_node(world, "second")
    world.listening("trap 'exit 0' TERM", name="a", node="second")
    world.shell("sleep 60", name="b", node=NODE, spec={"terminationGracePeriodSeconds": 0})
    world.phase("Running", name="b")
    world.client.add_pool(CPU)
    assert not has_node(world, "second")
    assert has_node(world, NODE)
    assert world.api.calls.count(("evict", "Pod", "a")) == 1
    world.until(lambda: world.gone("a"))  # evicted, rather than failed like a pod of a host that shut down
    assert ("a", "Failed") not in world.api.phases
    assert world.status("b")["phase"] == "Running"
    assert list(world.client.pools()["cpu"]["pool"]["nodes"]) == [NODE]


def test_pool_that_shrinks_keeps_the_budgets_of_pods_on_hosts_that_go(world: World):
    world.client.add_pool(replace(CPU, nodes={**CPU.nodes, "second": ZONE}))
    world.shell("sleep 60", name="a", node="second", spec={"terminationGracePeriodSeconds": 0})
    world.phase("Running", name="a")
    world.api.budgets.add("a")
    world.agent.nodes.add(CPU)
    world.until(lambda: ("evict", "Pod", "a") in world.api.calls)
    assert world.api.get("Node", "second")["spec"]["unschedulable"] is True
    assert world.status("a")["phase"] == "Running"
    world.api.budgets.clear()
    world.until(lambda: not has_node(world, "second") and world.gone("a"))


def test_pool_that_shrinks_and_grows_again_at_once_keeps_its_host(world: World):
    more = replace(CPU, nodes={**CPU.nodes, "second": ZONE})
    world.client.add_pool(more)
    world.shell("sleep 60", name="a", node="second", spec={"terminationGracePeriodSeconds": 0})
    world.phase("Running", name="a")
    world.api.budgets.add("a")
    world.agent.nodes.add(CPU)
    world.client.add_pool(more)
    assert not world.api.get("Node", "second")["spec"].get("unschedulable")
    assert world.status("a")["phase"] == "Running"


def test_slice_of_several_hosts_never_has_other_hosts(world: World):
    with pytest.raises(Conflict, match="other hosts"):
        world.client.add_pool(replace(SPOT, nodes={"one": ZONE, "two": ZONE}))
    assert has_node(world, FIRST)
