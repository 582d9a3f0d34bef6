"""The environment's life with every supported command line, and the leftovers of a failed apply.

Terraform 1.5.7 (the version of Infrastructure Manager), the Terraform on PATH and OpenTofu run with the real provider
against the emulator. Then, with the Terraform on PATH, faults from twenty seeds hit the first apply: the second one
ends clean, and the cloud holds exactly the resources of the state.
"""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from cluster.test_emulator_terraform import ASKED, CLUSTER, ROOT, Environment
from support.waiting import until
from tpubox.google.wire.faults import Fault
from tpubox.google.wire.server import Emulator
from tpubox.google.wire.settings import EVERY_API, Settings

SMALL = {**ASKED, "tpu_type": "v4-8", "num_tpu_pools": 1, "cpu_pool_node_count": 1, "deletion_protection": True}
QUICK: dict[str, Any] = {"seconds": {"": 0.1}, "enabled": EVERY_API, "arrival_seconds": 0.2}
IN_PLACE: dict[str, Any] = {
    "labels": {"owner": "research"},
    "release_channel": "RAPID",
    "authorized_networks": {"office": "203.0.113.0/24"},
    "cpu_pool_node_count": 2,
    "cpu_pool_machine_type": "n2-standard-8",
    "tpu_sa_roles": ["roles/logging.logWriter", "roles/storage.objectUser"],
    "force_destroy": True,
    "deletion_protection": False,
}
"""Changes that recreate nothing."""
KINDS = {
    "google_artifact_registry_repository": "repository",
    "google_compute_firewall": "firewall",
    "google_compute_network": "network",
    "google_compute_resource_policy": "resourcePolicy",
    "google_compute_router": "router",
    "google_compute_subnetwork": "subnetwork",
    "google_container_cluster": "cluster",
    "google_container_node_pool": "pool",
    "google_firestore_database": "database",
    "google_service_account": "account",
    "google_storage_bucket": "bucket",
    "google_vertex_ai_tensorboard": "tensorboard",
}
CREATES = ("networks", "subnetworks", "routers", "clusters", "nodePools", "serviceAccounts", "repositories", "b$")
OPERATIONS = ("CREATE_CLUSTER", "CREATE_NODE_POOL", "DELETE_NODE_POOL", "insert", "patch")


class Versioned(Environment):
    """The environment under a given command line."""

    cli = "terraform"

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        command = [self.cli, *words, "-no-color"]
        return subprocess.run(command, cwd=self.folder, env=self.environment, capture_output=True, text=True)

    def ask_for(self, **changes: Any) -> None:
        (self.folder / "terraform.tfvars.json").write_text(json.dumps({**SMALL, **changes}))

    def planned(self) -> dict[str, list[str]]:
        """Return the actions of a plan by address. Unchanged resources are left out."""
        done = self.run("plan", "-out=planned")
        assert done.returncode == 0, done.stderr
        shown = json.loads(self.run("show", "-json", "planned").stdout)
        changes = {one["address"]: one["change"]["actions"] for one in shown["resource_changes"]}
        return {address: actions for address, actions in changes.items() if actions not in (["no-op"], ["read"])}

    def check_clean(self) -> None:
        done = self.run("plan", "-detailed-exitcode")
        assert done.returncode == 0, done.stdout + done.stderr

    def held(self) -> set[str]:
        """Return the resources of the state, named as in the cloud's inventory."""
        return {f"{KINDS[kind]} {_name(kind, attributes)}" for kind, attributes in self._resources() if kind in KINDS}

    def grants_held(self) -> set[tuple[str, str]]:
        return {(one["role"], one["member"]) for kind, one in self._resources() if kind.endswith("_iam_member")}

    def grants_there(self) -> set[tuple[str, str]]:
        policies = self.google.cloud.state.all("policy").values()
        bindings = [binding for policy in policies for binding in policy.get("bindings", ())]
        return {(binding["role"], member) for binding in bindings for member in binding["members"]}

    def things(self) -> set[str]:
        return {one for one in self.there() if one.split()[0] in KINDS.values()}

    def _resources(self) -> Iterator[tuple[str, dict[str, Any]]]:
        for resource in json.loads(self.run("state", "pull").stdout)["resources"]:
            if resource["mode"] == "managed":
                for instance in resource["instances"]:
                    yield resource["type"], instance["attributes"]


def _name(kind: str, attributes: dict[str, Any]) -> str:
    whole = {"google_storage_bucket": "name", "google_service_account": "name"}
    return attributes[whole.get(kind, "id")]


@dataclass(frozen=True)
class CommandLine:
    program: str
    environment: dict[str, str]


def _command_line(name: str, environment: dict[str, str]) -> CommandLine:
    script = [sys.executable, str(ROOT / "tools" / "provider" / "build.py")]
    program = name
    if name != "terraform":
        built = subprocess.run([*script, f"--where={name}"], capture_output=True, text=True)
        if built.returncode:
            pytest.fail(built.stderr.strip())
        program = built.stdout.strip()
    config = subprocess.run([*script, "--no-build", f"--cli={program}"], capture_output=True, text=True)
    assert config.returncode == 0, config.stderr
    return CommandLine(program, {**environment, "TF_CLI_CONFIG_FILE": config.stdout.strip()})


def _from_apply_to_destroy(line: CommandLine, folder: Path) -> None:
    with Emulator(folder / "google", Settings(**QUICK)) as google:
        environment = type("With", (Versioned,), {"cli": line.program})(folder / "tf", google, line.environment)
        environment.ask_for()
        done = environment.run("apply", "-auto-approve")
        assert done.returncode == 0, done.stderr
        environment.check_clean()
        assert environment.things() == environment.held()

        marks = environment.marks()
        environment.ask_for(**IN_PLACE)
        planned = environment.planned()
        assert {action for actions in planned.values() for action in actions} == {"update", "delete"}
        roles = "google_project_iam_member"
        assert all(roles in address for address, actions in planned.items() if actions == ["delete"]), planned
        done = environment.run("apply", "-auto-approve", "planned")
        assert done.returncode == 0, done.stderr
        environment.check_clean()
        assert environment.marks() == marks, "a pool was made anew"
        cluster = environment.google.cloud.state.get("cluster", CLUSTER)
        assert (cluster["releaseChannel"], cluster["resourceLabels"]["owner"]) == ({"channel": "RAPID"}, "research")

        done = environment.run("destroy", "-auto-approve")
        assert done.returncode == 0, done.stderr
        # The provider does not wait for the deletion of the database.
        until(lambda: environment.things() == set())
        assert environment.held() == set()


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory, terraform_environment: dict[str, str]) -> Path:
    """Initialize the root module once. Every seed has a copy of it and its own cloud."""
    folder = tmp_path_factory.mktemp("prepared")
    with Emulator(folder / "google", Settings(**QUICK)) as google:
        return Versioned(folder / "tf", google, terraform_environment).folder


class Prepared(Versioned):
    def __init__(self, folder: Path, prepared: Path, google: Emulator, environment: dict[str, str]) -> None:
        self.folder, self.google = folder, google
        self.environment = {**environment, **google.environment()}
        shutil.copytree(prepared, folder, symlinks=True)
        self.ask("POST", "storage/v1/b?project=tpu-project", {"name": "tf-state", "location": "us-central2"})


def drawn(seed: int) -> list[Fault]:
    """Return one to three faults of any kind that can occur while an environment is created."""
    dice = random.Random(seed)
    kinds = dice.choices(
        ("refuse", "fail", "slow", "stockout", "quota", "broken"), (6, 6, 2, 2, 2, 2), k=dice.randint(1, 3)
    )
    faults = []
    for number, kind in enumerate(kinds):
        words: dict[str, Any] = {"name": f"{number}-{kind}", "times": dice.randint(1, 3)}
        if kind == "refuse":
            words |= {
                "match": f"^POST .*/{dice.choice(CREATES)}",
                "status": dice.choice((400, 403, 409, 429, 500, 503)),
            }
        elif kind == "fail":
            words |= {"match": f"^{dice.choice(OPERATIONS)} ", "message": "An internal error has occurred."}
        elif kind == "slow":
            words |= {"seconds": 2.0}
        faults.append(Fault(kind, **words))
    return faults


def _struck_by_faults(seed: int, folder: Path, prepared: Path, variables: dict[str, str]) -> None:
    with Emulator(folder / "google", Settings(**QUICK, seed=seed)) as google:
        environment = Prepared(folder / "tf", prepared, google, variables)
        # The default. Deletion protection would forbid to recreate a partially created cluster.
        environment.ask_for(deletion_protection=False)
        for fault in drawn(seed):
            google.cloud.faults.set(fault)
        first = environment.run("apply", "-auto-approve")
        struck = [one["name"] for one in google.cloud.faults.table() if one["struck"]]
        google.cloud.faults.clear()
        context = f"struck: {struck}\n{first.stderr[-2000:]}"
        second = environment.run("apply", "-auto-approve")
        assert second.returncode == 0, f"{second.stderr[-3000:]}\nafter {context}"
        environment.check_clean()
        assert environment.things() == environment.held(), context
        assert environment.grants_there() == environment.grants_held(), context


@pytest.fixture(scope="module")
def lives(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    terraform_environment: dict[str, str],
    prepared: Path,
) -> Iterator[dict[str | int, Future[None]]]:
    """Start every life that a test requests, by command line or seed.

    Three run at a time, because most of one is waiting in the provider.
    """
    with ThreadPoolExecutor(3) as pool:
        made: dict[str | int, Future[None]] = {}
        for item in request.session.items:
            if item.path != request.path or not isinstance(item, pytest.Function) or "lives" not in item.fixturenames:
                continue
            life, folder = item.callspec.params["life"], tmp_path_factory.mktemp("life")
            if isinstance(life, str):
                line = _command_line(life, terraform_environment)
                made[life] = pool.submit(_from_apply_to_destroy, line, folder)
            else:
                made[life] = pool.submit(_struck_by_faults, life, folder, prepared, terraform_environment)
        yield made


@pytest.mark.parametrize("life", ["terraform-1.5.7", "terraform", "opentofu"])
def test_environment_lives_from_apply_over_changes_in_place_to_destroy(life, lives):
    lives[life].result()


@pytest.mark.parametrize("life", range(20))
def test_apply_after_an_apply_that_faults_ended_is_clean_and_nothing_is_orphaned(life, lives):
    lives[life].result()


def test_protected_cluster_that_was_half_made_is_deleted_by_hand_and_then_made(
    prepared, tmp_path, terraform_environment
):
    """Follow the hint: Terraform recreates a partial cluster, and must not delete a protected one."""
    with Emulator(tmp_path / "google", Settings(**QUICK)) as google:
        environment = Prepared(tmp_path / "tf", prepared, google, terraform_environment)
        environment.ask_for()
        google.cloud.faults.set(Fault("fail", match="^DELETE_NODE_POOL ", message="An internal error has occurred."))
        assert environment.run("apply", "-auto-approve").returncode == 1
        google.cloud.faults.clear()
        assert "deletion_protection is set to true" in environment.run("apply", "-auto-approve").stderr
        headers = {"Authorization": f"Bearer {google.token}"}
        address = f"{google.address}/container/v1/{CLUSTER}"
        urllib.request.urlopen(urllib.request.Request(address, headers=headers, method="DELETE")).close()
        until(lambda: not google.cloud.state.all("cluster"), "the cluster to go")
        third = environment.run("apply", "-auto-approve")
        assert third.returncode == 0, third.stderr
        environment.check_clean()
        assert environment.things() == environment.held()


def test_seeds_draw_faults_of_every_kind():
    kinds = {fault.kind for seed in range(20) for fault in drawn(seed)}
    assert kinds == {"refuse", "fail", "slow", "stockout", "quota", "broken"}
