"""Terraform's outputs as settings."""

from __future__ import annotations

import pytest

from tpukit.cluster import outputs
from tpukit.core.errors import Invalid
from tpukit.jobs.spec.settings import Settings

MADE = {
    "project_id": "tpu-project",
    "region": "us-central2",
    "zone": "us-central2-b",
    "tpu_namespace": "research",
    "tpu_sa_name": "cloud-tpu-sa",
    "image_repository": "us-central1-docker.pkg.dev/tpu-project/tpu-cluster",
    "artifact_bucket": "gs://tpu-artifacts",
    "tensorboard": "projects/100/locations/us-central1/tensorboards/7",
    "firestore_database": "tpu-jobs",
    "num_of_chips": 32,
}


def test_settings_from_all_outputs_name_every_part_of_the_environment():
    assert outputs.settings_from(MADE) == {
        "team": "research",
        "project": "tpu-project",
        "region": "us-central2",
        "zone": "us-central2-b",
        "repository": "us-central1-docker.pkg.dev/tpu-project/tpu-cluster",
        "artifacts": "gs://tpu-artifacts",
        "tensorboard": "projects/100/locations/us-central1/tensorboards/7",
        "service_account": "cloud-tpu-sa",
        "store": "firestore://tpu-project/tpu-jobs",
    }
    assert Settings(**outputs.settings_from(MADE)).tensorboard == MADE["tensorboard"]


def test_settings_from_environment_without_tensorboard_and_database_leave_them_out():
    made = outputs.settings_from({**MADE, "tensorboard": None, "firestore_database": None})
    assert "tensorboard" not in made
    assert "store" not in made


def test_settings_from_output_that_is_no_setting_are_refused():
    with pytest.raises(Invalid, match="tensorboard"):
        outputs.settings_from({**MADE, "tensorboard": "mine"})


def test_values_are_taken_out_of_what_terraform_prints():
    assert outputs.values({"region": {"sensitive": False, "type": "string", "value": "us-central2"}}) == {
        "region": "us-central2"
    }
