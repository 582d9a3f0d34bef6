"""A record's information about hosts whose pods are gone."""

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.gke_world import planned, pod
from support.lost_hosts import LOOPS, tail_of
from tpukit.places import log_tail
from tpukit.places.gke import hosts
from tpukit.places.gke.hosts import TAIL_LINES, HostRecord, with_tails
from tpukit.places.log_tail import Cause
from tpukit.places.progress import Progress

LEAVING = "2026-01-01T00:00:00Z"
some_records = st.builds(
    HostRecord,
    uid=st.text(max_size=5),
    node=st.text(max_size=5),
    phase=st.sampled_from(["Pending", "Running", "Succeeded", "Failed"]),
    began=st.floats(0, 1e9),
    ended=st.floats(0, 1e9),
    code=st.one_of(st.none(), st.integers(0, 255)),
    said=st.text(max_size=5),
    disrupted=st.text(max_size=5),
    maintenance=st.booleans(),
    deleted=st.booleans(),
    out_of_memory=st.booleans(),
    tail=st.lists(st.text(max_size=50), max_size=5).map(tuple),
)


@given(some_records)
def test_host_record_survives_a_store(record):
    assert msgspec.convert(json.loads(json.dumps(msgspec.to_builtins(record))), HostRecord) == record


def test_host_record_with_a_field_of_a_newer_version_is_read():
    assert msgspec.convert({"uid": "u", "colour": "red"}, HostRecord) == HostRecord("u")


@given(st.dictionaries(st.text(max_size=8), some_records, max_size=50))
def test_to_record_is_small_and_has_who_was_disrupted_and_who_failed_first(records):
    recorded = hosts.recorded({"hosts": json.loads(json.dumps(hosts.to_record(records)))})
    assert len(recorded) <= hosts.MOST_RECORDED
    assert sum(1 for one in recorded.values() if one.tail) <= hosts.TAILS_RECORDED
    telling = {name: one for name, one in records.items() if one.disrupted}
    failed = {name: one for name, one in records.items() if one.failed and not one.disrupted}
    if telling:
        assert min(telling, key=lambda name: (not telling[name].failed, telling[name].ended, name)) in recorded
    if failed and len(telling) < hosts.MOST_RECORDED:
        assert min(failed, key=lambda name: (failed[name].ended, name)) in recorded


def test_to_record_hosts_that_just_run_are_not_worth_a_write():
    assert hosts.to_record({"h": HostRecord.of(pod())}) == {}


def test_with_tails_long_logs_are_cut_to_what_a_record_holds():
    failed = {"h": HostRecord.of(pod(phase="Failed", code=1))}
    (record,) = hosts.with_tails(failed, {"h": [f"{number:0500}" for number in range(100)]}).values()
    assert record.tail[-1].endswith("99")
    assert sum(map(len, record.tail)) <= hosts.TAIL_CHARACTERS


def test_pod_that_was_deleted_before_it_ended_stays_so_when_it_has_ended():
    leaving = HostRecord.of(pod(deletionTimestamp=LEAVING))
    assert leaving.deleted
    assert HostRecord.of(pod(phase="Failed", code=143, deletionTimestamp=LEAVING), before=leaving).deleted


def test_pod_that_ended_and_is_then_removed_was_not_told_to_leave():
    ended = HostRecord.of(pod(phase="Failed", code=1))
    assert not HostRecord.of(pod(phase="Failed", code=1, deletionTimestamp=LEAVING), before=ended).deleted


def test_pod_of_the_next_attempt_of_the_same_host_is_a_new_one():
    before = HostRecord.of(pod(deletionTimestamp=LEAVING))
    fresh = pod()
    fresh["metadata"]["uid"] = "other"
    assert not HostRecord.of(fresh, before=before).deleted


def test_views_of_an_attempt_that_is_over_do_not_run():
    plan = planned()
    first = plan.host_names[0]
    known = {first: HostRecord.of(pod())}
    said = {first: (Progress(step=7, saved=5, moved=3.5), 12.0)}
    views = hosts.views(plan, known, said)
    assert [host.state for host in views] == ["running", "waiting", "waiting", "waiting"]
    assert (views[0].step, views[0].saved, views[0].heard, views[1].heard) == (7, 5, 12.0, 0.0)
    assert [host.state for host in hosts.views(plan, known, said, over=True)] == ["ended"] * 4


@pytest.mark.parametrize("loop", LOOPS)
def test_with_tails_long_traceback_keeps_the_line_that_says_what_it_was(loop):
    frame = ('  File "/code/model.py", line 7, in call', "    return self.call(x)")
    record = HostRecord(phase="Failed", code=1)
    lines = tail_of(loop)
    at = next((index for index, line in enumerate(lines) if line.startswith("Traceback")), 0)
    lines[at + 1 : at + 1] = frame * 90
    kept = with_tails({"h": record}, {"h": lines})["h"].tail
    assert log_tail.read(kept).cause is Cause.PEER
    assert len(kept) <= TAIL_LINES
