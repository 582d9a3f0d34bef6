"""Allocatable resources of GKE machines (https://cloud.google.com/kubernetes-engine/docs/concepts/plan-node-sizes)."""

from __future__ import annotations

import pytest

from tpubox.kubelet import registered_pools
from tpubox.kubelet.env import quantity
from tpubox.pools import kwok_pools
from tpubox.pools.allocatable import allocatable
from tpukit.catalogue import find, slices
from tpukit.jobs import render

GIB = 1 << 30


def left(cpu: str, memory: str, disk: str = "100Gi", machine_type: str = "", pods: str = "110") -> dict[str, str]:
    amounts = {"cpu": cpu, "memory": memory, "ephemeral-storage": disk, "pods": pods, "google.com/tpu": "4"}
    return allocatable(amounts, machine_type)


@pytest.mark.parametrize(
    ("cores", "cpu"),
    [("1", "940m"), ("2", "1930m"), ("4", "3920m"), ("8", "7910m"), ("96", "95690m"), ("240", "239330m")],
)
def test_cpu_of_a_machine_is_kept_in_falling_shares(cores: str, cpu: str):
    assert left(cores, "16Gi")["cpu"] == cpu


@pytest.mark.parametrize(
    ("memory", "kept_mib"),
    [
        ("512Mi", 255),
        ("4Gi", 1024),
        ("8Gi", 1024 + 819.2),
        ("16Gi", 1024 + 819.2 + 819.2),
        ("128Gi", 1024 + 819.2 + 819.2 + 6881.28),
        ("256Gi", 1024 + 819.2 + 819.2 + 6881.28 + 2621.44),
    ],
)
def test_memory_of_a_machine_is_kept_in_falling_shares_and_pods_are_evicted_before_it_is_full(
    memory: str, kept_mib: float
):
    gone_mib = (quantity(memory) - quantity(left("4", memory)["memory"])) / (1 << 20)
    assert float(gone_mib) == pytest.approx(kept_mib + 100, abs=0.01)


def test_boot_disk_is_kept_as_on_the_node_that_google_shows():
    assert int(left("4", "16Gi", "100Gi")["ephemeral-storage"]) == 90 * GIB - 41 * GIB
    assert int(left("4", "16Gi", "10Gi")["ephemeral-storage"]) == 4 * GIB
    assert int(left("4", "16Gi", "1000Gi")["ephemeral-storage"]) == 800 * GIB


def test_shared_cores_and_many_pods_cost_more_cpu():
    assert left("2", "4Gi", machine_type="e2-medium")["cpu"] == "940m"
    assert left("4", "16Gi", pods="256")["cpu"] == "3520m"


def test_chips_and_pods_are_left_whole():
    assert left("240", "400G")["google.com/tpu"] == "4"
    assert left("240", "400G")["pods"] == "110"


def test_what_jobs_ask_for_fits_on_a_node_of_their_slice():
    for shape in [shape for shape in slices() if shape.machine_type]:
        left = registered_pools.allocatable(registered_pools.of_slice("tpu", shape, "us-central2-b"))
        assert render.machine_share.cpu(shape) <= quantity(left["cpu"]), shape
        assert render.machine_share.memory_gb(shape) * 10**9 <= quantity(left["memory"]), shape
        assert shape.chips_per_host == int(left["google.com/tpu"]), shape


def test_simulated_nodes_have_less_to_give_than_they_have():
    status = kwok_pools._node(registered_pools.of_slice("tpu", find("v4-8"), "us-central2-b"), "gke-sandbox-tpu-0000")[
        "status"
    ]
    assert (status["capacity"]["cpu"], status["allocatable"]["cpu"]) == ("240", "239330m")
