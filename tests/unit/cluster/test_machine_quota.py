"""Quotas of disks, CPUs, machines and addresses: what a plan takes, and the refusal of too much before the question."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tpukit.cluster import expectations, machine_quota, quota
from tpukit.cluster.machine_quota import Amount
from tpukit.cluster.spec import ClusterSpec
from tpukit.cluster.terraform_events import Planned
from tpukit.core.errors import NoCapacity
from unit.cluster.test_costs import SPEC

ALL = {"cluster": True, "cpu_pool": True, "nat": True}
NONE = dict.fromkeys(ALL, False)
POOL = "google_container_node_pool"


def spec(**changes):
    return ClusterSpec.from_json(SPEC | changes)


def amounts(found):
    return {one.metric or one.what: one.count for one in found}


def test_needs_of_a_new_cluster_count_disks_cpus_machines_and_the_address_of_the_nat():
    assert amounts(machine_quota.needs(spec(), None, **ALL)) == {
        "SSD_TOTAL_GB": 4 * 100 + 100,  # hosts, and the node that a cluster is born with
        "DISKS_TOTAL_GB": 3 * 200,
        "N2_CPUS": (3 + 1) * 4,
        "INSTANCES": 3 + 1 + 4,
        "IN_USE_ADDRESSES": 1,
    }


@pytest.mark.parametrize(
    ("changes", "pools", "wanted"),
    [
        ({}, {"tpu-node-pool-1"}, {"SSD_TOTAL_GB": 200, "INSTANCES": 2}),
        ({"tpu_type": "v6e-16"}, {"tpu-node-pool-1"}, {"HDB_TOTAL_GB": 400, "INSTANCES": 4}),
        ({"tpu_type": "v6e-16", "capacity": "flex-start"}, None, {}),
        ({"enable_tpu_autoscaling": True}, None, {}),
        ({}, (), {}),
    ],
)
def test_needs_of_slices_are_those_that_are_created_at_once(changes, pools, wanted):
    assert amounts(machine_quota.needs(spec(**changes), pools, **NONE)) == wanted


def test_machine_type_without_a_number_of_cpus_is_not_counted_and_a_family_without_a_metric_is_unknown():
    odd = machine_quota.needs(spec(cpu_pool_machine_type="n4-standard-4"), (), **NONE | {"cpu_pool": True})
    assert amounts(odd) == {"HDB_TOTAL_GB": 600, "12 CPUs of n4": 12, "INSTANCES": 3}
    assert "e2" not in str(
        machine_quota.needs(spec(cpu_pool_machine_type="e2-medium"), (), **NONE | {"cpu_pool": True})
    )


@given(st.integers(0, 900), st.integers(0, 900), st.integers(1, 900))
def test_line_says_enough_exactly_when_what_is_free_covers_the_need(limit, used, count):
    quotas = [{"metric": "SSD_TOTAL_GB", "limit": float(limit), "usage": float(used)}]
    (line,) = machine_quota.lines("us-east5", [Amount("disks", "SSD_TOTAL_GB", count)], quotas)
    assert line.endswith(": enough") == (used + count <= limit)
    assert (machine_quota.NOT_ENOUGH in line) == (used + count > limit)


@pytest.mark.parametrize("quotas", [[], "403 forbidden"])
def test_unknown_quotas_are_one_line_that_says_so(quotas):
    wanted = [Amount("4 CPUs of n4", "", 4), Amount("1 machine", "INSTANCES", 1)]
    assert list(machine_quota.lines("us-east5", wanted, quotas)) == [
        f"Quota for 4 CPUs of n4, 1 machine in us-east5: unknown here; {machine_quota.ASK} shows it"
    ]


def shown(monkeypatch, quotas, planned, **changes):
    monkeypatch.setattr(quota, "read", lambda spec: quotas)
    monkeypatch.setattr(quota, "read_families", lambda spec, wanted: {})
    said: list[str] = []
    expectations.show(spec(**changes), planned, said.append)
    return said


SMALL = [{"metric": "SSD_TOTAL_GB", "limit": 100.0, "usage": 0.0}]
MADE = [Planned('module.tpu_pools.google_container_node_pool.this["tpu-node-pool-0"]', POOL, "create")]


def test_plan_over_a_quota_is_refused_with_where_to_ask_for_more(monkeypatch):
    with pytest.raises(NoCapacity, match="the quota of my-project-1 in us-east5 does not allow this") as refused:
        shown(monkeypatch, SMALL, MADE)
    assert machine_quota.ASK in refused.value.hint


@pytest.mark.parametrize(
    ("quotas", "planned", "changes"),
    [
        ([{"metric": "SSD_TOTAL_GB", "limit": 200.0, "usage": 0.0}], MADE, {}),
        ("403 forbidden", MADE, {}),
        (SMALL, None, {}),  # the plan is elsewhere: these machines may exist
        (SMALL, [], {}),
        (SMALL, MADE, {"enable_tpu_autoscaling": True}),
    ],
)
def test_plan_within_its_quota_or_with_an_unknown_one_is_not_refused(monkeypatch, quotas, planned, changes):
    assert shown(monkeypatch, quotas, planned, **changes)
