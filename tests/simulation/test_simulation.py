"""Tests of the simulated worlds: fixed seeds without a violation, and replays that are identical to the byte."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from simulation import plans
from simulation.fleet_scene import FleetScene
from simulation.simulator import Simulator
from support.page_commands import ROOT, commands

SEEDS = 300
BATCH = 50


@pytest.fixture
def simulator() -> Iterator[Simulator]:
    with Simulator() as made:
        yield made


@pytest.mark.parametrize("first", range(0, SEEDS, BATCH))
def test_fixed_seeds_break_no_invariant(simulator, first):
    results = [(seed, simulator.seed(seed)) for seed in range(first, first + BATCH)]
    found = [f"seed {seed}: {one.violation}" for seed, one in results if one.violation]
    assert not found


def test_seed_replays_to_the_byte_in_another_process_with_another_hash_seed(simulator):
    seeds = [3, 17, 42]
    here = [simulator.seed(seed).digest for seed in seeds]
    code = (
        "from simulation.simulator import Simulator\n"
        f"with Simulator() as s: print([s.seed(seed).digest for seed in {seeds}])"
    )
    for number in ("1", "2"):
        env = {**os.environ, "PYTHONHASHSEED": number}
        tests = Path(__file__).parents[1]
        done = subprocess.run(
            [sys.executable, "-c", code], cwd=tests, env=env, capture_output=True, text=True, check=True
        )
        assert done.stdout.strip() == str(here)


def typed(command: str, more: str = "") -> str:
    """Run the line of the page that begins with a command, and return what it prints."""
    line = next(one for one in commands("tests/simulation/README.md") if command in one)
    # The environment that runs the tests is the one that `make` would create.
    env = {**os.environ, "MAKEFLAGS": "--assume-old=.venv/.ready"}
    argv = ["bash", "-euc", f"{line}{more}".replace("../.venv/bin/python", sys.executable)]
    done = subprocess.run(argv, cwd=ROOT, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr
    return done.stdout


def test_line_of_the_page_replays_a_seed_with_its_history():
    assert "no violation\ntrace " in typed("--seed ")


def test_line_of_the_page_runs_a_range_of_seeds():
    assert "2 seeds" in typed("make simulate", " SEEDS=2")


def test_line_of_the_page_finds_that_a_fix_was_removed():
    assert ": 0 (bought) |" in typed("mutations --seeds", " --only 'pods whose affinity'")


def test_world_does_not_depend_on_the_worlds_before_it(simulator):
    first = simulator.seed(7).digest
    simulator.seed(8)
    assert simulator.seed(7).digest == first


def test_violation_that_a_person_finds_ends_the_world(simulator, monkeypatch):
    def finish(scene: FleetScene) -> None:
        scene.world.violate("stuck", "a shard is left")
        scene.world.stepped()

    monkeypatch.setattr(FleetScene, "_finish", finish)
    violation = simulator.seed(3, "fleet").violation
    assert violation
    assert violation.invariant == "stuck"


def test_plan_of_a_seed_is_plain_data_that_is_drawn_once():
    assert plans.draw(11) == plans.draw(11)
    assert plans.draw(11) != plans.draw(12)
