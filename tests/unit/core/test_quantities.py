"""Quantities in Kubernetes notation."""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tpukit.core.quantities import amount, quantity


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("8", 8),
        (8, 8),
        ("0", 0),
        ("500m", Decimal("0.5")),
        ("407G", 407 * 10**9),
        ("16Gi", 16 * 2**30),
        ("1347656250Ki", 1380000000000),
        ("3k", 3000),
        ("1.5", Decimal("1.5")),
        ("1e3", 1000),
        ("2E", 2 * 10**18),
    ],
)
def test_amount_reads_what_kubernetes_writes(text, number):
    assert amount(text) == number


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0, "0"),
        (8, "8"),
        (1920, "1920"),
        (3000, "3k"),
        (3256 * 10**9, "3256G"),
        (10**12, "1T"),
        (Decimal("0.5"), "500m"),
    ],
)
def test_quantity_is_written_as_kubernetes_writes_it(number, text):
    assert quantity(number) == text


@given(st.integers(0, 10**18 - 1))
def test_quantity_reads_back_as_the_same_number(number):
    assert amount(quantity(number)) == number
