"""What people see: durations, tables whose rows stay one line where nobody looks, and JSON with fixed keys."""

from __future__ import annotations

import io
import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from rich.table import Table

from tpukit import report
from tpukit.places.base import HostView
from tpukit.reasons import Reason, State
from tpukit.report import tables
from tpukit.store import Attempt, Event, Job

AT = 1_700_000_000.0
JOB = Job(
    "train-abcde",
    "local",
    "team",
    "me",
    AT,
    plan={"spec": {"tpu": "v4-16", "slices": 2}},
    tags=("a", "b"),
    state=State.FAILED,
    reason=Reason.USER_ERROR,
    message="the program on train-abcde-slice-0-1 failed: exit code 1",
    ended=AT + 65,
    attempts=(
        Attempt(0, 0, 0, State.FAILED, started=AT + 1, ended=AT + 60, saved=7, reason=Reason.HOST_LOST, host="h1"),
        Attempt(1, 1, 0, State.RUNNING),
    ),
)


def drawn(table: Table, width: int = 200) -> list[str]:
    out = io.StringIO()
    Console(file=out, width=width).print(table)
    return out.getvalue().splitlines()


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (3.9, "3s"),
        (59, "59s"),
        (60, "1m 0s"),
        (725, "12m 5s"),
        (3599, "59m 59s"),
        (14400, "4h 0m"),
        (86399, "23h 59m"),
        (90061, "1d 1h"),
        (8 * 86400, "8d 0h"),
    ],
)
def test_duration_has_two_units_at_most(seconds, text):
    assert report.duration(seconds) == text


@given(st.floats(0, 1e8), st.floats(0, 1e8))
def test_duration_longer_never_reads_shorter(one, other):
    units = {"s": 1, "m": 60, "h": 3600, "d": 86400}

    def read(text: str) -> int:
        return sum(int(word[:-1]) * units[word[-1]] for word in text.split())

    short, long = sorted((one, other))
    assert read(report.duration(short)) <= read(report.duration(long)) <= long


def test_iso_of_no_time_is_nothing():
    assert report.iso(0.0) is None
    assert report.iso(AT) == "2023-11-14T22:13:20.000+00:00"


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        ({"tpu": "v4-16"}, "v4-16"),
        ({"tpu": "v4-16", "slices": 1}, "v4-16"),
        ({"tpu": "v4-16", "slices": 2}, "2 × v4-16"),
        ({"tpu": {"generation": "v4", "topology": "2x2x2"}}, "v4 2x2x2"),
        ({"tpu": {"type": "v5e-8", "machine_type": "ct5lp-hightpu-4t"}, "slices": 3}, "3 × v5e-8"),
    ],
)
def test_shape_is_as_the_user_wrote_it(spec, text):
    assert report.shape(replace(JOB, plan={"spec": spec})) == text


def test_job_json_has_fixed_keys_and_iso_times():
    doc = json.loads(json.dumps(report.job_json(JOB)))
    assert doc == {
        "id": "train-abcde",
        "state": "failed",
        "reason": "user error",
        "message": JOB.message,
        "place": "local",
        "team": "team",
        "owner": "me",
        "tags": ["a", "b"],
        "created": "2023-11-14T22:13:20.000+00:00",
        "ended": "2023-11-14T22:14:25.000+00:00",
        "attempts": [
            {
                "number": 0,
                "stage": 0,
                "state": "failed",
                "reason": "host lost",
                "host": "h1",
                "detail": None,
                "saved_step": 7,
                "started": "2023-11-14T22:13:21.000+00:00",
                "ended": "2023-11-14T22:14:20.000+00:00",
            },
            {
                "number": 1,
                "stage": 1,
                "state": "running",
                "reason": None,
                "host": None,
                "detail": None,
                "saved_step": None,
                "started": None,
                "ended": None,
            },
        ],
    }


def test_job_json_of_a_new_job_has_the_same_keys():
    new = Job("a-1", "local", "team", "me", AT, plan={})
    assert report.job_json(new).keys() == report.job_json(JOB).keys()


def test_host_json_unknown_is_null():
    assert report.host_json(HostView("h", 0, 0, "waiting")) == {
        "name": "h",
        "slice": 0,
        "state": "waiting",
        "pid": None,
        "node": None,
        "exit_code": None,
        "step": None,
        "loss": None,
        "steps_per_s": None,
        "saved_step": None,
    }


def test_event_json():
    assert report.event_json(Event("a-1", AT, "hi")) == {"at": "2023-11-14T22:13:20.000+00:00", "text": "hi"}


def test_jobs_table_has_a_line_for_each():
    head, line = drawn(tables.jobs([JOB], AT + 1000))
    assert head.split() == ["job", "state", "tpu", "attempt", "age", "tags", "message"]
    assert line.split()[:7] == ["train-abcde", "failed", "2", "×", "v4-16", "1", "1m"]
    assert "a b" in line
    assert line.endswith("failed: exit code 1")


def test_jobs_table_in_a_narrow_terminal_keeps_ids_whole():
    assert any("train-abcde" in line for line in drawn(tables.jobs([JOB], AT), width=60))


def test_attempts_table_says_who_failed_first():
    _, first, second = drawn(tables.attempts(JOB, AT + 100))
    assert first.split() == ["0", "0", "failed", "host", "lost", "h1", "7", "59s"]
    assert second.split() == ["1", "1", "running", "-", "-", "-", "0s"]


def test_hosts_table_shows_progress_and_exit_codes():
    views = [
        HostView("h0", 0, 0, "running", pid=12, step=5, loss=0.123456, steps_per_s=2.0, saved=4),
        HostView("h1", 1, 0, "ended", pid=13, code=137),
        HostView("h2", 1, 1, "waiting"),
    ]
    _, *lines = drawn(tables.hosts(views))
    assert [line.split() for line in lines] == [
        ["h0", "0", "running", "12", "5", "0.1235", "2.00", "4"],
        ["h1", "1", "ended", "(137)", "13", "-", "-", "-", "-"],
        ["h2", "1", "waiting", "-", "-", "-", "-", "-"],
    ]


def test_tables_what_programs_said_is_shown_and_not_obeyed():
    """Square brackets are markup to rich; a message of a failed program may hold any."""
    said = "KeyError: '[red]layers[/red]' [/]"
    (_, line) = drawn(tables.jobs([replace(JOB, message=said)], AT))
    assert line.endswith(said)
    (_, line) = drawn(tables.events([Event("a-1", AT, said)]))
    assert line.endswith(said)


@pytest.mark.parametrize("state", State)
def test_every_state_has_a_style(state):
    assert tables.STYLES[state]
