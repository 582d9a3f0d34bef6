"""Zones: their CPU machines, and nodes without TPUs next to slices."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tpukit import catalogue
from tpukit.catalogue import shapes, zones

STEADY = settings(derandomize=True, deadline=None)


@pytest.mark.parametrize(
    ("zone", "machine_type", "answer"),
    [
        ("us-east5-a", "n1-standard-4", False),
        ("us-south1-b", "n1-standard-4", False),
        ("southamerica-west1-a", "n1-standard-4", False),
        ("us-central2-b", "e2-standard-4", False),
        ("us-central2-b", "n2-standard-4", True),
        ("us-central1-a", "n1-standard-4", True),
        ("us-central1-a", "m3-ultramem-32", None),  # an untracked family
        ("us-central1-ai1a", "n2-standard-4", None),
        ("mars-north1-a", "n2-standard-4", None),
    ],
)
def test_offers_known_families_and_nothing_else(zone, machine_type, answer):
    assert zones.offers(zone, machine_type) is answer


@STEADY
@given(st.sampled_from(catalogue.slices()), st.data())
def test_every_zone_with_tpus_has_the_default_cpu_machines_beside_it(slice_, data):
    place = zones.beside(data.draw(st.sampled_from(slice_.zones)))
    assert zones.offers(place, "n2-standard-4") is True
    assert not zones.is_ai_zone(place)


def test_beside_an_ai_zone_is_its_parent_and_another_zone_is_its_own():
    assert zones.beside("us-central1-ai1a") == "us-central1-a"
    assert zones.beside("us-south1-ai1b") == "us-south1-b"
    assert zones.beside("us-central2-b") == "us-central2-b"


def test_offering_lists_the_zones_of_a_region_that_have_the_machines():
    assert zones.offering("us-south1", "c4-standard-8") == ("us-south1-a", "us-south1-b")
    assert zones.offering("us-east5", "n1-standard-4") == ()


def test_file_for_terraform_has_the_same_zones():
    written = json.loads(shapes.TERRAFORM_FILE.read_text())["zones"]
    assert {row["name"]: tuple(row["cpu_families"] or ()) for row in written} == {
        zone: zones.families(zone) for zone in zones.CPU_FAMILIES
    }


def test_zones_are_spelt_as_google_spells_them():
    known = {zone for s in catalogue.slices() for zone in s.zones}
    assert "us-central1-ai1" not in known  # one page prints it, but it is not a zone
    assert {"us-central1-ai1a", "us-south1-ai1b"} <= known
    assert known <= {*zones.CPU_FAMILIES}
