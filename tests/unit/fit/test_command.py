"""`tpu fit` with recorded reports in place of compiles."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tpukit.cli import fit as command
from tpukit.cli import job as jobs
from tpukit.cli import run as runs
from tpukit.core.errors import Invalid
from tpukit.fit import check, environment, running
from tpukit.fit.check import Report
from tpukit.fit.estimate import Estimate
from tpukit.fit.findings import Finding
from tpukit.jobs import plan as planning
from tpukit.jobs.plan import Plan
from tpukit.jobs.spec import JobSpec, Settings
from tpukit.jobs.use_cases import submission


def recorded(plan: Plan, *_: Any, **__: Any) -> Report:
    """Return a report of a job that needs 100 GiB of memory in all."""
    body = {"job": plan.spec.name, "slice": plan.slice.name, "slices": plan.spec.slices, "chips": plan.chips}
    if plan.chips * plan.slice.hbm_gib < 100:
        return Report(**body, verdict="does not fit", findings=(Finding("optimizer", "too large"),), peak_memory=1)
    seconds = 1e17 / plan.chips / plan.slice.tflops_bf16 / 1e12
    guess = Estimate(1e17, 0, 1e9, 1e6, 0, seconds, 0.1, 0.1, 0.0, seconds, "compute", seconds, 1, 1, 8192, 1, 1)
    return Report(**body, verdict="fits", estimate=guess, usd_per_hour=plan.chips * 1.5, peak_memory=1)


@pytest.fixture
def fit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    (tmp_path / "job.yaml").write_text("{name: mine, tpu: v5e-16, command: [python, train.py], code: .}")
    monkeypatch.setattr(check, "check", recorded)
    monkeypatch.setattr(command, "_stop_like_ctrl_c", lambda: None)  # signals of this process belong to pytest
    monkeypatch.setattr(environment, "make", lambda _say: None)
    monkeypatch.setattr(running, "free_memory", lambda: 16 << 30)

    def run(*words: str) -> Result:
        return CliRunner().invoke(command.command, [str(tmp_path / "job.yaml"), *words])

    return run


def test_all_compares_every_generation_and_writes_the_page(fit: Any, tmp_path: Path) -> None:
    ran = fit("--all", "--steps", "20000", "--html", str(tmp_path / "shapes.html"), "--json")
    assert ran.exit_code == 0, ran.output
    found = json.loads(ran.stdout)
    fitting = [one for one in found if one["verdict"] == "fits"]
    assert {one["slice"].partition("-")[0] for one in fitting} == {"v2", "v3", "v4", "v5litepod", "v5p", "v6e", "tpu7x"}
    assert [one["usd"] for one in fitting] == sorted(one["usd"] for one in fitting)
    assert fitting[0]["hours"] == pytest.approx(fitting[0]["usd"] / fitting[0]["usd_per_hour"])
    assert max(one["chips"] for one in found) == 256
    page = (tmp_path / "shapes.html").read_text(encoding="utf-8")
    assert page.count("<circle") == len(fitting)
    assert "20,000 steps" in page


def test_generation_is_compared_up_to_the_chips_that_are_given(fit: Any) -> None:
    ran = fit("--try", "v6e", "--slices", "1,2", "--chips", "8")
    assert ran.exit_code == 0, ran.output
    rows = [line.split()[:3] for line in ran.stdout.splitlines()[1:] if line.split()[4:5] == ["fits"]]
    assert sorted(rows) == [["1", "x", "v6e-4"], ["1", "x", "v6e-8"], ["2", "x", "v6e-4"]]


def test_all_leaves_out_generations_without_multislice(fit: Any) -> None:
    found = json.loads(fit("--all", "--slices", "2", "--chips", "16", "--json").stdout)
    assert {one["slice"].partition("-")[0] for one in found} == {"v4", "v5litepod", "v5p", "v6e", "tpu7x"}
    assert "cannot train together" in str(fit("--try", "v3-8,v6e", "--slices", "2").exception)


def test_comparison_in_which_nothing_fits_exits_1(fit: Any) -> None:
    ran = fit("--try", "v5e-1,v5e-4")
    assert ran.exit_code == 1
    assert "1 x v5litepod-4: optimizer: too large" in ran.stdout


def test_job_that_does_not_fit_lists_its_remedies(fit: Any) -> None:
    ran = fit("--set", "tpu=v5e-4")
    assert ran.exit_code == 1
    tried = [line[11:] for line in ran.stdout.splitlines() if "tpu: " in line]
    assert [line.split()[2] for line in tried] == ["v5litepod-8", "v6e-4"]
    assert [line.partition("): ")[2].partition(",")[0] for line in tried] == ["fits", "fits"]
    assert "tpu: " not in fit("--set", "tpu=v5e-4", "--no-remedies").stdout


def test_render_and_drills_name_the_last_fit_of_the_job_as_it_is_now(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("TPUKIT_HOME", str(tmp_path / "home"))
    file = tmp_path / "code" / "job.yaml"
    file.parent.mkdir()
    file.write_text(f"{{name: mine, tpu: v5e-16, command: [{sys.executable}, train.py], code: ., image: 'r/i:1'}}")
    (file.parent / "train.py").write_text("")
    plan = submission.make_plan(file, (), "local")
    assert command.last(plan) == ""
    step = {"name": "step", "line": "t.py:1", "calls": 1, "seconds": 1.0, "arguments": [], "results": [], "chips": 16}
    step |= {"memory": {"argument": 1, "output": 0, "alias": 0, "temp": 1 << 30, "peak": 1 << 30}, "problems": []}
    check._write(check._file(plan, check.refuse(plan)), {"programs": [step], "devices": 16, "ended": "a value"})
    assert command.last(plan) == "tpu fit: 1 x v5litepod-16: fits, 1.00 GiB of 16.00 GiB a chip"
    rendered = CliRunner().invoke(jobs.render, [str(file), "--set", "workdir=gs://bucket/w"])
    assert command.last(plan) in rendered.stderr, rendered.output
    (file.parent / "train.py").write_text("x = 1")
    assert command.last(plan) == ""


@pytest.mark.parametrize(
    ("setting", "wanted", "refused"),
    [(True, None, True), (True, False, False), (False, None, False), (False, True, True)],
)
def test_setting_fit_and_its_options_decide_whether_a_job_is_compiled_before_it_is_sent(
    setting: bool, wanted: bool | None, refused: bool, monkeypatch: Any
) -> None:
    monkeypatch.setattr(check, "check", recorded)
    body = {"name": "mine", "tpu": "v5e-4", "command": ["python", "train.py"]}
    plan = planning.make(JobSpec.from_json(body), Settings.from_json({"fit": setting}), "local")
    if refused:
        with pytest.raises(Invalid, match="mine does not fit on 1 x v5litepod-4"):
            runs._check_fit(plan, wanted)
    else:
        runs._check_fit(plan, wanted)


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["--steps", "5"], "is for comparisons"),
        (["--chips", "5", "--html", "x.html"], "are for comparisons"),
        (["--all", "--steps", "5", "--tokens", "5"], "give the same length twice"),
        (["--all", "--html", "missing/x.html"], "there is no folder"),
        (["--all", "--slices", "two"], "must be a number from 1"),
        (["--try", "v9"], "v9"),
        (["--try", "v6e", "--slices", "512"], "no slice"),
    ],
)
def test_options_that_do_not_belong_together_are_refused(fit: Any, words: list[str], problem: str) -> None:
    ran = fit(*words)
    assert problem in str(ran.exception) + ran.output
    assert getattr(ran.exception, "exit_code", 2) == 2
