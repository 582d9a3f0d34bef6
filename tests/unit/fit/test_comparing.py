"""A job compared on several shapes, with recorded reports in place of compiles."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tpukit import catalogue
from tpukit.core.errors import Denied
from tpukit.fit import comparing, shapes, whole_run
from tpukit.fit.check import Report
from tpukit.fit.comparing import Comparison
from tpukit.fit.estimate import Estimate
from tpukit.fit.running import Stopped, Unfinished
from tpukit.fit.shapes import Shape
from tpukit.fit.whole_run import Length
from tpukit.jobs import plan
from tpukit.jobs.spec import JobSpec, Settings

GIB = 2**30
LADDERS = shapes.ladders(["v5e", "v6e"], [1], 64)
Compile = Callable[[Shape, threading.Event], Report]


def estimate(seconds: float, tokens: int | None = 4096) -> Estimate:
    return Estimate(1e15, 0, 1e9, 1e6, 0, seconds, 0.1, 0.1, 0.0, seconds, "compute", seconds, 0.5, 0.5, tokens, 1, 1)


def reported(shape: Shape, verdict: str = "fits", **more: Any) -> Report:
    guess = estimate(64 / shape.chips, more.pop("tokens", 4096)) if verdict == "fits" else None
    chips = {"job": "mine", "slice": shape.tpu, "slices": shape.slices, "chips": shape.chips}
    return Report(**chips, verdict=verdict, estimate=guess, usd_per_hour=float(shape.chips), peak_memory=GIB, **more)


def plans_of(path: Path) -> dict[Shape, Any]:
    def of(shape: Shape) -> Any:
        body = {"name": "mine", "tpu": shape.tpu, "slices": shape.slices, "command": ["python", "t.py"]}
        return plan.make(JobSpec.from_json({**body, "code": str(path)}), Settings(), "local")

    return {shape: of(shape) for ladder in LADDERS for shape in ladder}


def compared(tmp_path: Path, compile_for: Compile, **more: Any) -> Comparison:
    found = Comparison(LADDERS, plans_of(tmp_path), compile_for, **{"cores": 2, "free": lambda: 16 * GIB, **more})
    found.run()
    return found


def from_sixteen_chips(shape: Shape, _stop: threading.Event) -> Report:
    return reported(shape, "fits" if shape.chips >= 16 else "does not fit")


def test_comparison_compiles_what_fits_and_excludes_what_is_smaller(tmp_path: Path) -> None:
    found = compared(tmp_path, from_sixteen_chips)
    fitting = {str(one) for one, report in found.reports.items() if report.can_run}
    assert fitting == {f"1 x {name}-{chips}" for name in ("v5litepod", "v6e") for chips in (16, 32, 64)}
    assert {str(one): str(why) for one, why in found.excluded.items()} == {
        "1 x v5litepod-1": "1 x v5litepod-4",
        "1 x v6e-1": "1 x v6e-4",
    }


def test_first_compile_runs_alone_and_its_memory_limits_the_others(tmp_path: Path) -> None:
    running, most, lock = 0, [], threading.Lock()

    def compile_for(shape: Shape, _stop: threading.Event) -> Report:
        nonlocal running
        with lock:
            running += 1
            most.append(running)
        report = reported(shape)
        with lock:
            running -= 1
        return report

    compared(tmp_path, compile_for, cores=8, free=lambda: 2 * GIB)
    assert set(most) == {1}


def test_compile_without_an_answer_is_reported_and_ends_no_other(tmp_path: Path) -> None:
    def compile_for(shape: Shape, _stop: threading.Event) -> Report:
        if shape.chips == 64:
            raise Denied("the compiler was killed", hint="compile on a larger machine")
        if shape.chips == 32:
            raise Unfinished("no step after 30 s")
        return reported(shape)

    found = compared(tmp_path, compile_for)
    assert len(found.reports) == sum(map(len, LADDERS))
    unknown = [one for one in found.reports.values() if one.verdict == comparing.UNKNOWN]
    assert len(unknown) == 4
    assert {one.findings[0].text.partition("\n")[0] for one in unknown} == {
        "the compiler was killed",
        "no step after 30 s",
    }


def test_interrupt_stops_the_other_compiles_and_keeps_what_was_finished(tmp_path: Path) -> None:
    waiting = threading.Event()

    def compile_for(shape: Shape, stop: threading.Event) -> Report:
        if shape.tpu.startswith("v6e"):
            waiting.set()
            assert stop.wait(60)
            raise Stopped("stopped")
        if found.reports:
            assert waiting.wait(60)
            raise KeyboardInterrupt
        return reported(shape)

    found = Comparison(LADDERS, plans_of(tmp_path), compile_for, lambda: 16 * GIB, 2)
    with pytest.raises(KeyboardInterrupt):
        found.run()
    assert [one.verdict for one in found.reports.values()] == ["fits"]


def test_run_costs_its_hours_at_the_price_of_the_shape() -> None:
    shape = Shape("v6e-8", 1, 8)
    assert whole_run.cost(reported(shape), Length(steps=900)) == (2.0, 16.0)
    assert whole_run.cost(reported(shape), Length(tokens=4096 * 900)) == (2.0, 16.0)
    assert whole_run.cost(reported(shape, tokens=None), Length(tokens=1e9)) == (None, None)
    assert whole_run.cost(reported(shape, "does not fit"), Length()) == (None, None)


def test_rows_have_the_cheapest_first_and_mark_what_no_other_beats() -> None:
    prices = {"v5litepod-4": 8.0, "v5litepod-8": 8.0, "v6e-8": 4.0, "v5p-8": 2.0}
    reports = {}
    for name, price in prices.items():
        slice_ = catalogue.find(name)
        shape = Shape(name, 1, slice_.chips)
        reports[shape] = Report("mine", name, 1, slice_.chips, "fits", estimate=estimate(64 / slice_.chips))
        object.__setattr__(reports[shape], "usd_per_hour", price)
    large = Shape("v6e-1", 1, 1)
    found = whole_run.rows({large: reported(large, "does not fit"), **reports}, Length())
    assert [one.shape.tpu for one in found] == ["v6e-8", "v5p-8", "v5litepod-8", "v5litepod-4", "v6e-1"]
    assert [one.shape.tpu for one in found if one.best] == ["v6e-8"]


def test_batches_that_depend_on_the_chips_are_noticed() -> None:
    small, large = Shape("v6e-4", 1, 4), Shape("v6e-8", 1, 8)
    same = whole_run.rows({small: reported(small), large: reported(large)}, Length())
    other = whole_run.rows({small: reported(small), large: reported(large, tokens=8192)}, Length())
    assert (whole_run.batches_differ(same), whole_run.batches_differ(other)) == (False, True)
