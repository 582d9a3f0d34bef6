"""Remedies for jobs that do not fit, with recorded reports in place of compiles."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tpukit.cli import fit_table
from tpukit.core.errors import Denied
from tpukit.fit import remedies
from tpukit.fit.check import Report
from tpukit.fit.findings import Finding
from tpukit.fit.memory import Memory
from tpukit.jobs import plan as planning
from tpukit.jobs.plan import Plan
from tpukit.jobs.spec import JobSpec, Settings

GIB = 2**30


def plan_of(*command: str, tpu: str = "v5e-16", **more: Any) -> Plan:
    body = {"name": "mine", "tpu": tpu, "command": ["python", "train.py", *command], "code": ".", **more}
    return planning.make(JobSpec.from_json(body), Settings(), "local")


def refused(kind: str = "activations", **more: Any) -> Report:
    found = (Finding(kind, "too large"),)
    return Report("mine", "v5litepod-16", 1, 16, "does not fit", findings=found, **more)


def kinds(plan: Plan, report: Report) -> list[str]:
    return [trials[0].kind for trials in remedies.of(plan, report)]


@pytest.mark.parametrize(
    ("report", "tried"),
    [
        (refused(loops=1), ["remat", "batch", "chips", "generation"]),
        (refused("logits"), ["remat", "batch", "chips", "generation"]),
        (refused("optimizer"), ["chips", "generation"]),
        (refused("optimizer", replicated=True), ["sharding", "chips", "generation"]),
        (refused("replicated optimizer", replicated=True), ["sharding", "generation"]),
        (replace(refused(), verdict="does not compile"), []),
        (replace(refused(), verdict="fits", findings=()), []),
    ],
)
def test_remedies_are_those_that_can_help_with_what_takes_the_memory(report: Report, tried: list[str]) -> None:
    assert kinds(plan_of("--batch_size=64"), report) == tried


def test_program_with_a_loop_recomputes_its_body_and_another_its_loss() -> None:
    for loops, change in ((2, "layers"), (0, "loss")):
        (trial,), *_ = remedies.of(plan_of(), refused(loops=loops))
        assert (trial.kind, trial.change) == ("remat", change)


@pytest.mark.parametrize(
    ("command", "config", "expected"),
    [
        (["--batch_size=64"], {}, ["--batch_size=32", "--batch_size=16", "--batch_size=8"]),
        (["--config.training.batch_size=2"], {}, ["--config.training.batch_size=1"]),
        (["--per-device-batch", "6", "--steps", "9"], {}, ["--per-device-batch 3"]),
        (["--batch=auto", "--epochs=3"], {}, []),
        (["--batches.path=4"], {}, []),
        (
            [],
            {"training": {"batch_size": 4, "lr": 1}},
            ["--config.training.batch_size=2", "--config.training.batch_size=1"],
        ),
    ],
)
def test_batch_of_the_command_or_the_config_is_halved(command: list[str], config: Any, expected: list[str]) -> None:
    plan = plan_of(*command, config=config)
    batches = [one for trials in remedies.of(plan, refused()) for one in trials if one.kind == "batch"]
    assert [expect in " ".join(one.plan.command) for one, expect in zip(batches, expected, strict=True)] == [
        True for _ in expected
    ]
    assert bool(remedies.untried(plan, refused())) is not bool(expected)


def test_tensor_axis_is_doubled_within_the_slice() -> None:
    (trial,) = next(one for one in remedies.of(plan_of("--config.mesh.tensor=8"), refused()) if one[0].kind == "layout")
    assert trial.plan.command[-1] == "--config.mesh.tensor=16"
    assert "layout" not in kinds(plan_of("--config.mesh.tensor=16"), refused())


def test_more_chips_and_larger_chips_come_in_rising_order() -> None:
    trials = {one[0].kind: [trial.plan.slice.name for trial in one] for one in remedies.of(plan_of(), refused())}
    assert trials["chips"] == ["v5litepod-32", "v5litepod-64", "v5litepod-128"]
    assert trials["generation"] == ["v6e-16", "v5p-32", "tpu7x-32"]
    assert "chips" not in kinds(plan_of(tpu="v5e-256"), refused())


def test_remedy_ends_with_its_first_trial_that_fits_and_goes_on_after_an_error() -> None:
    plan = plan_of("--batch_size=64")

    def compile_for(changed: Plan, change: str) -> Report:
        if change:
            raise Denied("the compiler was killed", hint="compile on a larger machine")
        fits = changed.slice.name != plan.slice.name or "--batch_size=16" in changed.command
        held = Memory(GIB, GIB, 0, 2 * GIB, 4 * GIB, 16 * GIB)
        return replace(refused(memory=held), verdict="fits" if fits else "does not fit")

    tried = list(remedies.try_out(remedies.of(plan, refused()), compile_for))
    assert [(one.kind, one.verdict) for one in tried] == [
        ("remat", "no answer: the compiler was killed"),
        ("batch", "does not fit"),
        ("batch", "fits"),
        ("chips", "fits"),
        ("generation", "fits"),
    ]
    lines = list(fit_table.lines(replace(refused(), tried=tuple(tried))))
    assert any("--batch_size=16 in place of 64: fits, 4.00 GiB of 16.00 GiB a chip" in line for line in lines)
