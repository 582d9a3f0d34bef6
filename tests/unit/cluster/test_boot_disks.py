"""Boot disks of nodes follow the rules of the Terraform modules."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from tpukit.cluster import boot_disks
from tpukit.cluster.boot_disks import Disk
from tpukit.cluster.spec import ClusterSpec
from unit.cluster.test_costs import SPEC

MODULES = Path(__file__).resolve().parents[3] / "terraform" / "modules"


def spec(**changes):
    return ClusterSpec.from_json(SPEC | changes)


@pytest.mark.parametrize(
    ("changes", "disk"),
    [
        ({}, Disk("pd-standard", 200)),
        ({"cpu_pool_machine_type": "n4-standard-4"}, Disk("hyperdisk-balanced", 200)),
        ({"cpu_pool_machine_type": "n4-standard-4", "cpu_pool_disk_type": "pd-ssd"}, Disk("pd-ssd", 200)),
        ({"cpu_pool_disk_size": 50}, Disk("pd-standard", 50)),
    ],
)
def test_disk_of_cpu_nodes_follows_their_machine_type_unless_named(changes, disk):
    assert boot_disks.of_cpu_nodes(spec(**changes)) == disk


def test_disks_of_hosts_count_each_host_of_the_given_pools():
    mixed = spec(num_tpu_pools=1, tpu_pools={"a": {"tpu_type": "v5p-16"}, "b": {"tpu_type": "v6e-16"}})
    balanced, hyper = Disk("pd-balanced", 100), Disk("hyperdisk-balanced", 100)
    assert boot_disks.of_hosts(mixed) == Counter({balanced: 2, hyper: 4})
    assert boot_disks.of_hosts(mixed, {"b"}) == Counter({hyper: 4})
    assert boot_disks.of_hosts(mixed, ()) == Counter()


@pytest.mark.parametrize(
    ("module", "listed"),
    [("tpu_pools", boot_disks.HYPERDISK_GENERATIONS), ("cpu_pool", boot_disks.HYPERDISK_FAMILIES)],
)
def test_lists_of_what_boots_from_hyperdisk_alone_are_those_of_the_modules(module, listed):
    (found,) = re.findall(r"hyperdisk += (?:contains\()?(\[[^\]]+\])", (MODULES / module / "main.tf").read_text())
    assert tuple(re.findall(r'"(\w+)"', found)) == listed
