"""The real gcloud against the emulator: it creates, lists, describes and deletes resources."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from support.waiting import PATIENCE
from tpubox.google.wire.server import Emulator
from tpubox.google.wire.settings import Settings
from tpukit.cluster import local_terraform

PROJECT, ZONE, REGION = "tpu-project", "us-central2-b", "us-central2"


class Gcloud:
    """A runner of gcloud with its own home, where gcloud keeps logs, keys and settings."""

    def __init__(self, google: Emulator, folder: Path) -> None:
        self.google = google
        own = {"HOME": str(folder), "CLOUDSDK_CONFIG": str(folder / "gcloud"), "CLOUDSDK_CORE_PROJECT": PROJECT}
        quiet = {"CLOUDSDK_CORE_DISABLE_PROMPTS": "1", "CLOUDSDK_COMPONENT_MANAGER_DISABLE_UPDATE_CHECK": "1"}
        nowhere = "http://127.0.0.1:1"  # requests to anything but the emulator fail at once
        proxies = {"HTTPS_PROXY": nowhere, "HTTP_PROXY": nowhere, "NO_PROXY": "127.0.0.1,localhost"}
        plain = {name: value for name, value in os.environ.items() if not name.startswith(("CLOUDSDK_", "GOOGLE_"))}
        self._env = {
            **plain,
            **proxies,
            **google.environment(),
            **own,
            **quiet,
            "KUBECONFIG": str(folder / "kubeconfig"),
        }

    def __call__(self, line: str) -> Any:
        """Run a command, and return its output as data."""
        printed = self.run(["gcloud", *line.split(), "--format=json"])
        return json.loads(printed) if printed.strip() else None

    def run(self, argv: Sequence[str]) -> str:
        done = subprocess.run(argv, env=self._env, capture_output=True, text=True, timeout=PATIENCE)
        assert done.returncode == 0, f"{' '.join(argv)}: {done.stderr}"
        return done.stdout


@pytest.fixture(scope="module")
def gcloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gcloud]:
    if shutil.which("gcloud") is None:
        pytest.fail("gcloud is not on PATH: install the Google Cloud CLI")
    used = ("artifactregistry", "cloudresourcemanager", "compute", "container", "iam", "tpu")
    settings = Settings(enabled=(*Settings().enabled, *used), arrival_seconds=0.0)
    with Emulator(tmp_path_factory.mktemp("google"), settings) as google:
        yield Gcloud(google, tmp_path_factory.mktemp("home"))


def test_services_are_enabled_and_listed(gcloud: Gcloud):
    gcloud("services enable aiplatform.googleapis.com cloudbuild.googleapis.com")
    on = {one["config"]["name"] for one in gcloud("services list --enabled --page-size=5")}
    assert {"aiplatform.googleapis.com", "cloudbuild.googleapis.com", "storage.googleapis.com"} <= on
    assert "secretmanager.googleapis.com" not in on


def test_project_is_described_and_a_service_account_is_granted_a_role(gcloud: Gcloud):
    assert gcloud(f"projects describe {PROJECT}")["projectId"] == PROJECT
    gcloud("iam service-accounts create trainer --display-name Trainer")
    email = f"trainer@{PROJECT}.iam.gserviceaccount.com"
    assert [one["email"] for one in gcloud("iam service-accounts list")] == [email]
    member = f"serviceAccount:{email}"
    gcloud(
        f"projects add-iam-policy-binding {PROJECT} --member {member} --role roles/logging.logWriter --condition None"
    )
    bindings = gcloud(f"projects get-iam-policy {PROJECT}")["bindings"]
    assert {"role": "roles/logging.logWriter", "members": [member]} in bindings


def test_repository_is_made_listed_described_and_deleted(gcloud: Gcloud):
    where = f"--location {REGION}"
    gcloud(f"artifacts repositories create images --repository-format docker {where}")
    full = f"projects/{PROJECT}/locations/{REGION}/repositories/images"
    assert [one["name"] for one in gcloud(f"artifacts repositories list {where}")] == [full]
    assert gcloud(f"artifacts repositories describe images {where}")["format"] == "DOCKER"
    gcloud(f"artifacts repositories delete images {where}")
    assert gcloud(f"artifacts repositories list {where}") == []


def test_network_cluster_and_slice_pool_are_made_with_a_topology_alone(gcloud: Gcloud):
    gcloud("compute networks create net --subnet-mode custom")
    gcloud(f"compute networks subnets create subnet --network net --region {REGION} --range 10.0.0.0/20")
    assert [one["name"] for one in gcloud("compute networks subnets list --network net")] == ["subnet"]
    gcloud(f"container clusters create one --zone {ZONE} --num-nodes 1 --network net --subnetwork subnet")
    pool = "--machine-type ct4p-hightpu-4t --tpu-topology 2x2x2 --num-nodes 2"
    gcloud(f"container node-pools create slice --cluster one --zone {ZONE} {pool}")
    shown = gcloud(f"container node-pools describe slice --cluster one --zone {ZONE}")
    assert (shown["status"], shown["placementPolicy"]["tpuTopology"]) == ("RUNNING", "2x2x2")


def test_subnet_is_changed_and_stays_while_a_vm_uses_it(gcloud: Gcloud):
    where = f"--region={REGION}"
    gcloud("compute networks create roads --subnet-mode=custom")
    gcloud(f"compute networks subnets create road --network=roads {where} --range=10.1.0.0/24")
    change = f"compute networks subnets update road {where}"
    gcloud(f"{change} --enable-private-ip-google-access")
    gcloud(f"{change} --enable-flow-logs")
    gcloud(f"{change} --add-secondary-ranges=pods=10.2.0.0/20")
    gcloud(f"compute networks subnets expand-ip-range road {where} --prefix-length=20")
    told = gcloud(f"compute networks subnets describe road {where}")
    assert (told["privateIpGoogleAccess"], told["logConfig"]["enable"]) == (True, True)
    assert told["ipCidrRange"] == "10.1.0.0/20"
    assert [one["rangeName"] for one in told["secondaryIpRanges"]] == ["pods"]
    node = "--accelerator-type=v4-8 --version=tpu-ubuntu2204-base --network=roads --subnetwork=road"
    gcloud(f"compute tpus tpu-vm create traveller --zone={ZONE} {node}")
    with pytest.raises(AssertionError, match="is already being used by"):
        gcloud(f"compute networks subnets delete road {where}")
    gcloud(f"compute tpus tpu-vm delete traveller --zone={ZONE}")
    gcloud(f"compute networks subnets delete road {where}")


def test_network_in_auto_mode_is_made_and_deleted_with_its_subnets(gcloud: Gcloud):
    gcloud("compute networks create auto")
    subnets = gcloud("compute networks subnets list --network=auto")
    assert {one["name"] for one in subnets} == {"auto"}
    assert len(subnets) > 40
    gcloud("compute networks delete auto")
    assert gcloud("compute networks subnets list --network=auto") == []


def test_firewall_rule_is_changed_where_it_may_be(gcloud: Gcloud):
    gcloud("compute networks create walls --subnet-mode=custom")
    gcloud("compute firewall-rules create wall --network=walls --allow=tcp:22,icmp")
    assert gcloud("compute firewall-rules describe wall")["sourceRanges"] == ["0.0.0.0/0"]
    gcloud("compute firewall-rules update wall --allow=tcp:80 --source-ranges=10.0.0.0/8 --priority=7")
    told = gcloud("compute firewall-rules describe wall")
    assert (told["sourceRanges"], told["priority"]) == (["10.0.0.0/8"], 7)
    assert told["allowed"] == [{"IPProtocol": "tcp", "ports": ["80"]}]


def test_queued_resource_is_made_listed_and_deleted_with_its_node(gcloud: Gcloud):
    where = f"--zone {ZONE}"
    node = "--node-id vm --accelerator-type v4-8 --runtime-version tpu-ubuntu2204-base"
    gcloud(f"compute tpus queued-resources create waiting {node} {where}")
    (listed,) = gcloud(f"compute tpus queued-resources list {where}")
    assert listed["name"].endswith("/queuedResources/waiting")
    gcloud(f"compute tpus queued-resources delete waiting --force {where}")
    assert gcloud(f"compute tpus queued-resources list {where}") == []


def test_machines_that_are_lent_for_a_day_and_wanted_later_are_requested_by_alpha(gcloud: Gcloud):
    where = f"--zone={ZONE}"
    node = "--node-id=lent --accelerator-type=v4-8 --runtime-version=tpu-ubuntu2204-base"
    times = "--valid-after-duration=1h --valid-until-duration=2h --max-run-duration=1d"
    command = "alpha compute tpus queued-resources"
    gcloud(f"{command} create lent {node} {times} --provisioning-model=flex-start {where}")
    told = gcloud(f"{command} describe lent {where}")
    assert (told["state"]["state"], told["provisioningModel"]) == ("ACCEPTED", "FLEX_START")
    assert told["runDuration"] == {"maxRunDuration": "86400s"}
    assert set(told["queueingPolicy"]["validInterval"]) == {"startTime", "endTime"}
    assert "runDuration" not in gcloud(f"compute tpus queued-resources describe lent {where}")
    gcloud(f"{command} delete lent {where}")


def test_rules_that_gke_left_are_found_by_destroy_and_no_others(gcloud: Gcloud):
    for network in ("ours", "ours-too"):
        gcloud(f"compute networks create {network} --subnet-mode=custom")
        for rule in ("gke", "k8s", "webhooks"):
            gcloud(f"compute firewall-rules create {rule}-{network} --network={network} --allow=tcp:1")
    found = gcloud.run(local_terraform.rules_of_gke(PROJECT, "ours").argv)
    assert sorted(found.split()) == ["gke-ours", "k8s-ours"]
