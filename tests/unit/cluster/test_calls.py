"""Module calls generated from Python match those of the root Terraform module."""

from __future__ import annotations

import json
import re

from tpukit.cluster.calls import calls
from tpukit.cluster.spec import ClusterSpec
from tpukit.core import resources

SPEC = {
    "project_id": "my-project-1",
    "region": "us-central2",
    "zone": "us-central2-b",
    "artifact_repository_bucket_name": "my-artifacts",
    "network_name": "tpu-network",
    "subnet_name": "tpu-subnet",
    "cluster_name": "tpu-cluster",
    "firestore_database": "tpu-jobs",
    "queue_monitoring_team": "research",
    "queue_notification_channels": ["projects/my-project-1/notificationChannels/1"],
}
FOLDER = resources.folder("terraform")


def made(prefix="", **changes):
    return calls(ClusterSpec.from_json(SPEC | changes), "./modules", prefix)


def test_calls_have_the_names_and_arguments_of_the_root_module():
    text = (FOLDER / "main.tf").read_text()
    blocks = dict(re.findall(r'^module "(\w+)" \{\n(.*?)^\}', text, re.M | re.S))
    root = {name: set(re.findall(r"^  (\w+)\s*=", block, re.M)) for name, block in blocks.items()}
    assert {name: set(call) for name, call in made().items()} == root


DEFAULTS = {
    "artifact_registry": {"untagged_days"},
    "artifact_bucket": {"soft_delete_days"},
    "cluster": {
        *("maintenance_window", "maintenance_exclusions", "monitoring_components", "addons", "network_tags"),
        "multi_networking",
    },
    "cpu_pool": {"network_tags"},
    "tpu_pools": {"network_tags"},
}
"""Variables with defaults for users of a single module; the root module does not set them."""


def test_calls_give_every_module_the_variables_it_declares():
    for name, call in made().items():
        declared = set(re.findall(r'^variable "(\w+)"', (FOLDER / "modules" / name / "variables.tf").read_text(), re.M))
        assert set(call) - {"source", "count"} == declared - DEFAULTS.get(name, set()), name


def test_calls_refer_only_to_outputs_that_modules_have():
    found = set(re.findall(r"\$\{module\.(\w+)\.(\w+)\}", json.dumps(made())))
    assert len(found) > 8
    for module, output in found:
        assert f'output "{output}"' in (FOLDER / "modules" / module / "outputs.tf").read_text()


def test_calls_leave_out_what_is_not_wanted():
    assert not {"tensorboard", "job_store"} & set(made(enable_tensorboard=False, firestore_database=None))


def test_calls_prefix_names_and_references_alike():
    both = {**made("a_"), **made("b_")}
    assert both["a_cluster"]["network"] == "${module.a_network.network}"
    assert both["b_cluster"]["source"] == "./modules/cluster"


def test_calls_take_what_people_wrote_for_text_and_not_for_a_template():
    call = made(cluster_description="${file(1)} %{if x}", labels={"a": "${b}"})["cluster"]
    assert call["description"] == "$${file(1)} %%{if x}"
    assert call["labels"] == {"tpu-cluster": "tpu-cluster", "a": "$${b}"}
