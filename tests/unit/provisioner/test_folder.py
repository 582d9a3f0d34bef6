"""The folder and commands of `tpu provisioner init`, and what its pools need of a cluster."""

from __future__ import annotations

from dataclasses import replace

import pytest
import yaml
from click.testing import CliRunner

from support.google_world import PROJECT, World
from support.provisioner_world import ProvisionerWorld
from tpukit import catalogue
from tpukit.cli.provisioner import command
from tpukit.provisioner import pools, settings
from tpukit.provisioner.needs import Choice, Need

LINE = "init my-project my-cluster --location us-central2 --zones us-central2-b"
NEED = Need("train-0123456789ab", "research", "train", "uid-1", "train-slice-0", "pod", "uid-2", 1000.0, "", ())
IDENTITY = {"desiredWorkloadIdentityConfig": {"workloadPool": f"{PROJECT}.svc.id.goog"}}
CHANNEL = {"desiredReleaseChannel": {"channel": "REGULAR"}}


def body(**options):
    """Return the request for a pool with these settings."""
    need = replace(NEED, options=replace(settings.DEFAULTS, **options))
    choice = Choice(catalogue.find("v4-16"), 2, "us-central2-b", settings.Capacity("on-demand"))
    return {"nodePool": pools.body(NEED.pool, need, choice, 0, 0.0)}


@pytest.fixture
def written(tmp_path):
    """Type the line, and return the folder and the commands that it prints."""
    done = CliRunner().invoke(command, [*LINE.split(), "--folder", str(tmp_path)])
    assert done.exit_code == 0, done.output
    return tmp_path / "my-project" / "my-cluster", [one.strip() for one in done.stderr.splitlines()]


def test_disk_of_preloaded_images_in_the_folder_is_that_of_every_pool(written):
    folder, _ = written
    image = "projects/my-project/global/images/preloaded"
    with (folder / "config.env").open("a") as file:
        file.write(f"secondary-boot-disk={image}\n")
    pairs = [line.split("=", 1) for line in (folder / "config.env").read_text().splitlines() if line[0] != "#"]
    options = settings.of_config_map(dict(pairs)).options
    made = body(secondary_boot_disk=options.secondary_boot_disk)["nodePool"]["config"]
    assert made["secondaryBootDisks"] == [{"diskImage": image, "mode": "CONTAINER_IMAGE_CACHE"}]
    assert made["gcfsConfig"] == {"enabled": True}


def test_service_account_of_the_folder_is_bound_to_the_google_account_by_the_line_that_init_prints(written):
    folder, lines = written
    account = "tpu-provisioner@my-project.iam.gserviceaccount.com"
    document = yaml.safe_load((folder / "kustomization.yaml").read_text())
    (patch,) = [one for one in document["patches"] if one["target"]["kind"] == "ServiceAccount"]
    (change,) = yaml.safe_load(patch["patch"])
    assert (change["path"], change["value"]) == ("/metadata/annotations/iam.gke.io~1gcp-service-account", account)
    (line,) = [one for one in lines if "roles/iam.workloadIdentityUser" in one]
    assert f"add-iam-policy-binding {account} " in line
    assert "serviceAccount:my-project.svc.id.goog[tpu-provisioner-system/tpu-provisioner]" in line


def test_pool_is_refused_by_a_cluster_without_workload_identity_and_taken_by_one_with(tmp_path):
    with World(tmp_path) as world:
        path = world.cluster()
        assert "Workload Identity" in world.refusal("POST", path, body())[2]
        world.ask("PUT", path.removesuffix("/nodePools"), {"update": IDENTITY})
        world.ask("POST", path, body())


def test_pool_is_refused_by_a_cluster_with_a_release_channel_unless_it_upgrades_itself(tmp_path):
    with World(tmp_path) as world:
        path = world.cluster()
        for change in (IDENTITY, CHANNEL):
            world.ask("PUT", path.removesuffix("/nodePools"), {"update": change})
        assert "Auto_upgrade must be true" in world.refusal("POST", path, body())[2]
        world.ask("POST", path, body(auto_upgrade=True))


def test_run_takes_project_location_cluster_and_zones_from_the_environment(monkeypatch):
    given = {"project": "my-project", "location": "us-central2", "cluster": "my-cluster", "zones": "us-central2-b"}
    for name, value in given.items():
        monkeypatch.setenv(f"TPUKIT_{name.upper()}", value)
    params = command.commands["run"].make_context("run", []).params
    assert {name: params[name] for name in given} == given


def test_pool_that_is_not_needed_stays_for_the_time_in_the_config_map():
    world = ProvisionerWorld(removal_delay="600")
    world.cluster.send("train")
    world.pass_time(200)
    world.cluster.finish("train")
    world.pass_time(500)
    assert len(world.pools()) == 1
    world.pass_time(400)
    assert world.pools() == []
