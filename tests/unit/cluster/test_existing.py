"""The cluster file of an environment in an existing network, bucket and repository."""

from __future__ import annotations

import json
from itertools import chain

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tpukit import catalogue
from tpukit.cluster.spec import ClusterSpec
from tpukit.core import resources
from tpukit.core.errors import Invalid

GOOD = {
    "project_id": "my-project-1",
    "region": "us-central2",
    "zone": "us-central2-b",
    "artifact_repository_bucket_name": "my-artifacts",
    "network_name": "tpu-network",
    "subnet_name": "tpu-subnet",
    "cluster_name": "tpu-cluster",
    "tpu_type": "v4-32",
}
SUBNET = {"create_network": False, "create_subnet": False, "pods_range_name": "p", "services_range_name": "s"}
REGIONS = json.loads((resources.folder("terraform") / "modules" / "tensorboard" / "regions.json").read_text())


@pytest.mark.parametrize(
    "changes",
    [
        {"create_network": False},
        {"create_network": False, "create_nat": True, "subnet_ip_range": "10.0.0.0/20"},
        SUBNET,
        {**SUBNET, "num_tpu_pools": 100},
        {**SUBNET, "network_project_id": "my-host-project"},
        {"network_project_id": "my-project-1"},
        {"create_bucket": False},
        {
            "create_artifact_registry": False,
            "artifact_registry_name": "images",
            "artifact_registry_location": "us",
        },
        {"tensorboard_region": "europe-west4"},
        {"tensorboard_region": "us-central2", "enable_tensorboard": False},
    ],
)
def test_spec_that_takes_what_exists_is_accepted_and_passed_to_terraform(changes):
    spec = ClusterSpec.from_json(GOOD | changes)
    assert spec.variables() == GOOD | changes


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({**SUBNET, "create_network": True}, "write create_network: false beside it"),
        ({"create_network": False, "create_subnet": False}, "add services_range_name: NAME"),
        ({**SUBNET, "services_range_name": "p"}, "the pods use that range"),
        ({**SUBNET, "pods_ip_range": "10.0.0.0/16"}, "an existing subnet has its own ranges"),
        ({"pods_range_name": "p"}, "the ranges of a new subnet are named after it"),
        ({"network_project_id": "my-host-project"}, "no network resource is created in my-host-project"),
        (
            {**SUBNET, "network_project_id": "my-host-project", "create_nat": True},
            "no network resource is created in my-host-project",
        ),
        ({"create_bucket": False, "force_destroy": True}, "is never emptied"),
        ({"tensorboard_region": "us-central2"}, "write us-central1"),
        ({"artifact_registry_location": "mars"}, "write a region, or us, europe or asia"),
    ],
)
def test_spec_with_what_does_not_go_together_is_refused_with_what_to_write(changes, said):
    with pytest.raises(Invalid) as caught:
        ClusterSpec.from_json(GOOD | changes)
    assert said in str(caught.value)


@given(
    document=st.fixed_dictionaries(
        {},
        optional={
            name: st.one_of(st.booleans(), st.none(), st.just("x"), st.integers())
            for name in (*SUBNET, "create_bucket", "force_destroy", "network_project_id", "tensorboard_region")
        },
    )
)
def test_spec_of_any_values_is_accepted_or_refused_and_never_a_crash(document):
    try:
        ClusterSpec.from_json(GOOD | document)
    except Invalid as refused:
        assert refused.problems


def test_tensorboard_of_every_region_that_has_tpus_is_in_a_region_that_has_it():
    zones = set(chain.from_iterable(shape.zones for shape in catalogue.slices()))
    for region in {zone.rpartition("-")[0] for zone in zones}:
        near = REGIONS["nearest"].get(region.partition("-")[0])
        assert region in REGIONS["regions"] or near in REGIONS["regions"]
