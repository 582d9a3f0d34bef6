"""Output for people: durations, tables whose rows stay one line when piped, and JSON with fixed keys."""

from __future__ import annotations

import io
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from rich.console import Console

from tpukit.jobs import report
from tpukit.jobs.reasons import Reason, State
from tpukit.jobs.records import Attempt, Job
from tpukit.jobs.report import tables
from tpukit.jobs.report.layout import FittedTable
from tpukit.kernel.store import Event
from tpukit.places.base import HostView

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


def drawn(table: FittedTable, width: int = 200) -> list[str]:
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
        "tpu": "v4-16",
        "slices": 2,
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
                "last_step": None,
                "warning": None,
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
                "last_step": None,
                "warning": None,
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
        "total_steps": None,
    }


def test_event_json():
    assert report.event_json(Event(AT, "hi")) == {"at": "2023-11-14T22:13:20.000+00:00", "text": "hi"}


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
    assert second.split() == ["1", "1", "running", "-", "-", "-", "-"]


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
    """Square brackets are markup to rich; the message of a failed program may contain any."""
    said = "KeyError: '[red]layers[/red]' [/]"
    (_, line) = drawn(tables.jobs([replace(JOB, message=said)], AT))
    assert line.endswith(said)
    (_, line) = drawn(tables.events([Event(AT, said)]))
    assert line.endswith(said)


@pytest.mark.parametrize("state", State)
def test_every_state_has_a_style(state):
    assert tables.STYLES[state]


LONG = "pretrain-llama-70b-x3f9a"
WIDTHS = (40, 60, 80, 120, 200)


def host(slice_index: int, index: int, **fields) -> HostView:
    node = f"gke-tpu-cluster-tpu-node-pool-{slice_index}-1a2b3c4d-{index}xyz"
    return HostView(f"{LONG}-slice-{slice_index}-{index}", slice_index, index, "running", node=node, **fields)


@pytest.mark.parametrize("width", WIDTHS)
def test_hosts_table_tells_hosts_apart_at_any_width_and_sorts_by_number(width):
    views = [host(number, index, step=7) for number in (10, 2, 0, 1) for index in (11, 0, 9)]
    _, *lines = drawn(tables.hosts(views), width)
    names = [line.split()[0].removeprefix(f"{LONG}-slice-") for line in lines]
    assert names == [f"{number}-{index}" for number in (0, 1, 2, 10) for index in (0, 9, 11)]
    assert all("running" in line and " 7" in line for line in lines)
    assert all(len(line) <= width for line in lines)


def test_hosts_table_pods_of_others_without_numbers_are_told_apart_at_40_columns():
    views = [HostView(f"{LONG}-workers-{suffix}", 0, 0, "running", node="n" * 40) for suffix in ("a-x8k2p", "b-x8k2p")]
    _, *lines = drawn(tables.hosts(views), 40)
    assert len({line.split()[0] for line in lines}) == 2
    assert all(line.split()[1] == "running" for line in lines)


def test_attempts_table_at_40_columns_says_which_host_failed_first():
    attempt = Attempt(
        0, 0, 0, State.FAILED, started=AT, ended=AT + 5, reason=Reason.HOST_LOST, host=f"{LONG}-slice-10-1"
    )
    head, line = drawn(tables.attempts(replace(JOB, id=LONG, attempts=(attempt,)), AT), 40)
    assert head.split() == ["attempt", "state", "reason", "host"]
    assert line.split() == ["0", "failed", "host", "lost", "10-1"]


@pytest.mark.parametrize("width", WIDTHS)
def test_jobs_table_shows_eleven_slices_as_eleven_and_ids_uncut(width):
    eleven = replace(JOB, id=f"x-{LONG}", plan={"spec": {"tpu": "v4-16", "slices": 11}})
    text = "\n".join(drawn(tables.jobs([eleven], AT), width))
    assert f"x-{LONG}" in text
    assert "11 × v4-16" in text or "tpu" not in text, "left out rather than cut"
    assert "exit code 1" in " ".join(text.split())


def test_shape_of_eleven_slices_is_eleven():
    assert report.shape(replace(JOB, plan={"spec": {"tpu": "v4-16", "slices": 11}})) == "11 × v4-16"


@pytest.mark.parametrize(
    ("started", "ended", "text"),
    [
        (0.0, 0.0, "-"),
        (0.0, AT, "-"),
        (AT, AT - 1, "-"),
        (AT, AT + 61, "1m 1s"),
        (AT, 0.0, "1m 40s"),
        (float("nan"), AT, "-"),
        (1e300, 0.0, "-"),
    ],
)
def test_attempts_table_time_that_is_none_is_no_duration(started, ended, text):
    attempt = Attempt(0, 0, 0, State.RUNNING, started=started, ended=ended)
    _, line = drawn(tables.attempts(replace(JOB, attempts=(attempt,)), AT + 100))
    assert line.endswith(f"  {text}")


@pytest.mark.parametrize("at", [0.0, -1.0, 1e18, float("nan"), float("inf")])
def test_event_without_a_time_is_shown_without_one(at):
    _, line = drawn(tables.events([Event(at, "hi")]))
    assert line.split() == ["-", "hi"]
    assert report.event_json(Event(at, "hi")) == {"at": None, "text": "hi"}


def test_no_active_jobs_is_not_no_jobs_yet():
    assert report.no_jobs(filtered=False).startswith("no jobs yet")
    assert report.no_jobs(filtered=True).startswith("no such jobs")
    assert report.no_jobs(filtered=False, active=True).startswith("no active jobs")


NUMBERS = st.integers() | st.just(10**18) | st.just(-(10**5000))
FLOATS = st.floats() | st.just(1e308)


@given(st.lists(st.builds(host, st.integers(0, 12), st.integers(0, 12), step=st.none() | NUMBERS, saved=NUMBERS,
                          loss=st.none() | FLOATS, steps_per_s=st.none() | FLOATS), min_size=1, max_size=4),
       st.sampled_from(WIDTHS))  # fmt: skip
def test_hosts_table_of_any_numbers_has_a_line_for_each_and_json_of_them_is_json(views, width):
    lines = drawn(tables.hosts(views), width)
    assert len(lines) == len(views) + 1
    assert all(len(line) <= width for line in lines)

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    json.loads(json.dumps([report.host_json(view) for view in views]), parse_constant=refuse)


ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
TPU = ANY | st.fixed_dictionaries({}, optional={"type": ANY, "generation": ANY, "topology": ANY})
SPEC = ANY | st.fixed_dictionaries(
    {}, optional={"tpu": TPU, "slices": ANY, "max": ANY | st.fixed_dictionaries({"restarts": ANY})}
)
PLAN = st.dictionaries(st.text(max_size=8), ANY, max_size=3) | st.fixed_dictionaries(
    {"spec": SPEC}, optional={"newer": ANY}
)


@given(PLAN, st.text(max_size=40), FLOATS, FLOATS, st.sampled_from(WIDTHS))
def test_job_of_any_record_is_shown_on_one_line_with_what_is_there(plan, said, created, ended, width):
    attempts = (
        Attempt(0, 0, 0, State.FAILED, started=ended, ended=created, reason=Reason.USER_ERROR, host=said, detail=said),
        Attempt(1, 1, 0, State.RUNNING, started=created),
    )
    job = replace(JOB, plan=plan, message=said, created=created, ended=ended, attempts=attempts, tags=(said,))
    assert report.shape(job)
    assert report.restarts(job).startswith("1 of ")
    assert json.dumps(report.job_json(job))
    assert JOB.id in drawn(tables.jobs([job], AT), width)[1]
    assert len(drawn(tables.jobs([job], AT), 100_000)) == 2
    assert len(drawn(tables.attempts(job, AT), 100_000)) == 3


def test_tables_terminal_codes_in_what_programs_said_are_not_sent_to_the_terminal():
    (_, line) = drawn(tables.jobs([replace(JOB, message="red \x1b[31mtext\nand a second line")], AT))
    assert line.endswith("red  [31mtext and a second line")


def test_unseen_is_said_only_of_programs_that_ran_a_while_without_a_step():
    silent, training = HostView("a", 0, 0, "running"), HostView("b", 0, 1, "running", step=0)
    assert "progress:" in report.unseen([silent], 100.0, 100.0 + report.UNSEEN_SECONDS)
    assert report.unseen([silent], 100.0, 101.0) == ""
    assert report.unseen([silent], 0.0, 1000.0) == ""
    assert report.unseen([silent, training], 100.0, 1000.0) == ""
    assert report.unseen([], 100.0, 1000.0) == ""


def test_unseen_is_not_said_of_a_program_that_announced_its_steps_however_long_it_compiles():
    silent, starting = HostView("a", 0, 0, "running"), HostView("b", 0, 1, "running", early=True)
    assert report.unseen([silent, starting], 100.0, 100_000.0) == ""


def test_unseen_is_not_said_within_minutes_in_which_programs_compile():
    assert report.unseen([HostView("a", 0, 0, "running")], 100.0, 340.0) == ""


def running(step: int, total: int | None, rate: float | None, state: str = "running") -> HostView:
    return HostView("h", 0, 0, state, step=step, total=total, steps_per_s=rate)


@pytest.mark.parametrize(
    ("hosts", "words"),
    [
        ([running(40, 1000, 2.0)], "step 40 of 1000 (4 %), about 8m 0s left"),
        ([running(40, 1000, 2.0), running(20, 1000, 1.0)], "step 20 of 1000 (2 %), about 16m 20s left"),
        ([running(40, 1000, None)], "step 40 of 1000 (4 %)"),
        ([running(40, 1000, float("nan"))], "step 40 of 1000 (4 %)"),
        ([running(1000, 1000, 2.0)], "step 1000 of 1000 (100 %)"),
        ([running(40, 1000, 2.0, "ended")], "step 40 of 1000 (4 %)"),
        ([running(40, None, 2.0)], ""),
        ([running(40, 0, 2.0)], ""),
        ([running(40, 10, 2.0)], ""),
        ([], ""),
    ],
)
def test_progress_has_the_time_that_is_left_where_the_program_says_its_steps(hosts, words):
    assert report.progress(hosts) == words
