"""The pretraining example on two simulated slices: stopped, then killed, then run to its end.

It must end with the parameters, losses and batches of an undisturbed run. The test starts the processes itself, with
the environment of a GKE pod and without tpukit's places.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from support import compiling
from support.ports import free_port
from support.waiting import PATIENCE

pytestmark = pytest.mark.jax

ROOT = Path(__file__).parents[2]
SLICES, CHIPS, STEPS = 2, 2, 24
LOST_PEER = 134
CONFIG = compiling.SMALL | {"training.steps": STEPS, "training.checkpoint_every": 4}
FAULTY = """
import os, runpy, signal, sys
from tpukit.host import Host

number, field, least = sys.argv[1].split()
report, waiting = Host.report, [signal.Signals[number]]

def report_and_fail(self, **values):
    report(self, **values)
    if waiting and (values.get(field) or 0) >= int(least):
        os.kill(os.getpid(), waiting.pop())

Host.report = report_and_fail
sys.argv[:2] = ["train.py"]
runpy.run_path("train.py", run_name="__main__")
"""
"""The program with a signal at a step: on a busy machine, a signal from outside would come after the last one."""


class Attempt:
    """An attempt with one process per slice, started as any place would.

    The last one gets a signal when it reports a value: `fault` has the signal, the value's name and its least size.
    """

    def __init__(self, workdir: Path, number: int, fault: str = "", slices: int = SLICES) -> None:
        workdir.mkdir(exist_ok=True)
        self.workdir = workdir
        port = free_port()
        common = {
            "PATH": os.environ["PATH"],
            "HOME": os.environ.get("HOME", "/"),
            "PYTHONPATH": str(ROOT / "tools"),
            "JAX_PLATFORMS": "cpu",
            "JAX_FORCE_TPU_INIT": "1",
            "JAX_NUM_CPU_DEVICES": str(CHIPS),
            "JAX_COORDINATOR_PORT": str(port),
            "JAX_COORDINATOR_BIND_ADDRESS": f"127.0.0.1:{port}",
            "TPU_WORKER_HOSTNAMES": "127.0.0.1",
            "TPU_WORKER_ID": "0",
            "MEGASCALE_NUM_SLICES": str(slices),
            "MEGASCALE_COORDINATOR_ADDRESS": "127.0.0.1",
            "TPUKIT_WORKDIR": str(workdir),
            "TPUKIT_ATTEMPT": str(number),
            **compiling.ENVIRONMENT,
        }
        self.hosts = []
        for host in range(slices):
            own = {"MEGASCALE_SLICE_ID": str(host), "TPUKIT_PROGRESS": str(workdir / f"progress-{host}")}
            program = ["-c", FAULTY, fault] if fault and host == slices - 1 else ["train.py"]
            with (workdir / f"log-{number}-{host}").open("wb") as log:
                command = [sys.executable, *program, *(f"--config.{name}={value}" for name, value in CONFIG.items())]
                code = ROOT / "examples" / "02-pretrain"
                self.hosts.append(
                    subprocess.Popen(command, cwd=code, env=common | own, stdout=log, stderr=subprocess.STDOUT)
                )

    def wait(self, until: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + PATIENCE
        while not until():
            if time.monotonic() > deadline:
                pytest.fail(f"{what} was not there in {PATIENCE} s\n{self.log()}")
            time.sleep(0.02)

    def codes(self) -> list[int]:
        self.wait(lambda: all(host.poll() is not None for host in self.hosts), "the end")
        return [host.returncode for host in self.hosts]

    def log(self) -> str:
        return "\n".join(path.read_text(errors="replace")[-3000:] for path in sorted(self.workdir.glob("log-*")))

    def kill(self) -> None:
        for host in self.hosts:
            host.kill()
            host.wait()


@dataclass(frozen=True, slots=True)
class Ended:
    workdir: Path
    codes: list[list[int]]
    saved: list[list[int]]  # steps on disk after each attempt

    @property
    def digest(self) -> str:
        return str(json.loads((self.workdir / "result.json").read_text())["parameters_sha256"])

    @property
    def steps(self) -> list[dict[str, object]]:
        return [json.loads(line) for line in (self.workdir / "metrics.jsonl").read_text().splitlines()]

    def by_step(self, *names: str) -> dict[object, set[tuple[object, ...]]]:
        """Return every value seen for each step."""
        seen: dict[object, set[tuple[object, ...]]] = {}
        for line in self.steps:
            seen.setdefault(line["step"], set()).add(tuple(line[name] for name in names))
        return seen


def run(workdir: Path, *faults: str) -> Ended:
    """Run one attempt after another in the same workdir, each with another fault, and the last one with none."""
    codes, saved = [], []
    for number, fault in enumerate((*faults, "")):
        after = saved[-1][-1] if saved else 0
        attempt = Attempt(workdir, number, fault.format(next=after + 1))
        try:
            if "SIGKILL" in fault:
                attempt.hosts[-1].wait(PATIENCE)
                attempt.hosts[0].kill()  # a place does this for the peers of a lost host
            codes.append(attempt.codes())
        finally:
            attempt.kill()
        saved.append(saves(workdir))
        if not fault:
            assert codes[-1] == [0] * SLICES, attempt.log()
    return Ended(workdir, codes, saved)


def saves(workdir: Path) -> list[int]:
    return sorted(int(path.name) for path in (workdir / "checkpoints").iterdir() if path.name.isdigit())


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> Ended:
    return run(tmp_path_factory.mktemp("unbroken") / "work")


@pytest.fixture(scope="module")
def disturbed(tmp_path_factory: pytest.TempPathFactory) -> Ended:
    return run(tmp_path_factory.mktemp("disturbed") / "work", "SIGTERM step 1", "SIGKILL saved {next}")


def test_every_step_of_an_unbroken_run_is_logged_once(unbroken):
    assert [line["step"] for line in unbroken.steps] == list(range(1, STEPS + 1))
    assert len({line["batch"] for line in unbroken.steps}) == STEPS, "no batch comes twice"


def test_host_told_to_leave_takes_all_hosts_with_it_and_saves_that_step(disturbed):
    assert disturbed.codes[0] == [143, 143]
    left_at = max(line["step"] for line in disturbed.steps if line["attempt"] == 0)
    assert disturbed.saved[0][-1] == left_at
    resumed_at = min(line["step"] for line in disturbed.steps if line["attempt"] == 1)
    assert resumed_at == left_at + 1, "nothing that was saved is done again"


def test_killed_host_costs_only_what_was_not_saved(disturbed):
    first, lost = disturbed.codes[1]
    assert lost == -signal.SIGKILL
    assert first in (-signal.SIGKILL, LOST_PEER)
    resumed_at = min(line["step"] for line in disturbed.steps if line["attempt"] == 2)
    assert resumed_at == disturbed.saved[1][-1] + 1
    assert not list((disturbed.workdir / "checkpoints").glob("*tmp*")), "what was half-written is cleaned up"


def test_disturbed_run_ends_with_the_same_parameters_bit_for_bit(unbroken, disturbed):
    assert disturbed.digest == unbroken.digest


def test_disturbed_run_has_the_same_losses_and_batches_step_by_step(unbroken, disturbed):
    assert disturbed.by_step("loss", "batch") == unbroken.by_step("loss", "batch")


def test_scalars_of_all_attempts_are_one_curve_without_doubled_steps(disturbed):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    board = EventAccumulator(str(disturbed.workdir / "tensorboard" / "train"))
    board.Reload()
    steps = [event.step for event in board.Scalars("loss")]
    assert steps == sorted(set(steps))
    assert steps[-1] == STEPS


def test_finished_job_started_again_has_nothing_to_do_and_says_the_same(unbroken):
    before = unbroken.digest
    again = run(unbroken.workdir)
    assert again.digest == before
    assert len(again.steps) == STEPS


def test_host_alone_told_to_leave_saves_that_step(tmp_path):
    attempt = Attempt(tmp_path / "work", 0, "SIGTERM step 1", slices=1)
    try:
        assert attempt.codes() == [143], attempt.log()
    finally:
        attempt.kill()
    steps = [json.loads(line)["step"] for line in (tmp_path / "work" / "metrics.jsonl").read_text().splitlines()]
    assert (tmp_path / "work" / "checkpoints" / str(steps[-1])).is_dir()
