"""Old and new values of what a plan changes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tpukit.cluster.differences import Difference, by_address, of

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(0, 3) | st.sampled_from(["a", "b"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("xyz"), inner, max_size=3),
    max_leaves=8,
)


def test_change_in_place_shows_each_value_as_it_is_and_as_it_will_be():
    before = {"name": "p", "node_count": 3, "node_config": [{"labels": {"team": "a"}, "disk_size_gb": 100}]}
    after = {"name": "p", "node_count": 4, "node_config": [{"labels": {"team": "b"}, "disk_size_gb": 100}]}
    assert of({"before": before, "after": after}) == [
        Difference("node_count", "3", "4"),
        Difference("node_config.0.labels.team", '"a"', '"b"'),
    ]


def test_value_that_comes_or_goes_is_nothing_on_the_other_side():
    assert of({"before": {"a": 1}, "after": {"b": [1, 2]}}) == [
        Difference("a", "1", "nothing"),
        Difference("b", "nothing", "[1, 2]"),
    ]


def test_value_that_forces_a_replacement_is_marked():
    change = {"before": {"zone": "a", "x": 1}, "after": {"zone": "b", "x": 2}, "replace_paths": [["zone"]]}
    assert [one.replaces for one in of(change)] == [True, False]


def test_secrets_are_never_shown_and_unknown_values_are_said_to_be_so():
    change = {
        "before": {"key": "old", "id": "1", "same": "s"},
        "after": {"key": "new", "same": "s"},
        "before_sensitive": {"key": True, "same": True},
        "after_sensitive": {"key": True, "same": True},
        "after_unknown": {"id": True},
    }
    assert of(change) == [
        Difference("key", "(secret)", "(secret)"),
        Difference("id", '"1"', "(known after apply)"),
    ]


def test_by_address_leaves_out_what_is_made_or_deleted():
    def change(address, actions, before, after):
        return {"address": address, "change": {"actions": actions, "before": before, "after": after}}

    plan = {
        "resource_changes": [
            change("a", ["update"], {"x": 1}, {"x": 2}),
            change("b", ["create"], None, {"x": 2}),
            change("c", ["delete"], {"x": 1}, None),
            change("d", ["delete", "create"], {"x": 1}, {"x": 3}),
            change("e", ["no-op"], {"x": 1}, {"x": 1}),
        ]
    }
    assert {address: [one.after for one in found] for address, found in by_address(plan).items()} == {
        "a": ["2"],
        "d": ["3"],
    }


@given(VALUES, VALUES)
def test_there_is_a_difference_exactly_where_values_differ(before, after):
    found = of({"before": {"v": before}, "after": {"v": after}})
    assert bool(found) == (before != after) or _only_missing(before, after)


def _only_missing(before, after):
    """Check that the values differ only in nulls, which Terraform treats as missing attributes."""
    return _without_none(before) == _without_none(after)


def _without_none(value):
    if isinstance(value, dict):
        return {key: inner for key, item in value.items() if (inner := _without_none(item)) is not None}
    if isinstance(value, list):
        kept = [_without_none(item) for item in value]
        while kept and kept[-1] is None:
            kept.pop()
        return kept
    return value
