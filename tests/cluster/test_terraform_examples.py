"""The examples compose the modules: each is valid, and can be planned where its inputs exist."""

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

from tpubox.google.wire.server import Emulator
from tpubox.google.wire.settings import EVERY_API, Settings

TERRAFORM = Path(__file__).resolve().parents[2] / "terraform"
EXAMPLES = sorted(folder.name for folder in (TERRAFORM / "examples").iterdir() if folder.is_dir())
EXISTING = {"network": "vpc", "subnet": "tpu", "pods_range": "pods", "services_range": "services"}
ASKED: dict[str, dict[str, str]] = {
    "complete": {},
    "existing-network": EXISTING,
    "existing-network of a host project": {
        **EXISTING,
        "host_project_id": "host-project",
        "zone": "us-central1-ai1a",
        "tpu_type": "v6e-16",
    },
    "single-pool-spot": {},
}
ATTACHED = "kubernetes-provider"
NODES = {"node_account", "cluster", "cpu_pool", "tpu_pools"}
DATA = {"workload_identity", "artifact_bucket", "artifact_registry", "tensorboard", "job_store"}
MAKING = {
    "complete": {"network", *NODES, *DATA},
    "existing-network": {"network", *NODES},
    "existing-network of a host project": NODES,
    "single-pool-spot": {"network", *NODES},
}
"""The modules of each example that create resources."""


@pytest.fixture(scope="module")
def google(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Emulator]:
    """Create two projects, each with a network that has a subnet in the regions of the examples."""
    settings = Settings(projects=("tpu-project", "host-project"), enabled=EVERY_API, seconds={"": 0.0})
    with Emulator(tmp_path_factory.mktemp("google"), settings) as running:
        for project in settings.projects:
            network = f"projects/{project}/global/networks/vpc"
            _post(running, f"{project}/global/networks", {"name": "vpc", "autoCreateSubnetworks": False})
            for number, region in enumerate(("us-east5", "us-central1")):
                ranges = [("pods", f"10.{64 + 4 * number}.0.0/16"), ("services", f"10.{128 + number}.0.0/20")]
                subnet = {
                    "name": "tpu",
                    "network": network,
                    "ipCidrRange": f"10.{number}.0.0/20",
                    "privateIpGoogleAccess": True,
                    "secondaryIpRanges": [{"rangeName": name, "ipCidrRange": cidr} for name, cidr in ranges],
                }
                _post(running, f"{project}/regions/{region}/subnetworks", subnet)
        yield running


def _post(google: Emulator, path: str, body: dict[str, Any], api: str = "compute/v1") -> None:
    headers = {"Authorization": f"Bearer {google.token}", "Content-Type": "application/json"}
    address = f"{google.address}/{api}/projects/{path}"
    with urllib.request.urlopen(urllib.request.Request(address, json.dumps(body).encode(), headers)) as answer:
        assert answer.status == 200


def test_every_example_is_tried():
    assert sorted({*(name.split()[0] for name in ASKED), ATTACHED}) == EXAMPLES


def test_example_attaches_the_kubernetes_provider_to_the_dns_endpoint_of_a_cluster(
    google, tmp_path, terraform_environment
):
    """All but the file of the kubernetes provider is applied: that provider is not built here."""
    kubernetes = (TERRAFORM / "examples" / ATTACHED / "kubernetes.tf").read_text()
    assert re.search(r"^  host += local\.host$", kubernetes, re.MULTILINE)
    assert re.search(r"^  token += data\.google_client_config\.this\.access_token$", kubernetes, re.MULTILINE)
    folder = tmp_path / "example"
    shutil.copytree(TERRAFORM / "examples" / ATTACHED, folder, ignore=shutil.ignore_patterns("kubernetes.tf"))
    cluster = {
        "name": "tpu-training",
        "initialNodeCount": 1,
        "locations": ["us-east5-a"],
        "network": "projects/tpu-project/global/networks/vpc",
        "subnetwork": "projects/tpu-project/regions/us-east5/subnetworks/tpu",
        "ipAllocationPolicy": {"useIpAliases": True, "clusterSecondaryRangeName": "pods"},
    }
    _post(google, "tpu-project/locations/us-east5/clusters", {"cluster": cluster}, "container/v1")
    environment = {**terraform_environment, **google.environment()}
    for words in (
        ("init",),
        ("apply", "-auto-approve", "-var=project_id=tpu-project", "-var=region=us-east5"),
        ("output", "-raw", "host"),
    ):
        done = subprocess.run(["terraform", *words], cwd=folder, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout[-500:] + done.stderr
    assert re.fullmatch(r"https://gke-[-a-z0-9]+\.us-east5(-\w+)?\.gke\.goog", done.stdout), done.stdout


@pytest.mark.parametrize("name", ASKED)
def test_example_is_valid_and_can_be_planned(name, google, tmp_path, terraform_environment):
    folder = tmp_path / "terraform" / "examples" / name.split()[0]
    shutil.copytree(TERRAFORM, tmp_path / "terraform", ignore=shutil.ignore_patterns(".terraform*", "tests"))
    environment = {**terraform_environment, **google.environment()}

    def terraform(*words: str) -> str:
        done = subprocess.run(
            ["terraform", *words, "-no-color"], cwd=folder, env=environment, capture_output=True, text=True
        )
        assert done.returncode == 0, f"{words}: {done.stdout[-500:]}{done.stderr}"
        return done.stdout

    terraform("init")
    assert "Success!" in terraform("validate")
    variables = {"project_id": "tpu-project", **ASKED[name]}
    planned = terraform("plan", *(f"-var={key}={value}" for key, value in variables.items()))
    assert " to add, 0 to change, 0 to destroy." in planned, planned[-1500:]
    assert set(re.findall(r"^  # module\.(\w+)\.\S+ will be created", planned, re.MULTILINE)) == MAKING[name]
    assert ("google_compute_network.this[0]" in planned) == ("network" not in ASKED[name])
    assert "Warning" not in planned
