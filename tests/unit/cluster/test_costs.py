"""Information printed before the question: the cost, its unknown parts, and whether the quota suffices."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tpukit.catalogue import find, prices
from tpukit.cluster import quota, running_costs
from tpukit.cluster.quota import Need
from tpukit.cluster.spec import ClusterSpec

SPEC = {
    "project_id": "my-project-1",
    "region": "us-east5",
    "zone": "us-east5-a",
    "artifact_repository_bucket_name": "my-artifacts",
    "network_name": "tpu-network",
    "subnet_name": "tpu-subnet",
    "cluster_name": "tpu-cluster",
    "tpu_type": "v5p-16",
    "num_tpu_pools": 2,
    "cpu_pool_machine_type": "n2-standard-4",
}


def spec(**changes):
    return ClusterSpec.from_json(SPEC | changes)


def said(found):
    return " ".join(" ".join(running_costs.lines(found)).split())


def test_estimate_adds_up_slices_machines_and_the_fee():
    found = running_costs.estimate(spec())
    slices = prices.price(find("v5p-16"), "us-east5-a")
    disks = (3 * 200 * 0.04 + 4 * 100 * 0.10) / 730
    assert found.hour == pytest.approx(2 * slices.usd + 3 * 0.19424 + disks + 0.10)
    assert found.unknown == ()
    text = said(found)
    assert "3 × 200 GB pd-standard 0.03 an hour (as of 2025-03-06)" in text
    assert "4 × 100 GB pd-balanced 0.05 an hour (as of 2025-03-06)" in text
    assert f"together {found.hour:,.2f} an hour, {found.hour * 730:,.0f} a month Not included" in text
    assert "at least" not in text


def test_estimate_says_what_data_and_logs_cost_by_use():
    text = said(running_costs.estimate(spec(num_tpu_pools=40)))
    assert "data in the bucket: 20.48 a month for each TiB (as of 2026-07-30)" in text
    month = 80 * 730 * 3600 * running_costs.ENTRY_BYTES / 2**30
    assert round(month) == 401  # terraform/README.md says so
    assert f"one line a second from each of 80 hosts is {month:,.0f} GiB a month" in text
    assert f"{(month - 50) * 0.5:,.0f} a month (as of 2026-09-12), the first 50 GiB are free" in text


def test_estimate_of_few_logs_says_that_they_are_free():
    text = said(running_costs.estimate(spec(num_tpu_pools=0)))
    assert "logs" not in text
    one = said(running_costs.estimate(spec(num_tpu_pools=1, tpu_type="v5p-8")))
    assert "GiB a month, which is free" in one


def test_estimate_of_a_cluster_that_stores_no_logs_of_jobs_has_no_line_of_them():
    assert "logs" not in said(running_costs.estimate(spec(logging_components=["SYSTEM_COMPONENTS"])))


def test_estimate_of_data_without_a_known_price_says_so():
    assert "data in the bucket: price unknown" in said(running_costs.estimate(spec(**V4)))


def test_estimate_what_has_no_price_is_named_and_never_taken_for_free():
    found = running_costs.estimate(
        spec(
            cpu_pool_machine_type="x9-odd-4",
            cpu_pool_disk_type="hyperdisk-extreme",
            capacity="reservation",
            reservation_name="mine",
        )
    )
    assert found.unknown == ("2 × v5p-16 reservation", "3 × x9-odd-4", "3 × 200 GB hyperdisk-extreme")
    text = said(found)
    assert "x9-odd-4 unknown" in text
    assert "together at least 0.15 an hour" in text
    assert "no price is known: 2 × v5p-16 reservation, 3 × x9-odd-4, 3 × 200 GB hyperdisk-extreme" in text


def test_estimate_pools_of_two_kinds_are_priced_apart():
    found = running_costs.estimate(spec(num_tpu_pools=1, tpu_pools={"a": {}, "b": {"capacity": "spot"}, "c": {}}))
    assert [item.what for item in found.items[:2]] == ["2 × v5p-16 on-demand", "1 × v5p-16 spot"]


def test_estimate_of_slices_that_come_and_go_says_that_it_is_the_most():
    assert "while all slices exist" in "\n".join(
        running_costs.lines(running_costs.estimate(spec(enable_tpu_autoscaling=True)))
    )


V4 = {"region": "us-central2", "zone": "us-central2-b", "tpu_type": "v4-16"}


@pytest.mark.parametrize(
    ("changes", "pools", "wanted"),
    [
        (V4, None, [Need("v4", False, 16)]),
        (V4 | {"capacity": "spot"}, None, [Need("v4", True, 16)]),
        (V4, {"tpu-node-pool-1"}, [Need("v4", False, 8)]),
        (V4, set(), []),
        (V4 | {"capacity": "reservation", "reservation_name": "mine"}, None, []),
    ],
)
def test_needs_count_the_chips_of_what_is_to_be_made(changes, pools, wanted):
    assert quota.needs(spec(**changes), pools) == wanted


@given(st.integers(0, 100), st.integers(0, 100), st.integers(1, 100))
def test_quota_says_enough_exactly_when_what_is_free_covers_the_need(limit, used, chips):
    quotas = [{"metric": "TPU_PODSLICE_V4", "limit": float(limit), "usage": float(used)}]
    (line,) = quota.lines("us-central2", [Need("v4", False, chips)], quotas)
    assert line.endswith(": enough") == (used + chips <= limit)
    assert ("NOT ENOUGH" in line) == (used + chips > limit)


@pytest.mark.parametrize(
    ("need", "quotas"),
    [
        (Need("v6e", False, 8), [{"metric": "TPU_PODSLICE_V4", "limit": 8.0, "usage": 0.0}]),
        (Need("v4", True, 8), [{"metric": "TPU_PODSLICE_V4", "limit": 8.0, "usage": 0.0}]),
        (Need("v4", False, 8), []),
        (Need("v4", False, 8), "403 forbidden\nand more"),
    ],
)
def test_quota_that_cannot_be_read_is_unknown_and_never_enough(need, quotas):
    (line,) = quota.lines("us-central2", [need], quotas)
    assert "unknown" in line
    assert "enough" not in line
    assert "\n" not in line


FAMILIES = {
    "TPUS-PER-TPU-FAMILY-per-project-region": {
        "dimensionsInfos": [
            {"details": {"value": "0"}, "applicableLocations": ["us-east5", "us-west1"]},
            {"dimensions": {"region": "us-east5", "tpu_family": "CT6E"}, "details": {"value": "64"}},
            {"dimensions": {"region": "us-east5", "tpu_family": "TPU7X"}, "details": {"value": "8"}},
            {"dimensions": {"region": "us-west1"}, "details": {}},
        ]
    },
    "PREEMPTIBLE-TPU-V6E-per-project-region": "403 Cloud Quotas API has not been used\nand more",
    "TPU-V5P-per-project-region": {"dimensionsInfos": []},
}


@pytest.mark.parametrize(
    ("need", "region", "words"),
    [
        (
            Need("v6e", False, 64),
            "us-east5",
            "the limit is 64 (TPUS-PER-TPU-FAMILY-per-project-region); its present use",
        ),
        (Need("v6e", False, 65), "us-east5", "NOT ENOUGH: request more at https://console.cloud.google.com/iam-admin"),
        (Need("tpu7x", False, 16), "us-east5", "the limit is 8 (TPUS-PER-TPU-FAMILY-per-project-region): NOT ENOUGH"),
        (Need("v6e", False, 4), "us-west1", "the limit is 0"),
        (Need("v6e", True, 4), "us-east5", "unknown (403 Cloud Quotas API has not been used)"),
        (Need("v5p", False, 4), "us-east5", "none is set (TPU-V5P-per-project-region), which may mean 0"),
        (Need("tpu7x", True, 4), "us-east5", "none is set (PREEMPTIBLE-TPU7X-per-project-region)"),
    ],
)
def test_quota_of_a_family_is_the_limit_of_its_region_and_unknown_is_said_as_unknown(need, region, words):
    (line,) = quota.lines(region, [need], [], FAMILIES)
    assert words in line
    assert "enough" not in line


def test_quota_of_families_is_asked_for_once_by_id_and_older_generations_are_not_in_it():
    newest = spec(region="us-east5", zone="us-east5-a", tpu_type="v6e-16")
    asked = quota.questions(newest, [Need("v6e", False, 8), Need("v6e", True, 8), Need("tpu7x", False, 4)])
    assert list(asked) == ["TPUS-PER-TPU-FAMILY-per-project-region", "PREEMPTIBLE-TPU-V6E-per-project-region"]
    assert quota.questions(newest, [Need("v4", False, 8)]) == {}
