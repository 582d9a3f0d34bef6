"""One form for the reports of runs: trace files of `tpukit.host`, and lines of any trainer."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.drill_world import Program
from tpukit.drill import limits, trace
from tpukit.drill.saves import Save
from tpukit.drill.trace import Line, Report
from tpukit.host.progress import Progress
from tpukit.host.trace import Trace, digest, digests


def test_build_lines_of_a_trainer_become_reports():
    lines = [Line(0, 0, "loading", 1.0), Line(0, 0, "step 1 loss 2.5", 2.0), Line(1, 0, "step: 2, loss=2.25", 3.0)]
    assert trace.build(lines) == (Report(0, 0, 1, 2.5, at=2.0), Report(1, 0, 2, 2.25, at=3.0))


def test_build_pattern_of_the_job_file_is_used():
    lines = [Line(0, 0, "Schritt 7 Verlust 0.5")]
    assert trace.build(lines, r"Schritt (?P<step>\d+) Verlust (?P<loss>\S+)") == (Report(0, 0, 7, 0.5),)


def test_build_trace_file_goes_before_the_log_of_the_same_host():
    own = json.dumps({"step": 1, "loss": 2.123456789, "batch": "b1", "time": 5.0})
    lines = [Line(0, 0, "step 1 loss 2.12"), Line(0, 0, own, own=True), Line(0, 1, "step 1 loss 2.12")]
    assert trace.build(lines) == (Report(0, 0, 1, 2.123456789, "b1", at=5.0), Report(0, 1, 1, 2.12))


def test_build_norms_that_a_trainer_prints_with_the_loss_tell_parameters_apart():
    line = "completed step: 2, loss: 6.705, perplexity: 816.446, diag: raw_grad_norm={}e+00 param_norm=1.443272705e+02"
    one, same, other = trace.build(
        [
            Line(number, 0, line.format(norm))
            for number, norm in enumerate(["2.457807541", "2.457807541", "2.457807542"])
        ]
    )
    assert one.loss == other.loss == 6.705
    assert one.params == same.params != other.params


def test_build_what_is_said_later_of_a_step_is_added_to_it():
    texts = ['{"step": 9, "loss": 1.5}', '{"saved": 9}', '{"step": 9, "params": "p"}']
    reports = trace.build([Line(0, 0, text, own=True) for text in texts])
    assert trace.by_step(reports, 0)[9] == Report(0, 0, 9, 1.5, params="p", saved=9)


@settings(max_examples=25)
@given(st.lists(st.tuples(st.text(max_size=60), st.booleans()), max_size=6))
def test_build_any_text_raises_nothing(texts):
    trace.build([Line(0, 0, text, own=own) for text, own in texts])


@settings(max_examples=25)
@given(st.lists(st.tuples(st.integers(0, 10**9), st.floats(allow_nan=False, allow_infinity=False)), max_size=30))
def test_build_reads_back_every_report_that_a_host_wrote(tmp_path_factory, steps):
    folder = tmp_path_factory.mktemp("trace")
    progress = Progress("", trace=Trace(str(folder), 2, 3))
    steps = list({step: (step, loss) for step, loss in steps}.values())
    for step, loss in steps:
        progress.update({"step": step, "loss": loss, "batch": f"b{step}"})
    path = folder / "2-3.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines() if steps else []
    reports = trace.build([Line(2, 3, text, own=True) for text in lines])
    assert [(one.step, one.loss, one.batch) for one in reports] == [(step, loss, f"b{step}") for step, loss in steps]


def test_host_trace_is_off_without_a_folder_and_survives_one_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("")
    Trace("", 0, 0).write({"step": 1})
    Trace(str(tmp_path / "file" / "below"), 0, 0).write({"step": 1})
    assert not Trace("", 0, 0).on


def test_digest_names_content_type_and_shape_and_not_the_order_of_keys():
    import numpy as np

    one = {"a": np.arange(6, dtype=np.int32), "b": [np.float32(1.5), b"x"]}
    assert digest(one) == digest({"b": [np.float32(1.5), b"x"], "a": np.arange(6, dtype=np.int32)})
    others = [
        {**one, "a": np.arange(6, dtype=np.int64)},
        {**one, "a": np.arange(6, dtype=np.int32).reshape(2, 3)},
        {**one, "a": np.arange(1, 7, dtype=np.int32)},
    ]
    assert len({digest(one), *map(digest, others)}) == 4
    assert len(digest(one)) == 16


def test_limits_of_broken_runs_leave_a_restart_a_minute_however_quick_the_unbroken_run_was():
    quick = tuple(replace(report, at=report.at / 1000) for report in Program().unbroken())
    assert limits.measure(quick, (), slowest_start=0.1).silence >= 60.0


@pytest.mark.parametrize(
    ("step_seconds", "save_seconds", "grace", "expected"),
    [
        (0.01, 0.1, 30.0, 3.0),
        (0.01, 2.0, 30.0, 10.0),
        (1.0, 0.1, 30.0, 10.0),
        (0.01, 2.0, 1.0, 1.0),
        (9.0, 9.0, 30.0, 30.0),
    ],
)
def test_limits_grace_is_shorter_than_the_job_s_where_a_short_job_would_end_within_it(
    step_seconds, save_seconds, grace, expected
):
    steps = tuple(replace(report, at=report.step * step_seconds) for report in Program().unbroken())
    saves = [Save(10, 5.0, 5.0 + save_seconds, 100, done=True)]
    assert limits.measure(steps, saves, 0.1, grace).grace == pytest.approx(expected)


def test_build_losses_that_are_no_numbers_are_kept(tmp_path):
    progress = Progress("", trace=Trace(str(tmp_path), 0, 0))
    progress.update({"step": 1, "loss": float("nan")})
    progress.update({"step": 2, "loss": float("inf"), "params": {"head/w": "ab"}})
    lines = (tmp_path / "0-0.jsonl").read_text(encoding="utf-8").splitlines()
    one, two = trace.build([Line(0, 0, text, own=True) for text in lines])
    assert math.isnan(one.loss)
    assert (two.loss, two.named) == (math.inf, (("head/w", "ab"),))
    (printed,) = trace.build([Line(0, 0, "step 3 loss nan")])
    assert math.isnan(printed.loss)
    (written,) = trace.build([Line(0, 0, '{"step": 4, "loss": NaN}')])
    assert math.isnan(written.loss)


def test_digests_name_each_array_of_a_tree_by_its_path():
    import numpy as np

    found = digests({"layers": [{"w": np.ones(2)}, {"w": np.zeros(2)}], "none": None})
    assert list(found) == ["layers/0/w", "layers/1/w"]
    assert found["layers/0/w"] == digest(np.ones(2))
