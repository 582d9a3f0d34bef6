"""Real Terraform with the real google provider against the emulator: the whole environment, from nothing to nothing."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.quick_provider import quicken
from support.waiting import until
from tpubox.google.wire.server import Emulator
from tpubox.google.wire.settings import EVERY_API, Hooks, Pool, Settings

ROOT = Path(__file__).resolve().parents[2]
ASKED = {
    "project_id": "tpu-project",
    "region": "us-central2",
    "zone": "us-central2-b",
    "network_name": "tpu-network",
    "subnet_name": "tpu-subnet",
    "cluster_name": "tpu-cluster",
    "artifact_repository_bucket_name": "tpu-artifacts",
    "tpu_type": "v4-32",
    "num_tpu_pools": 2,
    "firestore_database": "tpu-jobs",
    "create_service_accounts": True,
    "queue_monitoring_team": "research",
}
CLUSTER = "projects/tpu-project/locations/us-central2/clusters/tpu-cluster"


class Environment:
    """The root module in a separate copy, with its state in a bucket of the emulator."""

    def __init__(self, folder: Path, google: Emulator, environment: dict[str, str]) -> None:
        self.folder, self.google = folder, google
        self.environment = {**environment, **google.environment()}
        shutil.copytree(ROOT / "terraform", folder, ignore=shutil.ignore_patterns(".terraform*"))
        quicken(folder)
        bucket = {"name": "tf-state", "location": "us-central2", "versioning": {"enabled": True}}
        self.ask("POST", "storage/v1/b?project=tpu-project", bucket)
        channel = {"type": "email", "labels": {"email_address": "oncall@example.com"}}
        made = self.ask("POST", "monitoring/v3/projects/tpu-project/notificationChannels", channel)
        self.channel: str = made["name"]
        done = self.run("init", "-backend-config=bucket=tf-state", "-backend-config=prefix=environment")
        assert done.returncode == 0, done.stderr

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        headers = {"Authorization": f"Bearer {self.google.token}", "Content-Type": "application/json"}
        content = json.dumps(body).encode()
        request = urllib.request.Request(f"{self.google.address}/{path}", content, headers, method=method)
        with urllib.request.urlopen(request) as answer:
            return json.load(answer)

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        command = ["terraform", *words, "-no-color"]
        return subprocess.run(command, cwd=self.folder, env=self.environment, capture_output=True, text=True)

    def apply(self, **changes: Any) -> None:
        (self.folder / "terraform.tfvars.json").write_text(
            json.dumps({**ASKED, "queue_notification_channels": [self.channel], **changes})
        )
        done = self.run("apply", "-auto-approve")
        assert done.returncode == 0, done.stderr

    def there(self) -> set[str]:
        """Return the resources of the environment, without Terraform's state and the recipients of alerts."""
        every = self.google.cloud.inventory()
        return {one for one in every if "tf-state" not in one and not one.startswith("notification_channel ")}

    def marks(self) -> dict[str, str]:
        """Return the etag of each pool, which changes when the pool is recreated."""
        pools = self.google.cloud.state.all("pool")
        return {name.rpartition("/")[2]: doc["etag"] for name, doc in pools.items()}


class Kubernetes:
    """A stand-in for the API server that records nodes."""

    def __init__(self) -> None:
        self.nodes: dict[str, Pool] = {}

    def hooks(self) -> Hooks:
        return Hooks(lambda pool: self.nodes.update({pool.name: pool}), lambda pool: self.nodes.pop(pool.name, None))


@pytest.fixture(scope="module")
def kubernetes() -> Kubernetes:
    return Kubernetes()


@pytest.fixture(scope="module")
def environment(
    tmp_path_factory: pytest.TempPathFactory, terraform_environment: dict[str, str], kubernetes: Kubernetes
) -> Iterator[Environment]:
    folder = tmp_path_factory.mktemp("environment")
    settings = Settings(seconds={"": 0.3}, enabled=EVERY_API)
    with Emulator(folder / "google", settings, hooks=kubernetes.hooks()) as google:
        made = Environment(folder / "terraform", google, terraform_environment)
        made.apply()
        yield made


def test_apply_makes_everything_of_the_guide(environment, kubernetes):
    account = "projects/tpu-project/serviceAccounts/{}@tpu-project.iam.gserviceaccount.com"
    region = "projects/tpu-project/regions/us-central2"
    services = "projects/tpu-project/locations/us-central1"
    (board,) = environment.google.cloud.state.all("tensorboard")
    (dashboard,) = environment.google.cloud.state.all("dashboard")
    policies = environment.google.cloud.state.all("alert_policy")
    assert sorted(one["displayName"] for one in policies.values()) == [
        "A queued job runs for long",
        "Queued jobs fail",
        "Queued jobs hold many chips",
        "Queued jobs wait for long",
        "The queue has no supervisor",
    ]
    assert all(one["notificationChannels"] == [environment.channel] for one in policies.values())
    assert environment.there() == {
        f"account {account.format('cloud-tpu-sa')}",
        f"account {account.format('gke-sa')}",
        *(f"alert_policy {name}" for name in policies),
        "bucket tpu-artifacts",
        f"cluster {CLUSTER}",
        f"dashboard {dashboard}",
        "database projects/tpu-project/databases/tpu-jobs",
        "firewall projects/tpu-project/global/firewalls/tpu-network-webhooks",
        "log_metric projects/tpu-project/metrics/tpukit_queue_failed",
        "network projects/tpu-project/global/networks/tpu-network",
        "policy b/tpu-artifacts",
        "policy projects/tpu-project",
        f"policy {services}/repositories/tpu-cluster",
        f"policy {account.format('cloud-tpu-sa')}",
        f"pool {CLUSTER}/nodePools/cpu-pool",
        f"pool {CLUSTER}/nodePools/tpu-node-pool-0",
        f"pool {CLUSTER}/nodePools/tpu-node-pool-1",
        f"repository {services}/repositories/tpu-cluster",
        f"router {region}/routers/tpu-network-router",
        f"subnetwork {region}/subnetworks/tpu-subnet",
        f"tensorboard {board}",
    }
    (router,) = environment.google.cloud.state.all("router").values()
    assert [nat["name"] for nat in router["nats"]] == ["tpu-network-nat"]


def test_pools_have_become_nodes(environment, kubernetes):
    assert {name: len(pool.nodes) for name, pool in kubernetes.nodes.items()} == {
        "cpu-pool": 3,
        "tpu-node-pool-0": 4,
        "tpu-node-pool-1": 4,
    }
    pool = kubernetes.nodes["tpu-node-pool-0"]
    assert pool.slice is not None
    assert (pool.slice.name, pool.max_pods) == ("v4-32", 16)
    assert pool.labels["cloud.google.com/gke-tpu-topology"] == "2x2x4"
    assert pool.labels["MultisliceGroup"] == "multi-slice-group"


def test_second_plan_is_empty(environment):
    done = environment.run("plan", "-detailed-exitcode")
    assert done.returncode == 0, done.stdout


def test_requests_tell_what_terraform_did(environment):
    cloud = environment.google.cloud
    made = cloud.requests(agent="terraform-provider-google/8", path="nodePools$", method="POST")
    assert [one["path"] for one in made] == [f"container/v1/{CLUSTER}/nodePools"] * 3
    assert not [one for one in cloud.requests() if one["status"] in (400, 401, 403, 501)]


def test_state_that_is_held_is_waited_for(environment):
    lock = "b/tf-state/o?uploadType=media&name=environment/default.tflock&ifGenerationMatch=0"
    held = environment.ask("POST", f"upload/storage/v1/{lock}", {"ID": "", "Who": "somebody@else"})
    done = environment.run("plan", "-lock-timeout=0s")
    assert done.returncode == 1
    assert "Error acquiring the state lock" in done.stderr
    assert "somebody@else" in done.stderr
    done = environment.run("force-unlock", "-force", held["generation"])
    assert done.returncode == 0, done.stderr


def test_cluster_that_is_replaced_takes_its_pools_with_it(environment):
    """Replace the cluster, which deletes its pools although they remain in the state."""
    done = environment.run("plan", "-replace=module.cluster.google_container_cluster.this")
    assert done.returncode == 0, done.stderr
    replaced = set(re.findall(r"# (\S+) (?:must|will) be .?replaced", done.stdout))
    pools = {f'module.tpu_pools.google_container_node_pool.this["tpu-node-pool-{number}"]' for number in range(2)}
    assert pools | {"module.cpu_pool.google_container_node_pool.this"} <= replaced


def test_changed_shape_replaces_that_pool_alone(environment):
    before = environment.marks()
    environment.apply(tpu_pools={"tpu-node-pool-0": {}, "tpu-node-pool-1": {"tpu_type": "v4-64"}})
    after = environment.marks()
    assert {name for name in before if before[name] != after.get(name)} == {"tpu-node-pool-1"}
    pool = environment.google.cloud.state.get("pool", f"{CLUSTER}/nodePools/tpu-node-pool-1")
    assert pool["placementPolicy"]["tpuTopology"] == "2x4x4"
    assert pool["initialNodeCount"] == 8
    done = environment.run("plan", "-detailed-exitcode")
    assert done.returncode == 0, done.stdout


def test_changes_in_place_are_made_and_kept(environment):
    environment.apply()
    before = environment.marks()
    environment.apply(
        labels={"owner": "research"},
        release_channel="RAPID",
        authorized_networks={"office": "203.0.113.0/24"},
        queue_alert_limits={"chips": 8},
        cpu_pool_node_count=4,
        cpu_pool_machine_type="n2-standard-8",
    )
    cluster = environment.google.cloud.state.get("cluster", CLUSTER)
    assert cluster["resourceLabels"]["owner"] == "research"
    assert cluster["releaseChannel"] == {"channel": "RAPID"}
    done = environment.run("plan", "-detailed-exitcode")
    assert done.returncode == 0, done.stdout
    assert environment.marks() == before
    policies = environment.google.cloud.state.all("alert_policy").values()
    (cost,) = [one for one in policies if one["displayName"] == "Queued jobs hold many chips"]
    assert cost["conditions"][0]["conditionPrometheusQueryLanguage"]["query"].endswith(" > 8")


def test_plan_after_somebody_deleted_a_pool_makes_it_again(environment):
    environment.ask("DELETE", f"container/v1/{CLUSTER}/nodePools/tpu-node-pool-0")
    until(lambda: "tpu-node-pool-0" not in environment.marks())
    done = environment.run("plan", "-detailed-exitcode")
    assert done.returncode == 2
    assert re.search(r"Plan: 1 to add, 0 to change, 0 to destroy", done.stdout)


def test_destroy_leaves_nothing(environment, kubernetes):
    """Run last, because it leaves no environment for other tests."""
    environment.apply(force_destroy=True)  # removes the protection of the database
    done = environment.run("destroy", "-auto-approve")
    assert done.returncode == 0, done.stderr
    # The provider does not wait for the deletion of the database.
    until(lambda: environment.there() == set())
    assert kubernetes.nodes == {}
