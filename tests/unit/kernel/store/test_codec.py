"""Documents across versions: unknown fields are kept at every level."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tpukit.core.errors import Invalid
from tpukit.jobs.reasons import Reason, State
from tpukit.jobs.records import JOBS, Attempt, Job, Outcome
from tpukit.kernel.store import Broken, Entry, Kind, codec, native

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
objects = st.dictionaries(st.text(), values, max_size=4)
numbers = st.floats(0, 1e10)
attempts = st.builds(
    Attempt,
    number=st.integers(0, 99),
    stage=st.integers(0, 99),
    origin=st.integers(0, 99),
    state=st.sampled_from(State),
    asked=st.booleans(),
    started=numbers,
    ended=numbers,
    saved=st.integers(-1, 10**9),
    stopping=st.none() | st.sampled_from(Reason),
    reason=st.none() | st.sampled_from(Reason),
    host=st.text(),
    detail=st.text(),
    learned=objects,
)
outcomes = st.builds(Outcome, state=st.sampled_from(State), reason=st.sampled_from(Reason), message=st.text())
jobs = st.builds(
    Job,
    id=st.text(min_size=1),
    place=st.sampled_from(["local", "gke", "tpu-vm"]),
    team=st.text(),
    owner=st.text(),
    created=numbers,
    plan=objects,
    tags=st.lists(st.text()).map(tuple),
    state=st.sampled_from(State),
    reason=st.none() | st.sampled_from(Reason),
    message=st.text(),
    ended=numbers,
    wanted=st.sampled_from(["run", "stop", "resume", "rerun"]),
    attempts=st.lists(attempts, max_size=3).map(tuple),
    outcome=st.none() | outcomes,
)
# Field names of a newer version, unknown to every record.
unknown = st.dictionaries(st.text("xyz", min_size=1), values, min_size=1, max_size=3)


@given(values | st.floats())
def test_from_json_reads_what_python_reads_infinities_and_halves_of_characters_too(value):
    text = json.dumps(value)
    assert repr(codec.from_json(text)) == repr(json.loads(text))
    assert codec.from_json('["\\ud800", Infinity]') == ["\ud800", float("inf")]


@given(jobs)
def test_encode_then_decode_gives_the_same(job):
    doc = codec.encode(JOBS, job, {}, 1)
    assert codec.decode(JOBS, json.loads(codec.to_json(doc))) == job


@given(jobs)
def test_native_shape_and_back_gives_the_same(job):
    doc = codec.encode(JOBS, job, {}, 7)
    shaped = native.to_native(JOBS, job.id, job, doc)
    assert isinstance(shaped["plan"], str)
    assert native.from_native(JOBS, shaped) == doc


@given(jobs, jobs, unknown, unknown, unknown)
def test_encode_keeps_unknown_fields_at_every_level(before, after, top, inner, deep):
    raw = codec.encode(JOBS, before, {}, 1) | top
    for attempt in raw["attempts"]:
        attempt.update(inner)
    if raw["outcome"]:
        raw["outcome"].update(deep)
    raw["_version"] = 9
    doc = codec.encode(JOBS, after, raw, 2)
    assert {name: doc[name] for name in top} == top
    for attempt in doc["attempts"][: len(before.attempts)]:
        assert {name: attempt[name] for name in inner} == inner
    for attempt in doc["attempts"][len(before.attempts) :]:
        assert not set(inner) & set(attempt)
    if before.outcome and after.outcome:
        assert {name: doc["outcome"][name] for name in deep} == deep
    assert codec.decode(JOBS, doc) == after
    assert (doc["_version"], doc["_revision"]) == (9, 2)


@given(jobs, objects, objects)
def test_encode_content_of_the_users_own_is_replaced_not_merged(job, before, after):
    raw = codec.encode(JOBS, msgspec.structs.replace(job, plan=before), {}, 1)
    assert codec.encode(JOBS, msgspec.structs.replace(job, plan=after), raw, 2)["plan"] == after


class Thing(msgspec.Struct, frozen=True):
    state: str
    at: float
    number: int


def _first(doc: dict[str, Any]) -> dict[str, Any]:
    doc["number"] = int(doc.pop("text"))
    return doc


def _second(doc: dict[str, Any]) -> dict[str, Any]:
    doc["inner"]["seen"] = True
    return {**doc, "number": doc["number"] * 10}


THINGS: Kind[Thing] = Kind("things", Thing, state="state", order="at", upgrades=(_first, _second))
OLDEST = {"state": "on", "at": 1, "text": "4", "inner": {"x": 1}}


@pytest.mark.parametrize(
    ("raw", "number"),
    [
        (OLDEST, 40),
        ({"_version": 1, **OLDEST}, 40),
        ({"_version": 2, "state": "on", "at": 1, "number": 4, "inner": {}}, 40),
        ({"_version": 3, "state": "on", "at": 1, "number": 4}, 4),
        ({"_version": 8, "state": "on", "at": 1, "number": 4, "new": [1]}, 4),
    ],
)
def test_decode_brings_up_from_any_version(raw, number):
    before = json.loads(json.dumps(raw))
    assert codec.decode(THINGS, raw).number == number
    assert raw == before


def test_encode_writes_the_version_it_was_brought_up_to():
    doc = codec.encode(THINGS, Thing("off", 1.0, 5), OLDEST, 3)
    wanted = {"state": "off", "at": 1.0, "number": 5, "inner": {"x": 1, "seen": True}, "_version": 3, "_revision": 3}
    assert doc == wanted


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        ({"_version": 3, "state": "on", "at": 1}, "number"),
        ({"_version": 4, "state": "on", "at": 1}, "newer"),
        ({"_version": "x"}, "not a version"),
        ({"_version": 0}, "not a version"),
        ({"_version": 2, "number": 1}, "migrated from version 2"),
        ({"text": "no number"}, "migrated from version 1"),
        ([], "not an object"),
    ],
)
def test_read_what_cannot_be_read_says_why(raw, why):
    broken = codec.read(THINGS, "k", raw, 1, None)
    assert isinstance(broken, Broken)
    assert why in broken.why


def test_read_a_job_of_a_newer_version_is_an_entry_with_its_fields_kept():
    raw = {
        "id": "a",
        "place": "gke",
        "team": "t",
        "owner": "o",
        "created": 1,
        "plan": {},
        "colour": "red",
        "_version": 5,
    }
    entry = codec.read(JOBS, "a", raw, 1, None)
    assert isinstance(entry, Entry)
    assert codec.encode(JOBS, entry.value, entry.raw, 2)["colour"] == "red"


@given(st.lists(st.tuples(st.floats(allow_nan=False, allow_infinity=False), st.text("ab-", max_size=3)), max_size=20))
def test_rank_sorts_as_number_and_key_do(pairs):
    pairs = [(number + 0.0, key) for number, key in pairs]  # -0.0 and 0.0 are equal
    assert sorted(pairs) == sorted(pairs, key=lambda pair: native.rank(*pair))


@given(st.text(min_size=1))
def test_id_of_a_document_is_allowed_and_gives_its_name_back(name):
    document = native.to_id(name)
    assert native.from_id(document) == name
    assert "/" not in document
    assert document not in (".", "..")
    assert not (document.startswith("__") and document.endswith("__"))


def test_native_shape_that_is_too_large_says_how_large():
    unlimited = replace(JOBS, limit=0)
    job = Job("a-1", "local", "t", "o", 1.0, plan={"filler": "x" * 2_000_000})
    with pytest.raises(Invalid, match=r"the job a-1 takes 2,000,\d+ bytes, and Firestore allows 1,048,576"):
        native.to_native(unlimited, "a-1", job, codec.encode(unlimited, job, {}, 1))
