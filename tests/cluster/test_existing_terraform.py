"""Real Terraform over existing resources: networks, a Shared VPC, a bucket, a repository. Destroy leaves them."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cluster.test_emulator_terraform import ASKED, ROOT, Environment
from support.page_commands import commands
from support.waiting import PATIENCE
from tpubox.google.wire.server import Emulator
from tpubox.google.wire.settings import Settings, number_of
from tpukit.cluster import outputs
from tpukit.jobs.spec.settings import Settings as PersonSettings

PROJECT, HOST, REGION = "tpu-project", "host-project", "us-central2"
SUBNET = "regions/us-central2/subnetworks/tpu-subnet"
SMALL = {
    **{"firestore_database": None, "queue_monitoring_team": None},
    **{"num_tpu_pools": 1, "tpu_type": "v4-8", "cpu_pool_node_count": 1},
}
ASKED_SMALL = {**ASKED, **SMALL}
NAMED = {"create_subnet": False, "pods_range_name": "for-pods", "services_range_name": "for-services"}


@pytest.fixture(scope="module")
def environment(
    tmp_path_factory: pytest.TempPathFactory, terraform_environment: dict[str, str]
) -> Iterator[Environment]:
    folder = tmp_path_factory.mktemp("existing")
    settings = Settings(projects=(PROJECT, HOST), seconds={"": 0.1}, enabled=apis_of_the_readme(), arrival_seconds=0.0)
    with Emulator(folder / "google", settings) as google:
        made = Environment(folder / "terraform", google, terraform_environment)
        make_network(made, PROJECT)
        yield made


def apis_of_the_readme() -> tuple[str, ...]:
    """Return the APIs that a user enables by hand. Terraform must succeed with only these."""
    block = re.search(r"gcloud services enable (.*?)```", (ROOT / "terraform" / "README.md").read_text(), re.DOTALL)
    assert block
    return tuple(re.findall(r"(\w+)\.googleapis\.com", block[1]))


def make_network(environment: Environment, project: str) -> None:
    """Create a network with a subnet that has ranges for clusters, as an earlier user would have."""
    compute = f"compute/v1/projects/{project}"
    network = f"projects/{project}/global/networks/tpu-network"
    environment.ask("POST", f"{compute}/global/networks", {"name": "tpu-network", "autoCreateSubnetworks": False})
    ranges = {"for-pods": "10.4.0.0/20", "for-services": "10.8.0.0/24"}
    subnet = {
        "name": "tpu-subnet",
        "network": network,
        "ipCidrRange": "10.0.0.0/24",
        "privateIpGoogleAccess": True,
        "secondaryIpRanges": [{"rangeName": name, "ipCidrRange": text} for name, text in ranges.items()],
    }
    environment.ask("POST", f"{compute}/regions/{REGION}/subnetworks", subnet)


def documents(environment: Environment) -> dict[str, Any]:
    """Return all resources of the cloud with every field, without Terraform's state."""
    state = environment.google.cloud.state
    found = {one: state.get(*one.split(" ", 1)) for one in environment.there()}
    return json.loads(json.dumps({name: doc for name, doc in found.items() if not name.startswith("object")}))


def destroy(environment: Environment) -> None:
    done = environment.run("destroy", "-auto-approve")
    assert done.returncode == 0, done.stderr


def test_network_bucket_and_repository_that_exist_are_used_and_left_as_they_were(environment):
    environment.ask(
        "POST",
        f"storage/v1/b?project={PROJECT}",
        {"name": "tpu-artifacts", "location": REGION, "labels": {"owner": "research"}},
    )
    somebody = {"bindings": [{"role": "roles/storage.admin", "members": ["user:a@example.com"]}]}
    environment.ask("PUT", "storage/v1/b/tpu-artifacts/iam", somebody)
    repositories = f"artifact_registry/v1/projects/{PROJECT}/locations/us/repositories"
    environment.ask("POST", f"{repositories}?repositoryId=images", {"format": "DOCKER"})
    before = documents(environment)
    there = {
        "create_network": False,
        "create_bucket": False,
        "create_artifact_registry": False,
        "artifact_registry_name": "images",
        "artifact_registry_location": "us",
        **NAMED,
    }
    environment.apply(**SMALL, **there)
    made = environment.there() - before.keys()
    kinds = {one.split()[0] for one in made}
    assert kinds == {"account", "cluster", "firewall", "policy", "pool", "tensorboard"}
    assert f"firewall projects/{PROJECT}/global/firewalls/tpu-cluster-webhooks" in made
    (cluster,) = environment.google.cloud.state.all("cluster").values()
    assert cluster["ipAllocationPolicy"]["clusterSecondaryRangeName"] == "for-pods"
    grants = environment.google.cloud.state.get("policy", "b/tpu-artifacts")["bindings"]
    assert {binding["role"] for binding in grants} == {
        *("roles/storage.admin", "roles/storage.legacyBucketReader", "roles/storage.objectUser")
    }
    done = environment.run("plan", "-detailed-exitcode")
    assert done.returncode == 0, done.stdout
    printed = json.loads(environment.run("output", "-json").stdout)
    settings = PersonSettings(**outputs.settings_from(outputs.values(printed)))
    (board,) = environment.google.cloud.state.all("tensorboard")
    assert (settings.artifacts, settings.tensorboard) == ("gs://tpu-artifacts", board)
    assert printed["image_repository"]["value"] == f"us-docker.pkg.dev/{PROJECT}/images"
    destroy(environment)
    assert documents(environment) == before


def test_network_that_exists_takes_a_new_subnet_with_a_nat(environment):
    before = documents(environment)
    asked = {"create_network": False, "create_nat": True, "subnet_name": "own-subnet"}
    environment.apply(**SMALL, **asked, artifact_repository_bucket_name="own-artifacts", enable_tensorboard=False)
    region = f"projects/{PROJECT}/regions/{REGION}"
    assert {f"subnetwork {region}/subnetworks/own-subnet", f"router {region}/routers/tpu-cluster-router"} <= (
        environment.there() - before.keys()
    )
    done = environment.run("plan", "-detailed-exitcode")
    assert done.returncode == 0, done.stdout
    destroy(environment)
    assert documents(environment) == before


def grant_as_the_page_says(environment: Environment, home: Path) -> None:
    """Type the lines for owners of a Shared VPC."""
    lines = commands("terraform/README.md")
    first = next(number for number, line in enumerate(lines) if line.startswith("GKE="))
    typed = "\n".join(lines[first : first + 6])
    names = {"PROJECT_NUMBER": number_of(PROJECT), "HOST_PROJECT": HOST, "SUBNET": "tpu-subnet", "REGION": REGION}
    names |= {"NETWORK": "tpu-network", "SUBNET_RANGE": "10.0.0.0/24"}
    own = {"HOME": str(home), "CLOUDSDK_CONFIG": str(home / "gcloud"), "CLOUDSDK_CORE_DISABLE_PROMPTS": "1"}
    env = {**os.environ, **environment.google.environment(), **own, **names}
    done = subprocess.run(["bash", "-euxc", typed], env=env, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "tpu-webhooks" in done.stdout


def test_shared_vpc_without_its_rights_is_refused_and_with_them_carries_the_cluster(environment, tmp_path):
    make_network(environment, HOST)
    asked = {"network_project_id": HOST, "create_network": False, **NAMED}
    asked |= {"artifact_repository_bucket_name": "own-artifacts", "enable_tensorboard": False}
    with pytest.raises(AssertionError, match="Kubernetes Engine Service Agent is missing"):
        environment.apply(**SMALL, **asked)
    grant_as_the_page_says(environment, tmp_path)
    hosts = {name: doc for name, doc in documents(environment).items() if f"projects/{HOST}" in name}
    environment.apply(**SMALL, **asked)
    assert {name: doc for name, doc in documents(environment).items() if f"projects/{HOST}" in name} == hosts
    (cluster,) = environment.google.cloud.state.all("cluster").values()
    assert cluster["networkConfig"]["subnetwork"] == f"projects/{HOST}/{SUBNET}"
    destroy(environment)
    assert {name: doc for name, doc in documents(environment).items() if f"projects/{HOST}" in name} == hosts


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"create_subnet": False}, "create_network = false"),
        ({"create_network": False, "create_subnet": False}, "write pods_range_name and services_range_name"),
        ({"create_network": False, **NAMED, "pods_range_name": "none"}, "It has: for-pods, for-services."),
        ({"network_project_id": HOST}, "Write create_network = false and create_subnet = false"),
        ({"create_bucket": False, "artifact_repository_bucket_name": "nowhere"}, "bucket does not exist"),
        ({"tensorboard_region": "us-central2"}, 'Write tensorboard_region = "us-central1"'),
    ],
)
def test_what_cannot_be_is_refused_while_planning(environment, changes, said):
    (environment.folder / "terraform.tfvars.json").write_text(json.dumps({**ASKED_SMALL, **changes}))
    done = environment.run("plan")
    assert done.returncode == 1
    assert said in " ".join(done.stderr.replace("│", " ").split())


def test_cluster_in_a_region_without_tensorboard_has_it_on_its_continent(environment):
    """Use us-east5, which has v5p and v6e."""
    asked = {**ASKED_SMALL, "tpu_type": "v6e-4", "region": "us-east5", "zone": "us-east5-a"}
    (environment.folder / "terraform.tfvars.json").write_text(json.dumps(asked))
    assert environment.run("plan", "-out=shown").returncode == 0
    shown = json.loads(environment.run("show", "-json", "shown").stdout)
    planned = {one["type"]: one["change"]["after"] for one in shown["resource_changes"]}
    assert planned["google_vertex_ai_tensorboard"]["region"] == "us-central1"
    assert planned["google_artifact_registry_repository"]["location"] == "us-east5"
