"""Addresses: further ranges of pods, and how many more hosts fit."""

from __future__ import annotations

import json
from ipaddress import IPv4Network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tpukit.cluster import expectations, ip_ranges
from tpukit.cluster.ip_ranges import Nodes
from tpukit.cluster.spec import ClusterSpec, load
from tpukit.core.errors import Invalid
from unit.cluster.test_costs import SPEC


def refused(**changes):
    """Return the only problem of a file with these changes: what, and the hint."""
    with pytest.raises(Invalid) as found:
        load(None, [f"{key}={json.dumps(value)}" for key, value in (SPEC | changes).items()])
    (problem,) = found.value.problems
    return problem.what, problem.hint


def test_pods_that_do_not_fit_get_hints_for_a_new_cluster_and_for_one_that_exists():
    what, hint = refused(tpu_type="v5p-1024", num_tpu_pools=1)
    assert what.startswith("pods_ip_range: 192.168.64.0/20 holds 4096 addresses, and 4608 are needed")
    assert hint == (
        "write a /19 or wider one, such as 10.0.0.0/19; if the cluster exists, add 10.0.0.0/20 to "
        "additional_pods_ip_ranges"
    )
    large = {"tpu_type": "v5p-1024", "num_tpu_pools": 1}
    spec = ClusterSpec.from_json(SPEC | large | {"additional_pods_ip_ranges": ["10.0.0.0/20"]})
    assert expectations.addresses(spec) == "Addresses: 112 more hosts fit into the ranges of tpu-subnet"
    what, hint = refused(**large, additional_pods_ip_ranges=["10.0.0.0/21"])
    assert "4608 addresses are needed, and pools with 4096 of them find no range with room" in what
    assert hint.endswith("if the cluster exists, add 10.0.16.0/20 to additional_pods_ip_ranges")


def test_additional_range_that_overlaps_another_is_refused_where_it_was_written_with_a_free_one():
    what, hint = refused(additional_pods_ip_ranges=["10.64.0.0/16", "10.129.8.0/22"])
    assert what == "additional_pods_ip_ranges[1]: it shares addresses with subnet_ip_range 10.129.0.0/20"
    assert hint == "give each a separate range: 10.0.0.0/22 is free"


@pytest.mark.parametrize(
    ("changes", "hint"),
    [
        ({"additional_pods_range_names": ["more"]}, "create_subnet: false"),
        (
            {
                "create_network": False,
                "create_subnet": False,
                "pods_range_name": "p",
                "services_range_name": "s",
                "additional_pods_ip_ranges": ["10.64.0.0/16"],
            },
            "leave it out",
        ),
    ],
)
def test_ranges_of_a_new_subnet_and_of_an_existing_one_are_not_mixed(changes, hint):
    assert hint in refused(**changes)[1]


def test_line_names_the_hosts_that_fit_and_what_is_unknown():
    assert expectations.addresses(ClusterSpec.from_json(SPEC)) == (
        "Addresses: 108 more hosts fit into the ranges of tpu-subnet"
    )
    wide = SPEC | {"additional_pods_ip_ranges": ["10.64.0.0/14"]}
    assert "4084 more hosts fit" in expectations.addresses(ClusterSpec.from_json(wide))
    names = {"create_network": False, "create_subnet": False, "pods_range_name": "p", "services_range_name": "s"}
    assert "is unknown here" in expectations.addresses(ClusterSpec.from_json(SPEC | names))


POOLS = st.lists(st.builds(Nodes, st.integers(0, 300), st.integers(8, 256)), min_size=1, max_size=6)


@given(st.lists(st.integers(12, 26), min_size=1, max_size=3), POOLS)
def test_placed_pools_take_what_they_need_and_the_rest_is_left(ranges, pools):
    found = [IPv4Network((0, one)) for one in ranges]
    placed = ip_ranges.place(found, pools)
    held = sum(one.num_addresses for one in found)
    assert held - sum(placed.rooms) + placed.without == ip_ranges.pods_needed(pools)
    assert min(placed.rooms) >= 0
    if len(found) == 1 and placed.without:
        assert ip_ranges.pods_needed(pools) > held


@given(st.integers(16, 24), st.integers(12, 26), POOLS, st.integers(8, 256))
def test_hosts_left_of_one_range_fit_and_one_more_does_not(subnet, prefix, pools, pods):
    network, found = IPv4Network((0, subnet)), IPv4Network((0, prefix))
    if ip_ranges.place([found], pools).without or max(pool.pods for pool in pools) < pods:
        return  # the block for upgrades would grow with such hosts
    left = ip_ranges.hosts_left(network, [found], pools, pods)

    def fits(count):
        more = [*pools, Nodes(count, pods)]
        room = network.num_addresses - ip_ranges.RESERVED_BY_GOOGLE
        return ip_ranges.pods_needed(more) <= found.num_addresses and ip_ranges.nodes_needed(more) <= room

    assert left == 0 or fits(left)
    assert not fits(left + 1)
