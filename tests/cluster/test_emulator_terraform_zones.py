"""Real Terraform against the emulator where zones differ: CPU machines that they have not, AI zones."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster.test_emulator_terraform import Environment
from tpukit.sandbox.google.emulator_settings import EVERY_API, Settings
from tpukit.sandbox.google.server import Emulator


@pytest.fixture
def environment(tmp_path: Path, terraform_environment: dict[str, str]) -> Iterator[Environment]:
    with Emulator(tmp_path / "google", Settings(seconds={"": 0.2}, enabled=EVERY_API)) as google:
        yield Environment(tmp_path / "terraform", google, terraform_environment)


def _asked(zone: str, tpu_type: str, **more: object) -> dict[str, object]:
    words = {"region": zone.rpartition("-")[0], "zone": zone, "tpu_type": tpu_type, "num_tpu_pools": 1}
    return {**words, "services_region": "us-central1", "enable_tensorboard": False, "firestore_database": None, **more}


def _locations(environment: Environment) -> dict[str, tuple[str, list[str]]]:
    pools = environment.google.cloud.state.all("pool")
    return {name.rpartition("/")[2]: (doc["config"]["machineType"], doc["locations"]) for name, doc in pools.items()}


@pytest.mark.parametrize(
    ("zone", "tpu_type", "cpu_zone"),
    [
        ("us-east5-b", "v5p-8", "us-east5-b"),
        ("us-south1-a", "v5p-8", "us-south1-a"),
        ("southamerica-west1-a", "v6e-1", "southamerica-west1-a"),
        ("us-central1-ai1a", "v6e-1", "us-central1-a"),
    ],
)
def test_apply_where_there_are_no_n1_machines_makes_the_environment(environment, zone, tpu_type, cpu_zone):
    environment.apply(**_asked(zone, tpu_type))
    made = _locations(environment)
    assert made.pop("cpu-pool") == ("n2-standard-4", [cpu_zone])
    assert [locations for _, locations in made.values()] == [[zone]]
    planned = environment.run("plan", "-detailed-exitcode")
    assert planned.returncode == 0, planned.stdout


def test_plan_with_machines_that_the_zone_does_not_offer_is_refused_with_what_to_write(environment):
    with pytest.raises(AssertionError) as error:
        environment.apply(**_asked("us-east5-a", "v5p-8", cpu_pool_machine_type="n1-standard-4"))
    text = " ".join(str(error.value).replace("│", " ").split())
    assert "us-east5-a has no n1 machines, and cpu_pool_machine_type is n1-standard-4. Write n2-standard-4" in text
    assert environment.there() == set()
