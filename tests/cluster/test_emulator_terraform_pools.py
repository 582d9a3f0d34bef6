"""Node pools from real Terraform in the emulator, under every fault that Google can cause."""

from __future__ import annotations

import json
import shutil
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.waiting import until
from tpubox.google.compute import stock_and_quota
from tpubox.google.wire.faults import Fault
from tpubox.google.wire.server import Emulator
from tpubox.google.wire.settings import EVERY_API, Hooks, Pool, Settings

ROOT = Path(__file__).resolve().parents[2]
POOLS = r"POST .*/nodePools$"
SHAPES = {
    "v4-32": ("v4", "ct4p-hightpu-4t", "2x2x4", 4, "compact"),
    "v5e-8": ("v5e", "ct5lp-hightpu-8t", "2x4", 1, "none"),
    "v5p-16": ("v5p", "ct5p-hightpu-4t", "2x2x2", 2, "compact"),
    "v6e-16": ("v6e", "ct6e-standard-4t", "4x4", 4, "compact"),
    "tpu7x-16": ("tpu7x", "tpu7x-standard-4t", "2x2x2", 2, "policy"),
}
AT_ONCE = Settings(enabled=EVERY_API, seconds={"": 0.0})


def shape(name: str, **changes: Any) -> dict[str, Any]:
    generation, machine_type, topology, hosts, placement = SHAPES[name]
    words = {"generation": generation, "machine_type": machine_type, "topology": topology, "hosts": hosts}
    return {**words, "placement": placement, "capacity": "on-demand", **changes}


class Pools:
    """The module of the pools alone, on an existing cluster."""

    def __init__(self, folder: Path, google: Emulator, environment: dict[str, str], zone: str) -> None:
        self.folder, self.google, self.zone = folder, google, zone
        self.region = zone.rpartition("-")[0]
        self.environment = {**environment, **google.environment(), "GOOGLE_PROJECT": "tpu-project"}
        shutil.copytree(ROOT / "terraform" / "modules" / "tpu_pools", folder)
        (folder / "provider.tf").write_text('provider "google" {\n  poll_interval = "100ms"\n}\n')
        self._make_cluster()
        done = self.run("init")
        assert done.returncode == 0, done.stderr

    def _make_cluster(self) -> None:
        compute = "compute/v1/projects/tpu-project"
        network = "projects/tpu-project/global/networks/net"
        self.ask("POST", f"{compute}/global/networks", {"name": "net", "autoCreateSubnetworks": False})
        pods = [{"rangeName": "pods", "ipCidrRange": "10.64.0.0/14"}]
        ranges = {"ipCidrRange": "10.0.0.0/20", "secondaryIpRanges": pods}
        subnet = {"name": "subnet", "network": network, **ranges}
        self.ask("POST", f"{compute}/regions/{self.region}/subnetworks", subnet)
        cluster = {
            "name": "one",
            "locations": [self.zone],
            "initialNodeCount": 1,
            "workloadIdentityConfig": {"workloadPool": "tpu-project.svc.id.goog"},
            "network": network,
            "subnetwork": f"projects/tpu-project/regions/{self.region}/subnetworks/subnet",
            "ipAllocationPolicy": {"useIpAliases": True, "clusterSecondaryRangeName": "pods"},
        }
        self.cluster = f"projects/tpu-project/locations/{self.region}/clusters/one"
        self.ask(
            "POST",
            f"container/v1/{self.cluster.removesuffix('/one')}",
            {"cluster": {**cluster, "releaseChannel": {"channel": "UNSPECIFIED"}}},
        )
        self.ask("DELETE", f"container/v1/{self.cluster}/nodePools/default-pool")

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        headers = {"Authorization": f"Bearer {self.google.token}", "Content-Type": "application/json"}
        content = json.dumps(body).encode() if body is not None else None
        request = urllib.request.Request(f"{self.google.address}/{path}", content, headers, method=method)
        with urllib.request.urlopen(request) as answer:
            return json.load(answer)

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        command = ["terraform", *words, "-no-color"]
        return subprocess.run(command, cwd=self.folder, env=self.environment, capture_output=True, text=True)

    def apply(self, pools: dict[str, Any], **changes: Any) -> subprocess.CompletedProcess[str]:
        asked = {
            "project_id": "tpu-project",
            "region": self.region,
            "zone": self.zone,
            "cluster": self.cluster,
            "pools": pools,
            "autoscaling": False,
            "max_run_duration": "604800s",
            "max_pods_per_node": 16,
            "disk_size": 100,
            "auto_upgrade": True,
            "multislice_group_name": "group",
            "node_service_account": "nodes@elsewhere.iam.gserviceaccount.com",
            "labels": {"team": "research"},
            **changes,
        }
        (self.folder / "terraform.tfvars.json").write_text(json.dumps(asked))
        return self.run("apply", "-auto-approve")

    def applied(self, pools: dict[str, Any], **changes: Any) -> None:
        """Apply without errors, and check that a second plan is empty."""
        done = self.apply(pools, **changes)
        assert done.returncode == 0, done.stderr
        done = self.run("plan", "-detailed-exitcode")
        assert done.returncode == 0, done.stdout

    def pool(self, name: str) -> dict[str, Any] | None:
        return self.google.cloud.state.get("pool", f"{self.cluster}/nodePools/{name}")


def _serve(folder: Path, environment: dict[str, str], zone: str) -> Iterator[Pools]:
    with Emulator(folder / "google", AT_ONCE) as google:
        yield Pools(folder / "terraform", google, environment, zone)


@pytest.fixture
def v4(tmp_path: Path, terraform_environment: dict[str, str]) -> Iterator[Pools]:
    yield from _serve(tmp_path, terraform_environment, "us-central2-b")


def test_quota_refuses_at_once_and_leaves_nothing(v4):
    stock_and_quota.limit_quota(v4.google.cloud, "us-central2", "v4", 24)
    done = v4.apply({"a": shape("v4-32"), "b": shape("v4-32")}, auto_upgrade=False)
    assert done.returncode == 1
    assert 'Insufficient regional quota to satisfy request: resource "TPU_PODSLICE_V4"' in done.stderr
    assert "short '8.0'" in done.stderr
    assert [v4.pool("a"), v4.pool("b")].count(None) == 1
    stock_and_quota.limit_quota(v4.google.cloud, "us-central2", "v4", 32)
    v4.applied({"a": shape("v4-32"), "b": shape("v4-32")})


def test_too_many_requests_are_tried_again(v4):
    v4.google.cloud.faults.set(Fault("refuse", POOLS, times=2, status=429))
    v4.applied({"a": shape("v4-32")})
    asked = v4.google.cloud.requests(agent="Terraform", path="nodePools$", method="POST")
    assert [one["status"] for one in asked] == [429, 429, 200]


def test_broken_server_is_tried_again(v4):
    v4.google.cloud.faults.set(Fault("refuse", r"GET container/.*/operations/", times=2, status=503))
    v4.google.cloud.faults.set(Fault("refuse", POOLS, times=1, status=500))
    v4.google.cloud.faults.set(Fault("slow", "CREATE_NODE_POOL", seconds=0.5))
    v4.applied({"a": shape("v4-32")})


def test_stock_out_leaves_a_pool_in_error_that_the_next_apply_replaces(v4):
    stock_and_quota.limit_stock(v4.google.cloud, "us-central2-b", "v4", 16)
    done = v4.apply({"a": shape("v4-32"), "b": shape("v4-32")})
    assert done.returncode == 1
    assert 'was created in the error state "ERROR"' in done.stderr
    failed = next(name for name in ("a", "b") if v4.pool(name)["status"] == "ERROR")
    (condition,) = v4.pool(failed)["conditions"]
    assert condition["code"] == "GCE_STOCKOUT"
    assert "us-central2-b" in v4.pool(failed)["statusMessage"]
    before = v4.pool(failed)["etag"]
    stock_and_quota.limit_stock(v4.google.cloud, "us-central2-b", "v4", 32)
    v4.applied({"a": shape("v4-32"), "b": shape("v4-32")})
    assert v4.pool(failed)["status"] == "RUNNING"
    assert v4.pool(failed)["etag"] != before


def test_operation_that_ends_with_an_error_says_so_and_leaves_nothing(v4):
    v4.google.cloud.faults.set(Fault("fail", "CREATE_NODE_POOL", times=1, message="Internal error, try again later."))
    done = v4.apply({"a": shape("v4-32")})
    assert done.returncode == 1
    assert "Internal error, try again later." in done.stderr
    assert v4.pool("a") is None
    v4.applied({"a": shape("v4-32")})


def test_pool_that_runs_with_error_is_reported(v4):
    v4.google.cloud.faults.set(Fault("broken", times=1))
    done = v4.apply({"a": shape("v4-32")})
    assert done.returncode == 1
    assert '"RUNNING_WITH_ERROR"' in done.stderr


def test_shape_that_gke_does_not_have_is_refused_in_its_words(v4):
    done = v4.apply({"a": shape("v4-32", hosts=3)})
    assert done.returncode == 1
    assert "Number of nodes 3 does not match TPU topology 2x2x4" in done.stderr


@pytest.mark.parametrize(
    ("zone", "pools", "changes"),
    [
        ("us-central1-a", {"alone": shape("v5e-8"), "spot": shape("v5p-16", capacity="spot")}, {}),
        ("us-central1-a", {"kept": shape("v5p-16", capacity="reservation", reservation_name="ours")}, {}),
        ("us-central1-a", {"scaled": shape("v5p-16")}, {"autoscaling": True}),
        ("us-central1-b", {"flex": shape("v6e-16", capacity="flex-start")}, {}),
        ("us-central1-c", {"newest": shape("tpu7x-16")}, {}),
    ],
    ids=["single-host-and-spot", "reservation", "autoscaling", "flex-start", "workload-policy"],
)
def test_pool_of_every_kind_applies_plans_clean_and_goes(tmp_path, terraform_environment, zone, pools, changes):
    with Emulator(tmp_path / "google", AT_ONCE) as google:
        stock_and_quota.reserve(google.cloud, "ours", zone, "v5p", 8)
        module = Pools(tmp_path / "terraform", google, terraform_environment, zone)
        before = google.cloud.inventory()
        module.applied(pools, **changes)
        assert {name: module.pool(name)["status"] for name in pools} == dict.fromkeys(pools, "RUNNING")
        done = module.run("destroy", "-auto-approve")
        assert done.returncode == 0, done.stderr
        assert google.cloud.inventory() == before


def test_autoscaling_switched_on_and_off_leaves_pools_with_the_hosts_that_they_should_have(
    tmp_path, terraform_environment
):
    with Emulator(tmp_path / "google", AT_ONCE) as google:
        module = Pools(tmp_path / "terraform", google, terraform_environment, "us-central1-a")
        pools = {"several": shape("v5p-16"), "one": shape("v5e-8")}
        for scaled, sizes in ((False, [1, 2]), (True, [0, 0]), (False, [1, 2])):
            module.applied(pools, autoscaling=scaled)
            found = google.cloud.state.all("pool").values()
            assert sorted(len(pool["_nodes"]) for pool in found) == sizes
            assert {pool.get("autoscaling", {}).get("enabled", False) for pool in found} == {scaled}


def test_taint_and_shutdown_of_a_spot_pool_come_to_one_that_is_there(tmp_path, terraform_environment):
    seen: list[Any] = []
    with Emulator(tmp_path / "google", AT_ONCE, hooks=Hooks(seen.append)) as google:
        module = Pools(tmp_path / "terraform", google, terraform_environment, "us-central2-b")
        pools = {"spot": shape("v4-32", capacity="spot")}
        module.applied(pools)
        assert [taint["key"] for taint in seen[-1].taints] == ["cloud.google.com/gke-spot", "google.com/tpu"]
        module.applied(pools, spot_shutdown_seconds=120)
        assert module.pool("spot")["config"]["kubeletConfig"]["shutdownGracePeriodSeconds"] == 120


def test_busy_cluster_is_waited_for(tmp_path, terraform_environment):
    """Create five pools at once where GKE runs two operations: the others are refused, retried and created."""

    def refused() -> list[Any]:
        return [one for one in google.cloud.requests(path="nodePools$", method="POST") if one["status"] == 429]

    def came(pool: Pool) -> None:
        if pool.name.startswith("pool-"):  # the first two stay in progress until a third is refused
            until(refused, "a third pool to be refused")

    settings = Settings(seconds={"": 0.0}, cluster_operations=2, enabled=EVERY_API)
    with Emulator(tmp_path / "google", settings, hooks=Hooks(came)) as google:
        pools = Pools(tmp_path / "terraform", google, terraform_environment, "us-central2-b")
        pools.applied({f"pool-{number}": shape("v4-32") for number in range(5)})
        assert refused()
        done = pools.apply({})
        assert done.returncode == 0, done.stderr
        assert google.cloud.state.all("pool") == {}
