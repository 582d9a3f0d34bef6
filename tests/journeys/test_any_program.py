"""Programs without tpukit on the local place with real processes: their progress, their saves, and polite exits.

A program that exits with 0 when stopped must not count as completed.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from journeys.conftest import Tpu
from support.waiting import PATIENCE, until
from tpukit.core.clock import ManualClock, SystemClock
from tpukit.jobs import plan
from tpukit.jobs.reasons import Reason, State
from tpukit.jobs.records import Attempt
from tpukit.jobs.spec import JobSpec, Settings
from tpukit.places.base import Handle, Observation
from tpukit.places.local import processes as pods
from tpukit.places.local.place import LocalPlace
from tpukit.places.meeting import SECONDS

POLITE = """
import signal, sys, time
left = []
signal.signal(signal.SIGTERM, lambda *_: left.append(1))
print("step 1/1000 loss 2.5", flush=True)
while not left:
    time.sleep(0.02)
print(sys.argv[1], flush=True)
"""
"""Trains until SIGTERM, prints a message, and exits with 0."""


@pytest.fixture
def place(home: Path) -> LocalPlace:
    return LocalPlace(home, SystemClock())


def handle(program: str, *arguments: str, tpu: str = "v4-8", **fields: Any) -> Handle:
    command = [sys.executable, "-S", "-c", program, *arguments]
    spec = JobSpec.from_json({"name": "any", "tpu": tpu, "command": command, **fields})
    return Handle(plan.make(spec, Settings(), "local"), Attempt(0, stage=0, origin=0))


def observe(place: LocalPlace, attempt: Handle) -> Observation:
    (seen,) = place.observe([attempt])
    assert isinstance(seen, Observation)
    return seen


def ended(place: LocalPlace, attempt: Handle) -> Observation:
    return until(lambda: seen if (seen := observe(place, attempt)).state.ended else None)


def trains(place: LocalPlace, attempt: Handle) -> Observation:
    """Wait until all hosts have reported a step."""

    def all_train() -> Observation | None:
        seen = observe(place, attempt)
        return seen if all(host.step is not None for host in seen.hosts) else None

    return until(all_train)


def test_observe_program_that_prints_steps_shows_step_loss_and_save(place):
    attempt = handle("print('step 3 loss 1.5'); print('saved checkpoint at step 2')")
    place.submit(attempt)
    seen = ended(place, attempt)
    assert (seen.hosts[0].step, seen.hosts[0].loss, seen.saved) == (3, 1.5, 2)


def test_observe_pattern_of_the_job_file_reads_what_nothing_else_can(place):
    attempt = handle(
        "print('it=7 L=0.5'); print('flushed 6')", progress=r"it=(?P<step>\d+) L=(?P<loss>\S+)|flushed (?P<saved>\d+)"
    )
    place.submit(attempt)
    seen = ended(place, attempt)
    assert (seen.hosts[0].step, seen.hosts[0].loss, seen.saved) == (7, 0.5, 6)


def test_observe_own_report_wins_over_lines(place):
    program = """
import os
open(os.environ["TPUKIT_PROGRESS"], "w").write('{"step": 5, "loss": 1.0, "saved": 4}')
print("step 99 loss 9.9, checkpoint saved")
"""
    attempt = handle(program)
    place.submit(attempt)
    seen = ended(place, attempt)
    assert (seen.hosts[0].step, seen.hosts[0].loss, seen.saved) == (5, 1.0, 4)


def test_observe_checkpoints_in_the_workdir_are_what_is_saved(place):
    program = """
import os
for name in ("10", "20", "30.orbax-checkpoint-tmp"):
    os.makedirs(os.path.join(os.environ["TPUKIT_WORKDIR"], "run/checkpoints", name))
"""
    attempt = handle(program)
    place.submit(attempt)
    assert ended(place, attempt).saved == 20


@pytest.mark.parametrize("tpu", ["v4-8", "v4-16"])
def test_stopped_program_that_exits_0_is_not_done(place, tpu):
    attempt = handle(POLITE, "bye", tpu=tpu)
    place.submit(attempt)
    trains(place, attempt)
    place.stop(attempt, 30.0)
    seen = ended(place, attempt)
    assert (seen.state, seen.reason) == (State.FAILED, Reason.CANCELLED)
    assert "exit code 0" in seen.detail


def test_stopped_program_that_says_done_only_because_it_left_is_not_done(place):
    attempt = handle(POLITE, "training complete")
    place.submit(attempt)
    trains(place, attempt)
    place.stop(attempt, 30.0)
    assert ended(place, attempt).reason is Reason.CANCELLED


@pytest.mark.parametrize("last", ["training complete", "step 1000/1000 loss 1.0"])
def test_stopped_program_that_had_reached_its_end_is_done(place, last):
    attempt = handle(POLITE.replace("while not left", "print(sys.argv[1], flush=True)\nwhile not left"), last)
    place.submit(attempt)
    trains(place, attempt)
    folder = place.host_folder(attempt, attempt.plan.host_names[0])
    until(lambda: last in "\n".join(pods.tail(folder)))
    place.stop(attempt, 30.0)
    assert ended(place, attempt).reason is Reason.DONE


def test_preempted_program_that_names_the_signal_and_exits_0_is_preempted(place):
    attempt = handle(POLITE, "Training stopped: Job received termination signal (SIGTERM).")
    place.submit(attempt)
    (host,) = trains(place, attempt).hosts
    os.kill(host.pid, signal.SIGTERM)
    seen = ended(place, attempt)
    assert (seen.reason, seen.host) == (Reason.PREEMPTED, host.name)


def test_host_told_to_leave_that_exits_0_has_its_peers_told_too(place):
    attempt = handle(POLITE, "bye", tpu="v4-16")
    place.submit(attempt)
    hosts = trains(place, attempt).hosts
    pods.stop(place.host_folder(attempt, hosts[1].name), 30.0)
    seen = ended(place, attempt)
    assert seen.state is State.FAILED
    assert [host.code for host in seen.hosts] == [0, 0]


TRAINS = """
import mmap, os, socket, sys, time
from pathlib import Path
library = Path(sys.argv[1]) / "jaxlib" / "xla.so"
library.parent.mkdir(exist_ok=True)
library.write_bytes(b"x" * 4096)
with library.open("rb") as file:
    loaded = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
me, port = int(os.environ["TPU_WORKER_ID"]), int(os.environ["JAX_COORDINATOR_PORT"])
if sys.argv[2] == "together":
    if me == 0:
        peer = socket.create_server(("127.0.0.1", port)).accept()[0]
    else:
        while True:
            try:
                peer = socket.create_connection(("127.0.0.1", port))
                break
            except ConnectionRefusedError:
                time.sleep(0.02)
print("step 1 loss 2.5", flush=True)
time.sleep(300)
"""
"""Maps a fake JAX library and trains, connected to its peer or not."""


@pytest.mark.parametrize(("how", "warned"), [("alone", True), ("together", False)])
def test_hosts_that_never_met_are_noticed(home, tmp_path, how, warned):
    clock = ManualClock(1_800_000_000.0)
    place = LocalPlace(home, clock)
    attempt = handle(TRAINS, str(tmp_path), how, tpu="v4-16")
    place.submit(attempt)
    trains(place, attempt)
    for _ in range(3):
        seen = observe(place, attempt)
        clock.sleep(SECONDS)
    place.stop(attempt, 0.0)
    assert ("each trains alone" in seen.warning) is warned
    ended(place, attempt)


IMPATIENT = (
    "import sys; from tpukit.jobs import report; report.UNSEEN_SECONDS = 0.2; from tpukit.__main__ import main; main()"
)
"""`tpu` with a shorter wait for the first step."""


class Impatient(Tpu):
    def argv(self, *arguments: str | Path) -> list[str]:
        return [sys.executable, "-c", IMPATIENT, *map(str, arguments)]


def test_run_program_that_shows_no_steps_is_told_what_to_do_and_so_is_a_loss_that_cannot_happen(home, tmp_path):
    tpu = Impatient(home, tmp_path)
    wait = "while [ ! -e $TPUKIT_WORKDIR/go ]; do sleep 0.02; done"
    run = tpu.start("run", tpu.file("sh", "-c", wait), "--lose", "0-0@7")
    until(
        lambda: "--lose waits for step 7 of host 0-0: tpukit sees no steps of the program" in tpu.said(run),
        lambda: tpu.said(run),
    )
    (tpu.workdir(tpu.the_job()) / "go").touch()
    assert run.wait(timeout=PATIENCE) == 1, tpu.said(run)
    assert "under `progress:` in the job file" in tpu.said(run)
    assert "tpukit sees no steps of the program" in tpu("job", "show", "train").stdout


def test_run_loss_happens_at_a_step_that_was_only_printed(tpu):
    program = """
import os, time
for step in range(1, 100_000 if os.environ["TPUKIT_ATTEMPT"] == "0" else 3):
    print(f"step {step} loss 1.0", flush=True)
    time.sleep(0.1)
"""
    done = tpu("run", tpu.file(sys.executable, "-S", "-c", program, rule="pre"), "--lose", "0-0@3")
    assert [attempt["reason"] for attempt in tpu.show(done.stdout.strip())["attempts"]] == ["host lost", "done"]


def test_spot_job_that_only_prints_its_saves_outlives_more_than_ten_losses(tpu):
    program = """
import os, signal, time
attempt = int(os.environ["TPUKIT_ATTEMPT"])
print(f"step {attempt + 1} loss 1.0", flush=True)
print(f"saved checkpoint at step {attempt + 1}", flush=True)
if attempt < 11:
    os.kill(os.getpid(), signal.SIGKILL)
"""
    file = tpu.file(sys.executable, "-S", "-c", program, capacity="spot", rule="pre")
    shown = tpu.show(tpu("run", file).stdout.strip())
    assert shown["state"] == "completed"
    assert [attempt["reason"] for attempt in shown["attempts"]] == ["host lost"] * 11 + ["done"]


def test_stop_of_a_program_that_exits_0_is_cancelled(tpu):
    process = tpu.start("run", tpu.file(sys.executable, "-S", "-c", POLITE, "bye"))
    job_id = tpu.the_job()
    until(lambda: tpu.show(job_id)["hosts"][0]["step"] == 1)
    tpu("job", "stop", job_id)
    process.wait()
    shown = tpu.show(job_id)
    assert (shown["state"], shown["attempts"][0]["last_step"]) == ("cancelled", 1)
