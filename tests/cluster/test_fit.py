"""Programs brought to their first step and compiled by the real TPU compiler."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from conftest import processes_of
from support import fit_environment
from support.waiting import PATIENCE
from tpukit.core import paths
from tpukit.drill import pricing
from tpukit.fit import check
from tpukit.fit.check import Report
from tpukit.jobs import plan
from tpukit.jobs.spec import JobSpec, Settings

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "tests" / "fixtures" / "fit"
REFUSED: dict[str, dict[str, Any]] = yaml.safe_load((FOLDER / "refused" / "expected.yaml").read_text(encoding="utf-8"))
SECRET = "hunter2-very-secret"
LONG = 900.0


def fit(
    folder: Path, *command: str, tpu: str = "v5e-4", slices: int = 1, change: str = "", fresh: bool = True, **more: Any
) -> Report:
    spec = {"name": "corpus", "tpu": tpu, "slices": slices, "command": list(command), "code": str(folder), **more}
    job = plan.make(JobSpec.from_json(spec), Settings(), "local")
    return check.check(job, pricing.per_hour, lambda _text: None, seconds=LONG, fresh=fresh, change=change)


@pytest.mark.parametrize("name", REFUSED)
def test_program_that_cannot_run_well_has_its_fault_named(name: str) -> None:
    expected = REFUSED[name]
    report = fit(
        FOLDER / "refused", "python", f"{name}.py", slices=expected.get("slices", 1), env={"API_TOKEN": SECRET}
    )
    named = [one for one in report.findings if one.kind == expected["kind"]]
    assert named, report.findings
    assert named[0].stops is expected["stops"]
    assert report.can_run is not any(one.stops for one in report.findings)
    if "line" in expected:
        assert named[0].line == f"{name}.py:{expected['line']}"
    assert SECRET not in json.dumps(report.to_json())


@pytest.mark.parametrize("name", ["linen", "nnx_style", "equinox_style", "haiku_pmap", "sharded"])
def test_trainer_of_another_library_is_carried_to_its_first_step(name: str) -> None:
    report = fit(FOLDER / "trainers", fit_environment.trainers(), f"{name}.py")
    assert report.verdict == "fits", report.findings
    assert report.ended == "a value"
    assert report.estimate
    assert report.estimate.flops > 1e8
    assert not [one for one in report.findings if one.kind == "idle chips"]


def test_trainer_over_two_slices_has_traffic_between_them() -> None:
    report = fit(FOLDER / "trainers", fit_environment.trainers(), "sharded.py", "--slices=2", slices=2)
    assert report.verdict == "fits", report.findings
    assert report.estimate
    assert report.estimate.between_bytes > 0


EXAMPLES = {
    "01-hello-tpu": ("python", "hello.py"),
    "02-pretrain": ("python", "train.py", "--config=tiny"),
    "06-your-own": ("python", "step5.py"),
}


@pytest.mark.parametrize("slices", [1, 2])
@pytest.mark.parametrize("tpu", ["v5e-4", "v6e-4"])
@pytest.mark.parametrize("example", EXAMPLES)
def test_example_fits_without_a_false_alarm(example: str, tpu: str, slices: int) -> None:
    report = fit(ROOT / "examples" / example, *EXAMPLES[example], tpu=tpu, slices=slices)
    assert report.verdict == "fits", report.findings
    # Example 06 uses a single chip deliberately; no other warning is expected.
    assert {one.kind for one in report.findings} <= ({"idle chips"} if example == "06-your-own" else set())
    if example == "02-pretrain" and slices > 1:
        assert report.estimate
        assert report.memory
        sent = report.estimate.between_bytes / report.memory.parameters
        assert 0.9 < sent < 1.05, "each chip sends its gradients once a step"


def test_pretraining_compiles_the_kernel_of_tpus_once_and_sends_its_gradients_once() -> None:
    flags = ["--config.model.head_dim=128", "--config.data.sequence_length=128", "--config.mesh.tensor=2"]
    command = ("python", "train.py", "--config.data.dataset=synthetic", *flags)
    report = fit(ROOT / "examples" / "02-pretrain", *command, tpu="v6e-4", slices=2)
    assert report.verdict == "fits", report.findings
    assert [one["name"] for one in report.functions] == ["init", "train_step"]
    assert report.estimate
    assert report.memory
    assert 0.9 < report.estimate.between_bytes / report.memory.parameters < 1.05


def test_second_run_of_an_unchanged_job_answers_at_once_from_the_command_line(tmp_path: Path) -> None:
    folder = tmp_path / "code"
    folder.mkdir()
    (folder / "train.py").write_text((FOLDER / "refused" / "one_chip.py").read_text(encoding="utf-8"))
    job = {"name": "mine", "tpu": "v5e-4", "command": ["python", "train.py"], "code": "."}
    (folder / "job.yaml").write_text(yaml.safe_dump(job))
    argv = [sys.executable, "-m", "tpukit", "fit", str(folder / "job.yaml")]
    first = subprocess.run(argv, capture_output=True, text=True, check=False)
    began = time.monotonic()
    second = subprocess.run([*argv, "--json"], capture_output=True, text=True, check=False)
    assert (first.returncode, second.returncode) == (0, 0), first.stderr + second.stderr
    assert "mine on 1 slice of v5litepod-4, 4 chips: fits" in first.stdout
    assert json.loads(second.stdout)["cached"] is True
    assert time.monotonic() - began < 10  # 0.6 s of CPU; the rest is other load on the machine


def test_several_slices_are_compared_with_the_cheapest_that_fits_first(tmp_path: Path) -> None:
    job = {"name": "mine", "tpu": "v5e-4", "command": ["python", "replicated_embedding.py"]}
    (tmp_path / "job.yaml").write_text(yaml.safe_dump({**job, "code": str(FOLDER / "refused")}))
    argv = [sys.executable, "-m", "tpukit", "fit", str(tmp_path / "job.yaml"), "--try", "v5e-4,v5p-8", "--slices", "1"]
    argv += ["--html", str(tmp_path / "shapes.html")]
    ran = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    rows = [line.split() for line in ran.stdout.splitlines()]
    assert [row[2] for row in rows[1:3]] == ["v5p-8", "v5litepod-4"]
    assert "1 x v5litepod-4: replicated parameters" in ran.stdout
    assert (tmp_path / "shapes.html").read_text(encoding="utf-8").count("<circle") == 1


def test_remedy_lowers_the_memory_of_a_step() -> None:
    plain, changed = (
        fit(FOLDER / "remedies", "python", "train.py", change=one, fresh=bool(one)) for one in ("", "layers")
    )
    assert plain.memory
    assert changed.memory
    assert plain.loops
    assert changed.can_run, changed.findings
    assert changed.memory.temporaries < 0.9 * plain.memory.temporaries


def test_run_with_fit_refuses_a_job_that_cannot_fit(tmp_path: Path) -> None:
    job = {"name": "large", "tpu": "v5e-4", "command": ["python", "activations.py"], "code": str(FOLDER / "refused")}
    file = tmp_path / "job.yaml"
    file.write_text(yaml.safe_dump(job))
    env = {**os.environ, "XDG_STATE_HOME": str(tmp_path / "state"), "XDG_DATA_HOME": str(tmp_path / "data")}
    argv = [sys.executable, "-m", "tpukit", "run", str(file), "--fit", "--detach"]
    ran = subprocess.run(argv, capture_output=True, text=True, check=False, env=env)
    assert ran.returncode == 2
    assert "large does not fit on 1 x v5litepod-4" in ran.stderr
    assert "activations" in ran.stderr
    assert ran.stdout == ""


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 130), (signal.SIGKILL, -signal.SIGKILL)]
)
def test_signal_while_compiling_leaves_no_process(number: int, code: int, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import time\nimport jax\n\ntime.sleep(3600)\n")
    job = {"name": "slow", "tpu": "v5e-4", "command": ["python", "train.py"], "code": "."}
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(job))
    scratch = tmp_path / "tmp"
    scratch.mkdir()
    argv = [sys.executable, "-m", "tpukit", "fit", str(tmp_path / "job.yaml")]
    process = subprocess.Popen(argv, stderr=subprocess.PIPE, text=True, env={**os.environ, "TMPDIR": str(scratch)})
    assert process.stderr
    assert any("running the program" in line for line in process.stderr)
    process.send_signal(number)
    assert process.wait(60) == code
    process.stderr.close()
    assert number == signal.SIGKILL or list(scratch.iterdir()) == []
    until = time.monotonic() + PATIENCE
    while processes_of(scratch) and time.monotonic() < until:
        time.sleep(0.1)
    assert processes_of(scratch) == {}


def test_program_that_never_steps_is_stopped_after_its_time(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import time\n\nprint('my secret', flush=True)\ntime.sleep(3600)\n")
    job = {"name": "slow", "tpu": "v5e-4", "command": ["python", "train.py"], "code": "."}
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(job))
    argv = [sys.executable, "-m", "tpukit", "fit", str(tmp_path / "job.yaml"), "--timeout", "30"]
    ran = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert ran.returncode == 1
    assert "no step after 30 s (running the program)" in ran.stderr
    assert "my secret" not in ran.stdout + ran.stderr


def test_function_of_the_job_file_is_compiled_where_the_command_cannot_be_carried(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        "import jax\nimport jax.numpy as jnp\n\n\n"
        "def for_fit():\n"
        "    step = jax.jit(lambda w, x: jnp.tanh(x @ w).sum())\n"
        "    return step, jax.ShapeDtypeStruct((256, 256), 'float32'), jax.ShapeDtypeStruct((64, 256), 'float32')\n"
    )
    report = fit(tmp_path, "bash", "run.sh", fit="train.py:for_fit")
    assert report.verdict == "fits", report.findings
    assert report.estimate
    assert report.estimate.flops == 2 * 64 * 256 * 256


def test_answers_hold_nothing_of_the_program_s_own_output() -> None:
    fit(FOLDER / "refused", "python", "no_step.py")
    results = paths.cache() / "fit" / "results"
    assert not [one for one in results.glob("*.json") if "nothing to do" in one.read_text(encoding="utf-8")]
