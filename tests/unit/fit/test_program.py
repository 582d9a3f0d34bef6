"""The program of a job in the form in which the worker runs it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tpukit import catalogue
from tpukit.core.errors import Invalid
from tpukit.fit import program
from tpukit.jobs import plan
from tpukit.jobs.plan import Plan
from tpukit.jobs.spec import JobSpec, Settings


def plan_of(tmp_path: Path, command: list[str], **more: object) -> Plan:
    spec = JobSpec.from_json({"name": "mine", "tpu": "v5e-16", "command": command, "code": str(tmp_path), **more})
    return plan.make(spec, Settings(), "local")


@pytest.mark.parametrize(
    ("command", "mode", "argv"),
    [
        (["python", "train.py", "--lr=1"], "script", ("train.py", "--lr=1")),
        (["python3.12", "-u", "train.py"], "script", ("train.py",)),
        (["python", "-X", "dev", "-W", "error", "train.py", "-x"], "script", ("train.py", "-x")),
        (["python", "-m", "trainer.main", "--a", "b"], "module", ("trainer.main", "--a", "b")),
    ],
)
def test_command_gives_the_script_or_module_with_its_arguments(
    tmp_path: Path, command: list[str], mode: str, argv: tuple[str, ...]
) -> None:
    found = program.of(plan_of(tmp_path, command))
    assert (found.mode, found.argv) == (mode, argv)


@pytest.mark.parametrize("command", [["bash", "run.sh"], ["python"], ["python", "-c", "print()"], ["python", "-m"]])
def test_command_that_is_no_python_program_is_refused_with_the_other_way(tmp_path: Path, command: list[str]) -> None:
    with pytest.raises(Invalid, match=r"FILE\.py:FUNCTION"):
        program.of(plan_of(tmp_path, command))


def test_function_of_the_job_file_is_taken_instead_of_the_command(tmp_path: Path) -> None:
    found = program.of(plan_of(tmp_path, ["bash", "run.sh"], fit="train.py:step_for_fit"))
    assert (found.mode, found.argv) == ("function", ("train.py:step_for_fit",))


def test_flags_of_the_config_reach_the_program(tmp_path: Path) -> None:
    found = program.of(plan_of(tmp_path, ["python", "train.py"], config={"lr": 0.5}))
    assert found.argv == ("train.py", "--config.lr=0.5")


@pytest.mark.parametrize(
    ("name", "topology", "bounds"),
    [
        ("v5e-16", "v5e:4x4", (2, 2, 1)),
        ("v5e-8", "v5e:2x4", (2, 4, 1)),
        ("v6e-1", "v6e:1x1", (1, 1, 1)),
        ("v5p-8", "v5p:2x2x1", (2, 2, 1)),
    ],
)
def test_hosts_of_the_slice_are_those_of_the_catalogue(
    name: str, topology: str, bounds: tuple[int, ...], tmp_path: Path
) -> None:
    found = program.of(plan_of(tmp_path, ["python", "train.py"], tpu=name))
    assert (found.topology, found.bounds) == (topology, bounds)
    assert program.bounds(catalogue.find(name)) == bounds


def test_values_of_the_environment_are_masked_in_errors(tmp_path: Path) -> None:
    found = program.of(plan_of(tmp_path, ["python", "train.py"], env={"API_TOKEN": "hunter2-secret", "N": "4"}))
    assert found.masked == ("hunter2-secret",)
