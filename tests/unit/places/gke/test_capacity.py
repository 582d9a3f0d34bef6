"""Events that report missing chips, and events that report missing quota."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tpubox.pools import scale_events
from tpubox.pools.scale_events import GCE_QUOTA_EXCEEDED, GCE_STOCKOUT, INTERNAL
from tpukit.jobs.reasons import Reason
from tpukit.places.gke.capacity import Shortage, shortage

NO_CAPACITY, NO_QUOTA = Reason.NO_CAPACITY, Reason.NO_QUOTA
BEGAN = 1_700_000_000
STOCKOUT = scale_events.failed("us-central2-b", GCE_STOCKOUT)
QUOTA = scale_events.failed("us-central2-b", GCE_QUOTA_EXCEEDED)
UNKNOWN = scale_events.failed("us-central2-b", INTERNAL)
TRIGGERED = scale_events.triggered("group", 0, 4, 4)
BACKOFF = scale_events.not_triggered(["in backoff after failed scale-up"])
NO_MATCH = scale_events.not_triggered(["node(s) didn't match Pod's node affinity/selector"])
SCHEDULED = scale_events.Said("Scheduled", "Successfully assigned research/a to node-0")
WAITS = scale_events.Said("FailedScheduling", "0/3 nodes are available: 3 Insufficient google.com/tpu.", "Warning")


def event(at: float, said: scale_events.Said, name: str = "a", **fields: Any) -> dict[str, Any]:
    text = datetime.fromtimestamp(BEGAN + at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    about = {"kind": "Pod", "name": name}
    return {"reason": said.reason, "message": said.message, "involvedObject": about, "lastTimestamp": text, **fields}


@pytest.mark.parametrize(
    ("reason", "message", "means"),
    [
        # Reports of GKE users.
        (
            "FailedScaleUp",
            "Node scale up in zones us-west1-b associated with this pod failed: GCE out of resources. Pod is at risk "
            "of not being scheduled.",
            NO_CAPACITY,
        ),
        (
            "FailedScaleUp",
            "Node scale up in zones us-central1-a associated with this pod failed: GCE quota exceeded. Pod is at risk "
            "of not being scheduled.",
            NO_QUOTA,
        ),
        (
            "FailedScaleUp",
            "Node scale up in zones associated with this pod failed: Internal error. Pod is at risk of not being "
            "scheduled",
            None,
        ),
        # Messages of Compute Engine, forwarded by the component that creates node pools for JobSets.
        (
            "NodePoolCreationFailed",
            "Not all instances running in IGM after 35m. Expected 4, running 0. Current errors: [GCE_STOCKOUT]: "
            "Instance 'gke-x' creation failed: The zone 'projects/p/zones/us-east5-a' does not have enough resources "
            "available to fulfill the request.",
            NO_CAPACITY,
        ),
        ("NodePoolCreationFailed", "ZONE_RESOURCE_POOL_EXHAUSTED", NO_CAPACITY),
        (
            "NodePoolCreationFailed",
            'googleapi: Error 403: Insufficient regional quota to satisfy request: resource "TPUS_PER_TPU_FAMILY": '
            "request requires '16.0' and is short '16.0'.",
            NO_QUOTA,
        ),
        ("NodePoolCreationFailed", "Quota 'TPU_LITE_PODSLICE_V5' exceeded. Limit: 0.0 in region us-west4.", NO_QUOTA),
        ("NodePoolCreationFailed", 'There is no more capacity in the zone "us-central2-b"', NO_CAPACITY),
        ("NodePoolCreationFailed", "Error 400: tpu_topology is invalid", None),
        # A namespace quota is not Google's.
        ("FailedCreate", 'pods "a" is forbidden: exceeded quota: compute, requested: cpu=1', None),
    ],
)
def test_messages_are_told_apart(reason, message, means):
    got = shortage([event(0, scale_events.Said(reason, message))], ["a"])
    assert (got.reason if got else None) == means
    assert got is None or got.message == message


@pytest.mark.parametrize(
    ("said", "means"),
    [
        ([], None),
        ([WAITS, TRIGGERED], None),
        ([TRIGGERED, STOCKOUT], NO_CAPACITY),
        ([TRIGGERED, QUOTA], NO_QUOTA),
        ([STOCKOUT, QUOTA], NO_QUOTA),
        ([QUOTA, STOCKOUT], NO_CAPACITY),
        ([STOCKOUT, TRIGGERED], None),
        ([STOCKOUT, SCHEDULED], None),
        ([STOCKOUT, WAITS], NO_CAPACITY),
        ([STOCKOUT, UNKNOWN], NO_CAPACITY),
        ([STOCKOUT, BACKOFF], NO_CAPACITY),
        ([STOCKOUT, TRIGGERED, BACKOFF], None),
        ([BACKOFF], None),
        ([NO_MATCH], None),
    ],
)
def test_newest_event_wins_in_whatever_order_they_are_listed(said, means):
    events = [event(float(at), one) for at, one in enumerate(said)]
    for listed in (events, events[::-1]):
        got = shortage(listed, ["a"])
        assert (got.reason if got else None) == means


def test_failure_of_the_second_in_which_growing_began_is_the_later_one():
    assert shortage([event(5, QUOTA), event(5, TRIGGERED)], ["a"]) == Shortage(NO_QUOTA, QUOTA.message, BEGAN + 5)
    assert shortage([event(5, SCHEDULED), event(5, QUOTA)], ["a"]) is None


def test_backoff_says_that_it_still_holds():
    got = shortage([event(0, STOCKOUT), event(60, BACKOFF)], ["a"])
    assert got == Shortage(NO_CAPACITY, STOCKOUT.message, BEGAN + 60)


def test_pod_that_was_placed_does_not_speak_for_one_of_another_slice():
    events = [event(0, STOCKOUT, "a"), event(9, SCHEDULED, "b")]
    assert shortage(events, ["a", "b"]) == Shortage(NO_CAPACITY, STOCKOUT.message, BEGAN)
    assert shortage(events, ["b"]) is None


@pytest.mark.parametrize(
    "fields",
    [
        {"lastTimestamp": None, "eventTime": "2026-01-31T12:00:00.123456Z"},
        {"series": {"count": 3, "lastObservedTime": "2026-01-31T12:00:00.123456Z"}},
        {"lastTimestamp": None, "metadata": {"creationTimestamp": "2026-01-31T12:00:00.123456Z"}},
    ],
)
def test_time_is_read_from_where_libraries_write_it(fields):
    got = shortage([event(0, STOCKOUT, **fields)], ["a"])
    assert got is not None
    assert got.at == datetime(2026, 1, 31, 12, 0, 0, 123456, UTC).timestamp()


SAID = st.sampled_from([STOCKOUT, QUOTA, UNKNOWN, TRIGGERED, BACKOFF, NO_MATCH, SCHEDULED, WAITS])
EVENTS = st.lists(st.tuples(st.integers(0, 5), SAID, st.sampled_from("abc")), max_size=12)


@given(EVENTS, st.randoms(use_true_random=False))
def test_order_of_the_list_means_nothing_and_a_pod_that_was_placed_last_lacks_nothing(made, random):
    events = [event(float(at), said, name) for at, said, name in made]
    got = shortage(events, ["a", "b"])
    random.shuffle(events)
    again = shortage(events, ["a", "b"])
    # Failures of the same pod in the same second are interchangeable.
    assert (got is None, got and got.at) == (again is None, again and again.at)
    assert got is None or got.message in (STOCKOUT.message, QUOTA.message)
    assert shortage([*events, event(6, SCHEDULED, "a"), event(6, SCHEDULED, "b")], ["a", "b"]) is None
