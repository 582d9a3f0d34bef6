"""Prices: known ones are exact and dated, unknown ones are None."""

from __future__ import annotations

import json
import re

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from tpukit import catalogue, cli
from tpukit.catalogue import prices
from tpukit.cli.catalogue import command
from tpukit.core.errors import Invalid

STEADY = settings(derandomize=True, deadline=None)
DOCUMENT = json.loads(prices.FILE.read_text())
LISTS = ("chip_hours", "machine_hours", "disk_gib_months", "bucket_gib_months")
ROWS = [row for name in LISTS for row in DOCUMENT[name]]
SINGLE = [DOCUMENT["cluster_hour"], DOCUMENT["log_gib"]]


@pytest.mark.parametrize(
    ("name", "zone", "capacity", "usd", "as_of"),
    [
        ("v4-32", "us-central2-b", "on-demand", 16 * 3.22, "2026-08-21"),
        ("v4-32", "us-central2-b", "committed-3y", 16 * 1.45, "2023"),
        ("v5p-128", "us-east5-a", "spot", 64 * 1.05882, "2026-08-21"),
        ("v5e-16", "us-west4-a", "flex-start", 16 * 0.60, "2026-08-09"),
        ("v6e-8", "us-east5-b", "calendar", 8 * 1.89, "2026-08-06"),
        ("tpu7x-8", "us-central1-c", "committed-1y", 4 * 8.40, "2026-09-17"),
        ("v3-8", "us-central1-a", "on-demand", 4 * 2.00, "2026-08-21"),  # one host
        ("v3-32", "europe-west4-a", "spot", 16 * 0.66, "2026-08-21"),  # larger slices have their own price
    ],
)
def test_price_known_is_chips_times_the_row_with_its_date(name, zone, capacity, usd, as_of):
    amount = prices.price(catalogue.find(name), zone, capacity)
    assert amount is not None
    assert (amount.usd, amount.per, amount.as_of) == (pytest.approx(usd), "hour", as_of)
    assert amount.link.startswith("https://")


@pytest.mark.parametrize(
    ("name", "zone", "capacity"),
    [
        ("tpu7x-8", "us-central1-c", "spot"),  # no source states it
        ("v6e-8", "asia-east1-c", "on-demand"),  # one table shows 700 for every size, a placeholder
        ("v3-32", "us-east1-d", "on-demand"),  # known only for a single host
        ("v5p-8", "us-east5-a", "flex-start"),  # its sources name no region
        ("v4-32", "us-central2-b", "reservation"),  # the contract sets the price
        ("v4-32", "mars-north1-a", "on-demand"),
    ],
)
def test_price_unknown_is_none(name, zone, capacity):
    assert prices.price(catalogue.find(name), zone, capacity) is None


def test_price_unknown_capacity_is_refused_with_the_right_ones():
    with pytest.raises(Invalid, match="there is no capacity 'preemptible'") as error:
        prices.price(catalogue.find("v4-32"), "us-central2-b", "preemptible")
    assert "on-demand, spot, flex-start" in str(error.value)


def test_price_of_an_ai_zone_is_its_regions_and_says_that_this_is_assumed():
    v6e = catalogue.find("v6e-8")
    inside, beside = prices.price(v6e, "us-south1-ai1b"), prices.price(v6e, "us-south1-a")
    assert inside is not None
    assert beside is not None
    assert inside.usd == beside.usd
    assert "assumed" in inside.note
    assert beside.note == ""


@STEADY
@given(st.sampled_from(catalogue.slices()), st.sampled_from(prices.CAPACITIES), st.data())
def test_price_any_slice_and_zone_is_positive_or_none_and_grows_with_chips(slice_, capacity, data):
    zone = data.draw(st.sampled_from(slice_.zones))
    amount = prices.price(slice_, zone, capacity)
    if amount is not None:
        assert amount.usd > 0
        per_chip = amount.usd / slice_.chips
        on_demand = prices.price(slice_, zone)
        assert on_demand is not None
        assert per_chip <= on_demand.usd / slice_.chips + 1e-9  # nothing costs more than on demand


def test_rows_are_positive_dated_sourced_and_said_once():
    for row in (*ROWS, *SINGLE):
        assert row["usd"] > 0, row
        assert re.fullmatch(r"20[0-9]{2}(-[01][0-9]-[0-3][0-9])?", row["as_of"]), row
        assert DOCUMENT["sources"][row["source"]]["link"].startswith("https://"), row
    keys = [tuple(value for key, value in row.items() if key not in ("usd", "as_of", "source")) for row in ROWS]
    assert len(set(keys)) == len(keys)
    assert {row["capacity"] for row in DOCUMENT["chip_hours"]} == set(prices.CAPACITIES) - {"reservation"}


def test_machine_disk_cluster_bucket_and_log_prices():
    default = prices.machine("n2-standard-4", "us-east5-a")
    assert default is not None
    assert (default.usd, default.per, default.as_of) == (0.19424, "hour", "2026-08-21")
    assert prices.machine("n2-standard-4", "us-central2-b") is None
    assert prices.machine("n2-standard-48", "us-east5-a") is None
    assert prices.cluster_fee().usd == 0.10
    stored = prices.bucket("EU")
    assert stored is not None
    assert (stored.usd, stored.per) == (0.026, "GiB-month")
    assert prices.bucket("us-central2") is None
    booted = prices.disk("pd-balanced", "us-east5-a")
    assert booted is not None
    assert (booted.usd, booted.per) == (pytest.approx(0.10 / 730), "hour")
    assert prices.disk("hyperdisk-balanced", "us-east5-a") is None
    assert prices.disk("pd-standard", "us-central2-b") is None
    assert prices.logs().usd == 0.5


def test_command_zone_filter_shows_the_price_of_that_zone():
    lines = CliRunner().invoke(command, ["us-west4-a"]).stdout.splitlines()
    (row,) = [line.split() for line in lines if "v5litepod-16 " in line]
    assert row[row.index("16", 7) + 1] == "19.20"


def test_command_json_names_on_demand_and_spot_prices_of_the_type_of_fleets():
    (printed,) = json.loads(CliRunner().invoke(cli.command, ["catalogue", "v3-8", "--json"]).stdout)
    known = {row["capacity"]: row["usd_per_hour"] for row in printed["prices"] if row["zone"] == "us-central1-a"}
    assert 0 < known["spot"] < known["on-demand"]


def test_command_json_lists_prices_with_dates_and_unknown_ones_are_absent():
    (printed,) = json.loads(CliRunner().invoke(command, ["v4-32", "--json"]).stdout)
    known = {row["capacity"]: row["usd_per_hour"] for row in printed["prices"]}
    assert known == {"on-demand": 51.52, "spot": 14.744, "committed-3y": 23.2}
    assert all(row["as_of"] and row["source"] for row in printed["prices"])


def test_command_unknown_price_is_a_question_mark(monkeypatch):
    monkeypatch.setattr(prices, "_chip_hours", dict)
    (row,) = [line.split() for line in CliRunner().invoke(command, ["v4-32"]).stdout.splitlines() if "v4-32" in line]
    assert row[-2:] == ["?", "us-central2-b"]
