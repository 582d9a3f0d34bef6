"""Progress is untrusted input: any program may have written it, as a file or as a line of its log."""

import json
import math
import os
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tpukit.jobs import report
from tpukit.places.progress import BYTES_MOST, Progress, parse, read

NOW = 1_800_000_000.0
NESTED = "[" * 30_000

HOSTILE = {
    "nothing": "",
    "half of it": '{"step": 3',
    "a list": "[1]",
    "null": "null",
    "a word": '"x"',
    "a number": "7",
    "digits beyond what Python reads": '{"step": ' + "9" * 5000 + "}",
    "nested too deep": '{"step": ' + NESTED,
    "nested too deep, and closed": '{"x": ' + NESTED + "]" * 30_000 + "}",
    "too long": '{"step": 3, "x": "' + "y" * BYTES_MOST + '"}',
    "no UTF-8": b'{"step": 3, "x": "\xff\xfe"}',
    "UTF-16 cut in half": '{"step": 3}'.encode("utf-16")[:-1],
    "a byte of zero": b"\0",
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_parse_nonsense_is_no_progress(text):
    assert parse(text, NOW) == Progress()


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_read_nonsense_is_no_progress(tmp_path, text):
    (tmp_path / "progress").write_bytes(text if isinstance(text, bytes) else text.encode())
    assert read(tmp_path / "progress", NOW) == Progress()


WRONG = ["1e400", "-1e400", "NaN", "Infinity", "true", '"3"', "[]", "{}", "null", "1" + "0" * 400]


@pytest.mark.parametrize("value", WRONG)
def test_parse_value_of_a_wrong_kind_costs_only_itself(value):
    for name in ("step", "loss", "steps_per_s", "saved", "time"):
        given = {"step": "3", "loss": "2.5", "steps_per_s": "1.5", "saved": "2", "time": str(NOW - 5)} | {name: value}
        said = parse("{" + ", ".join(f'"{key}": {text}' for key, text in given.items()) + "}", NOW)
        left = {
            "step": said.step,
            "loss": said.loss,
            "steps_per_s": said.steps_per_s,
            "saved": said.saved,
            "time": said.moved,
        }
        without = {"step": None, "loss": None, "steps_per_s": None, "saved": -1, "time": NOW}
        expected = {"step": 3, "loss": 2.5, "steps_per_s": 1.5, "saved": 2, "time": NOW - 5}
        assert left == expected | {name: without[name]}


@pytest.mark.parametrize("value", [2**63, -1, 1.5, 10**30, -(2**70)])
def test_parse_step_that_no_store_can_hold_is_none(value):
    said = parse(json.dumps({"step": value, "saved": value}), NOW)
    assert (said.step, said.saved) == (None, -1)


@pytest.mark.parametrize(("value", "step"), [(3.0, 3), (2**63 - 1, 2**63 - 1), (0, 0), (-0.0, 0)])
def test_parse_step_at_the_edges_is_taken_as_it_is(value, step):
    said = parse(json.dumps({"step": value, "saved": value}), NOW)
    assert (said.step, said.saved) == (step, step)


@pytest.mark.parametrize(
    ("said", "moved"),
    [
        (NOW - 30, NOW - 30),
        (NOW + 1e9, NOW),
        (1e308, NOW),
        (0, NOW),
        (-5, NOW),
        (12_345.6, NOW),  # time since boot
        (None, NOW),
    ],
)
def test_parse_time_is_never_later_than_now_and_never_of_another_clock(said, moved):
    assert parse(json.dumps({"step": 3, "time": said}), NOW).moved == moved


def test_read_takes_what_it_knows(tmp_path):
    values = {"step": 3, "loss": 2.5, "steps_per_s": 1.5, "saved": 2, "time": 1_700_000_000.0, "other": "x"}
    (tmp_path / "progress").write_text(json.dumps(values))
    assert read(tmp_path / "progress", time.time()) == Progress(3, 2.5, 1.5, 2, 1_700_000_000.0)


@pytest.mark.parametrize("values", [{"step": 3}, {"step": 3, "time": NOW}], ids=["no time", "a time to come"])
def test_read_file_was_written_when_it_was_last_changed(tmp_path, values):
    path = tmp_path / "progress"
    path.write_text(json.dumps(values))
    os.utime(path, (NOW - 100, NOW - 100))
    assert read(path, NOW).moved == NOW - 100


def test_read_file_changed_in_the_future_was_written_by_now(tmp_path):
    path = tmp_path / "progress"
    path.write_text('{"step": 3}')
    os.utime(path, (NOW + 100, NOW + 100))
    assert read(path, NOW).moved == NOW


def test_read_missing_file_is_no_progress(tmp_path):
    assert read(tmp_path / "progress", NOW) == Progress()
    assert read(tmp_path / "no\0name", NOW) == Progress()


def test_read_fifo_without_a_writer_does_not_wait(tmp_path):
    os.mkfifo(tmp_path / "progress")
    assert read(tmp_path / "progress", NOW) == Progress()


def test_read_folder_link_and_device_are_no_progress(tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "real").write_text('{"step": 3}')
    (tmp_path / "link").symlink_to(tmp_path / "real")
    (tmp_path / "zero").symlink_to("/dev/zero")
    for name in ("folder", "link", "zero"):
        assert read(tmp_path / name, NOW) == Progress()


def test_read_huge_file_costs_no_memory(tmp_path):
    path = tmp_path / "progress"
    path.write_text('{"step": 3}')
    os.truncate(path, 2**40)
    assert read(path, NOW) == Progress()


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(-(10**400), 10**400)
    | st.floats()
    | st.text(max_size=5)
    | st.floats(1e17, 1e300),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)
documents = st.dictionaries(st.sampled_from(["step", "loss", "steps_per_s", "saved", "time", "x"]), values).map(
    json.dumps
)


@given(documents | st.text(max_size=60) | st.binary(max_size=60))
def test_parse_whatever_it_is_can_be_stored_and_shown(text):
    said = parse(text, NOW)
    assert said.step is None or 0 <= said.step < 2**63
    assert -1 <= said.saved < 2**63
    assert 0.0 <= said.moved <= NOW
    for number in (said.loss, said.steps_per_s):
        assert number is None or math.isfinite(number)
        assert number is None or len(report.measure(number, 4)) < 20
    assert isinstance(said.step, (int, type(None))) and not isinstance(said.step, bool)
    json.dumps([said.step, said.loss, said.steps_per_s, said.saved, said.moved], allow_nan=False)
