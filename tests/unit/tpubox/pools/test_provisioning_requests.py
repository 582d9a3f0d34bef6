"""Slices from queued provisioning: for one request only, and all of its slices together."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.google_world import World, pool
from tpubox.google.wire.faults import Fault
from tpubox.google.wire.settings import EVERY_API, Hooks
from tpubox.google.wire.settings import Pool as GooglePool
from tpubox.pools.autoscaler import Autoscaler
from tpubox.pools.provisioning_requests import BOOKED_SECONDS, CLASS, RETRY_SECONDS
from tpukit import catalogue
from tpukit.jobs import plan, render
from tpukit.jobs.spec import JobSpec, Settings

Doc = dict[str, Any]
SHAPE = catalogue.find("v6e-16")
UNSCHEDULABLE = [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]


class Requests:
    """The part of a cluster that the autoscaler uses: requests, templates, pods and nodes."""

    def __init__(self) -> None:
        self.requests: dict[str, Doc] = {}
        self.template: Doc = {}
        self.pods: list[Doc] = []
        self.labelled: dict[str, str] = {}

    def call(self, method: str, path: str, *, body: Any = None, content: str = "") -> Any:
        if "/podtemplates/" in path:
            return {"template": self.template}
        if method == "GET":
            return {"items": copy.deepcopy(list(self.requests.values()))}
        assert path.endswith("/status")
        self.requests[path.split("/")[-2]].setdefault("status", {}).update(body["status"])
        return {}

    def list(self, kind: str, *, fields: str = "") -> list[Doc]:
        return self.pods if kind == "Pod" and fields == "status.phase=Pending" else []

    def patch(self, kind: str, name: str, change: Doc) -> None:
        self.labelled[name] = change["metadata"]["labels"]["autoscaling.gke.io/provisioning-request"]

    def apply(self, document: Doc, manager: str = "") -> None:
        assert document["kind"] == "Event"

    def ask(self, name: str, count: int) -> None:
        self.requests[name] = {
            "metadata": {
                "name": name,
                "namespace": "team",
                "uid": name,
                "creationTimestamp": f"{len(self.requests):03}",
            },
            "spec": {
                "provisioningClassName": CLASS,
                "podSets": [{"count": count, "podTemplateRef": {"name": "template"}}],
            },
        }

    def said(self, name: str) -> list[str]:
        return [one["type"] for one in self.requests[name].get("status", {}).get("conditions", [])]


class Box:
    def __init__(self, folder: Path, pools: int) -> None:
        self.came: dict[str, GooglePool] = {}
        self.world = World(folder, Hooks(lambda one: self.came.update({one.name: one})), enabled=EVERY_API)
        self.cluster = Requests()
        spec = {
            "name": "job",
            "tpu": "v6e-16",
            "command": ["true"],
            "image": "i",
            "capacity": "flex-start",
        }
        made = plan.make(JobSpec.from_json({**spec, "workdir": "gs://bucket/w"}), Settings(), "gke")
        (job,) = render.documents(made)[0]["spec"]["replicatedJobs"]
        self.cluster.template = job["template"]["spec"]["template"]
        self.scaler = Autoscaler(self.world.cloud, lambda: self.cluster)  # type: ignore[arg-type, return-value]
        self.path = self.world.cluster("us-east5", "us-east5-a")
        for number in range(pools):
            self.world.ask("POST", self.path, flex(f"flex-{number}"))

    def pass_time(self, seconds: float = 3.0) -> None:
        self.scaler.tick()
        self.world.pass_time(seconds)
        self.scaler.tick()

    def sizes(self) -> list[int]:
        return sorted(
            len(one["_nodes"]) for one in self.world.cloud.state.all("pool").values() if "flex" in one["name"]
        )


def flex(name: str) -> Doc:
    return pool(
        name,
        initialNodeCount=0,
        autoscaling={"enabled": True, "maxNodeCount": 4},
        queuedProvisioning={"enabled": True},
        management={"autoRepair": False, "autoUpgrade": True},
        config={
            "machineType": "ct6e-standard-4t",
            "diskType": "hyperdisk-balanced",
            "flexStart": True,
            "reservationAffinity": {"consumeReservationType": "NO_RESERVATION"},
        },
        placementPolicy={"type": "COMPACT", "tpuTopology": "4x4"},
    )


@pytest.fixture
def box(tmp_path: Path) -> Iterator[Box]:
    made = Box(tmp_path / "google", pools=2)
    with made.world:
        yield made


def test_request_brings_its_slice_whole_with_the_labels_that_its_pods_select(box: Box):
    box.cluster.ask("one", count=4)
    for _ in range(4):
        box.pass_time()
    assert box.cluster.said("one") == ["Accepted", "Provisioned"]
    assert box.sizes() == [0, 4]
    selector = box.cluster.template["spec"]["nodeSelector"]
    for one in box.came.values():
        if one.name.startswith("flex"):
            assert selector.items() <= one.labels.items()
            assert "cloud.google.com/gke-queued" in [taint["key"] for taint in one.taints]
    details = box.cluster.requests["one"]["status"]["provisioningClassDetails"]
    assert set(box.cluster.labelled.values()) == {details["ResizeRequestName"]}
    box.pass_time(BOOKED_SECONDS)
    assert box.cluster.said("one")[-1] == "BookingExpired"


def test_pods_alone_bring_no_slice_of_queued_provisioning(box: Box):
    metadata = {"name": "a", "uid": "a", "namespace": "team"}
    box.cluster.pods = [{"metadata": metadata, **box.cluster.template, "status": {"conditions": UNSCHEDULABLE}}]
    box.cluster.pods[0]["metadata"] = metadata
    for _ in range(3):
        box.pass_time()
    assert box.sizes() == [0, 0]


def test_request_waits_while_there_are_no_chips_for_all_of_it_and_leaves_none_half_made(box: Box):
    box.world.cloud.faults.set(Fault("stockout", ".*flex-[01]$"))
    box.cluster.ask("one", count=4)
    for _ in range(4):
        box.pass_time()
    assert box.cluster.said("one") == ["Accepted"]
    box.world.cloud.faults.clear()
    for _ in range(6):
        box.pass_time(RETRY_SECONDS)
    assert box.cluster.said("one") == ["Accepted", "Provisioned"]
    assert box.sizes() == [0, 4]


def test_request_waits_for_slices_that_others_have_and_takes_the_next_that_is_free(box: Box):
    for name in ("first", "second", "third"):
        box.cluster.ask(name, count=4)
    for _ in range(5):
        box.pass_time(RETRY_SECONDS)
    assert box.cluster.said("first") == box.cluster.said("second") == ["Accepted", "Provisioned"]
    assert box.cluster.said("third") == ["Accepted"]
    assert box.sizes() == [4, 4]


def test_request_for_two_slices_fails_because_one_pool_serves_a_request(box: Box):
    box.cluster.ask("both", count=8)
    for _ in range(3):
        box.pass_time(RETRY_SECONDS)
    assert box.cluster.said("both") == ["Accepted", "Failed"]
    assert box.sizes() == [0, 0]


def test_pool_of_queued_provisioning_is_refused_for_generations_that_google_does_not_serve(box: Box):
    asked = flex("flex-v5p")
    asked["nodePool"]["config"] |= {"machineType": "ct5p-hightpu-4t", "diskType": "pd-balanced"}
    asked["nodePool"] |= {"autoscaling": {"enabled": True, "maxNodeCount": 2}}
    asked["nodePool"]["placementPolicy"] |= {"tpuTopology": "2x2x2"}
    status, _, text = box.world.refusal("POST", box.path, asked)
    assert (status, text) == (400, "Flex start node pools don't support TPUs with queued provisioning.")
    del asked["nodePool"]["queuedProvisioning"]
    box.world.ask("POST", box.path, asked)
