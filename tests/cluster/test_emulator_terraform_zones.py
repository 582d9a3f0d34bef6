"""Real Terraform against the emulator in zones that differ: without some CPU machines, and AI zones."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from cluster.test_emulator_terraform import Environment
from tpubox.google.wire.server import Emulator
from tpubox.google.wire.settings import EVERY_API, Settings

# Zones without n1 machines: their TPU slice, and the zone of their CPU nodes.
ZONES = {
    "us-east5-b": ("v5p-8", "us-east5-b"),
    "us-south1-a": ("v5p-8", "us-south1-a"),
    "southamerica-west1-a": ("v6e-1", "southamerica-west1-a"),
    "us-central1-ai1a": ("v6e-1", "us-central1-a"),
}


@contextmanager
def environment(folder: Path, variables: dict[str, str]) -> Iterator[Environment]:
    with Emulator(folder / "google", Settings(seconds={"": 0.2}, enabled=EVERY_API)) as google:
        yield Environment(folder / "terraform", google, variables)


def _asked(zone: str, tpu_type: str, **more: object) -> dict[str, object]:
    words = {"region": zone.rpartition("-")[0], "zone": zone, "tpu_type": tpu_type, "num_tpu_pools": 1}
    return {**words, "services_region": "us-central1", "enable_tensorboard": False, "firestore_database": None, **more}


def _locations(environment: Environment) -> dict[str, tuple[str, list[str]]]:
    pools = environment.google.cloud.state.all("pool")
    return {name.rpartition("/")[2]: (doc["config"]["machineType"], doc["locations"]) for name, doc in pools.items()}


def applied(folder: Path, variables: dict[str, str], zone: str, tpu_type: str, cpu_zone: str) -> None:
    with environment(folder, variables) as made_here:
        made_here.apply(**_asked(zone, tpu_type))
        made = _locations(made_here)
        assert made.pop("cpu-pool") == ("n2-standard-4", [cpu_zone])
        assert [locations for _, locations in made.values()] == [[zone]]
        planned = made_here.run("plan", "-detailed-exitcode")
        assert planned.returncode == 0, planned.stdout


@pytest.fixture(scope="module")
def zones(
    tmp_path_factory: pytest.TempPathFactory, terraform_environment: dict[str, str]
) -> Iterator[dict[str, Future[None]]]:
    """Apply all zones at once, because most of an apply is waiting in the provider."""
    folder = tmp_path_factory.mktemp("zones")
    with ThreadPoolExecutor(len(ZONES)) as pool:
        yield {
            zone: pool.submit(applied, folder / zone, terraform_environment, zone, *there)
            for zone, there in ZONES.items()
        }


@pytest.mark.parametrize("zone", ZONES)
def test_apply_where_there_are_no_n1_machines_makes_the_environment(zones, zone):
    zones[zone].result()


def test_plan_with_machines_that_the_zone_does_not_offer_is_refused_with_what_to_write(tmp_path, terraform_environment):
    with environment(tmp_path, terraform_environment) as empty:
        with pytest.raises(AssertionError) as error:
            empty.apply(**_asked("us-east5-a", "v5p-8", cpu_pool_machine_type="n1-standard-4"))
        text = " ".join(str(error.value).replace("│", " ").split())
        assert "us-east5-a has no n1 machines, and cpu_pool_machine_type is n1-standard-4. Write n2-standard-4" in text
        assert empty.there() == set()
