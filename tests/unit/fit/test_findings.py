"""Interpretation of the worker's answers: memory by holder, estimates, findings."""

from __future__ import annotations

from typing import Any

import pytest

from tpukit import catalogue
from tpukit.fit import chips, estimate, findings, memory

GIB = 2**30
HBM = 16 * GIB


def argument(name: str, gib: float, *, whole: float | None = None, **more: Any) -> dict[str, Any]:
    size, total = int(gib * GIB), int((whole or gib * 4) * GIB)
    base = {"shape": [total // 4], "dtype": "float32", "spec": "", "donated": True}
    return {"name": name, "bytes": size, "whole": total, **base, **more}


def record(*arguments: dict[str, Any], **more: Any) -> dict[str, Any]:
    base = {"name": "step", "line": "train.py:9", "defined": "train.py:3", "results": [], "largest": [], "chips": 4}
    work = {"model": 4e12, "repeated": 0.0, "kernels": 0.0}
    return {**base, "arguments": list(arguments), "work": work, "problems": [], "others": [], "calls": 1, **more}


def compiled(*arguments: dict[str, Any], temp: float = 0.0, **more: Any) -> dict[str, Any]:
    held = sum(one["bytes"] for one in arguments)
    stats = {"argument": held, "output": 0, "alias": 0, "temp": int(temp * GIB), "peak": held + int(temp * GIB)}
    hlo = {"cycles": 1.5e6, "loops": 2.0, "inside": 2e9, "between": 0.0, "transfers": [], "unknown": 0}
    return record(*arguments, memory=stats, hlo=hlo, cost={"bytes accessed": 819e6}, **more)


def kinds(answer: dict[str, Any], slices: int = 1) -> list[tuple[str, bool]]:
    memories = [memory.of(one, HBM) for one in answer["programs"]]
    step = answer["programs"][-1] if answer["programs"] else None
    return [(one.kind, one.stops) for one in findings.of(answer, step, memories, slices)]


def answer(*programs: dict[str, Any], error: dict[str, str] | None = None) -> dict[str, Any]:
    return {"programs": list(programs), "devices": 4, "error": error, "ended": "a value"}


@pytest.mark.parametrize(
    ("name", "holder"),
    [
        ("state.params['layers']['query']", "parameters"),
        ("params['embedding']", "parameters"),
        ("state.optimizer[0].mu['layers']", "optimizer"),
        ("opt_state[0].nu['w']", "optimizer"),
        ("momentum['w']", "optimizer"),
        ("batch['tokens']", "other"),
        ("x", "other"),
    ],
)
def test_argument_is_held_for_what_its_name_says(name: str, holder: str) -> None:
    assert memory.holder(name) == holder


def test_memory_of_a_compiled_step_adds_up_to_its_peak() -> None:
    held = memory.of(compiled(argument("params", 2), argument("opt_state", 4), argument("x", 1), temp=3), HBM)
    parts = (held.parameters, held.optimizer, held.other_arguments, held.temporaries)
    assert tuple(part / GIB for part in parts) == (2, 4, 1, 3)
    assert held.peak == 10 * GIB
    assert held.over < 0


def test_memory_that_does_not_fit_takes_its_limits_from_the_compiler() -> None:
    text = (
        "RESOURCE_EXHAUSTED: E1000: CompileTimeHbmOom: Ran out of memory on HBM, the total memory required for HLO "
        "temporaries (234.84G) exceeds available HBM (15.75G). HLO module: jit_step."
    )
    held = memory.of(record(argument("params", 1), error={"kind": "E", "text": text, "line": ""}), HBM)
    assert held.available == 15.75 * GIB
    assert held.temporaries == pytest.approx(234.84 * GIB)
    assert held.peak == pytest.approx(235.84 * GIB)


def out_of_memory(gib: float) -> dict[str, str]:
    text = f"RESOURCE_EXHAUSTED: Ran out of memory on HBM: temporaries ({gib}G) exceeds available HBM (15.75G)."
    return {"kind": "JaxRuntimeError", "text": text, "line": "train.py:9"}


@pytest.mark.parametrize(
    ("program", "kind"),
    [
        (record(argument("params", 4), argument("opt_state", 13), error=out_of_memory(20)), "optimizer"),
        (record(argument("params", 17), argument("opt_state", 1), error=out_of_memory(1)), "parameters"),
        (record(argument("params", 1), error=out_of_memory(40)), "activations"),
        (record(argument("params['embedding']", 12, whole=12), error=out_of_memory(8)), "replicated parameters"),
        (
            record(
                argument("w", 1, shape=[50_000, 1024]),
                largest=[{"what": "float32[8,2048,50000]", "line": "model.py:4", "operation": "dot", "bytes": 9 * GIB}],
                error=out_of_memory(40),
            ),
            "logits",
        ),
    ],
)
def test_memory_finding_names_what_takes_the_most(program: dict[str, Any], kind: str) -> None:
    assert (kind, True) in kinds(answer(program))


def test_step_that_fits_has_no_findings() -> None:
    assert kinds(answer(compiled(argument("params", 2), argument("opt_state", 4), temp=3))) == []


def test_arrays_beside_the_step_count_for_its_memory() -> None:
    program = compiled(argument("params", 8), others=[argument("", 9)])
    assert kinds(answer(program)) == [("beside", True)]


def test_state_that_is_not_donated_is_named() -> None:
    state = argument("params", 2, donated=False)
    program = compiled(state, results=[{**state, "name": ""}])
    assert kinds(answer(program)) == [("donation", False)]


def test_collective_between_slices_in_a_loop_is_named() -> None:
    program = compiled(argument("params", 1))
    one = {"kind": "all-reduce", "bytes": 1e6, "between": True, "op": "psum", "count": 24.0, "looped": True}
    program["hlo"] |= {"between": 1e6, "transfers": [one]}
    assert kinds(answer(program), slices=2) == [("dcn in a loop", False)]
    program["hlo"]["transfers"][0] |= {"looped": False, "count": 1.0}
    assert kinds(answer(program), slices=2) == []


def test_error_of_the_program_is_named_with_its_line() -> None:
    error = {"kind": "ValueError", "text": "6 rows are not divisible by 4", "line": "train.py:30"}
    assert kinds(answer(error=error)) == [("uneven", True)]
    assert kinds(answer(error={**error, "text": "no such file"})) == [("program", True)]


def test_program_that_never_steps_is_named() -> None:
    assert kinds(answer()) == [("no step", True)]


def test_estimate_takes_the_slowest_resource_for_the_time_of_a_step() -> None:
    slice_ = catalogue.find("v5e-4")
    guess = estimate.of(compiled(argument("x", 1)), chips.of(slice_), 4, 4.8, tokens=1000)
    assert guess.compute_seconds == pytest.approx(4e12 / 4 / 197e12)
    assert guess.memory_seconds == pytest.approx(0.002)
    assert guess.ici_seconds == pytest.approx(0.01)
    assert (guess.bound, guess.roofline_seconds) == ("ICI", guess.ici_seconds)
    assert guess.mfu == pytest.approx(guess.compute_seconds / 0.01)
    assert guess.compiler_seconds == pytest.approx(0.001, rel=0.01)
    assert guess.usd_per_step == pytest.approx(4.8 / 3600 * 0.01)
    assert guess.usd_per_billion_tokens == pytest.approx(4.8 / 3600 * 0.01 / 1000 * 1e9)


def test_estimate_without_a_figure_for_a_network_leaves_it_out() -> None:
    guess = estimate.of(compiled(argument("x", 1)), chips.of(catalogue.find("v4-8")), 4, None)
    assert (guess.ici_seconds, guess.compiler_seconds, guess.usd_per_step) == (None, None, None)
    assert guess.bound == "compute"


def test_tokens_are_the_elements_of_the_largest_integer_batch() -> None:
    rows = [
        {"dtype": "int32", "shape": [8, 129]},
        {"dtype": "int32", "shape": [1000]},
        {"dtype": "float32", "shape": [100, 100]},
    ]
    assert estimate.tokens(rows) == 8 * 129
    assert estimate.tokens(rows[1:]) is None
