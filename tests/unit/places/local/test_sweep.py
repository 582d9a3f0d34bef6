"""Sweeps of the local place: their cost with many old runs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import tpukit
from support.waiting import PATIENCE, alive, until
from tpukit.places.local import processes as pods

SWEEP = """
import sys
from pathlib import Path
from tpukit.core.clock import ManualClock
from tpukit.places.base import Known
from tpukit.places.local.place import LocalPlace
from tpukit.places.suspects import MINIMUM_AGE

root, touched = sys.argv[1], []
clock = ManualClock()
place = LocalPlace(Path(root), clock)
def watch(event, arguments):
    if event in ("open", "os.listdir", "os.scandir", "glob.glob", "pathlib.Path.glob") and arguments:
        if str(arguments[0]).startswith(root):
            touched.append(event)
sys.addaudithook(watch)
place.sweep(Known)
clock.sleep(MINIMUM_AGE)
removed = place.sweep(Known)
print(len(touched), *removed)
"""

END = {"at": 2.0, "order": 2.0, "code": 0, "told": False, "error": "", "out_of_memory": False, "disk_full": False}


def old_runs(root: Path, count: int) -> None:
    for number in range(count):
        host = root / "runs" / f"old-{number:05}" / "attempt-0" / f"old-{number:05}-slice-0-0"
        host.mkdir(parents=True)
        (host / "began").write_text(json.dumps({"shim": 1, "pid": 1, "at": 1.0}))
        (host / "end").write_text(json.dumps(END))


def test_sweep_with_3000_old_runs_reads_none_of_them_and_still_ends_what_nobody_knows(home):
    old_runs(home, 3000)
    folder = home / "runs" / "lost" / "attempt-2" / "lost-slice-0-0"
    pods.start([pods.Pod(folder, ("sleep", "600"), {"PATH": os.environ["PATH"]}, home)])
    pid = pods.status(folder).pid
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(Path(tpukit.__file__).parents[1])}
    done = subprocess.run(
        [sys.executable, "-c", SWEEP, str(home)],
        capture_output=True,
        text=True,
        check=True,
        env=environment,
        timeout=PATIENCE,
    )
    touched, removed = done.stdout.split(maxsplit=1)
    assert removed.startswith("lost-slice-0-0")
    assert int(touched) < 30
    until(lambda: not alive(pid))


def test_living_are_pods_of_which_a_process_or_the_shim_runs(home):
    folder = home / "runs" / "a" / "attempt-0" / "a-slice-0-0"
    pods.start([pods.Pod(folder, ("sleep", "600"), {"PATH": os.environ["PATH"]}, home)])
    state = pods.status(folder)
    until(lambda: pods.living(home / "runs") == {folder: [state.pid]})  # with its mark, once it has become `sleep`
    assert pods.living(home / "run") == {}  # another folder with the same prefix
    until(lambda: pods.strays(home / "runs" / "a") == [state.pid])
    pods.lose(folder)
    until(lambda: pods.living(home / "runs") == {})


def test_living_are_pods_whose_shim_runs_and_whose_program_does_not(home):
    folder = home / "runs" / "held"
    argv = [sys.executable, "-c", "import time; time.sleep(600)", str(pods._SHIM), str(folder)]
    with subprocess.Popen(argv) as held:
        until(lambda: pods.living(home / "runs") == {folder: []})
        held.kill()


def test_living_without_proc_are_pods_that_began_and_did_not_end(home, monkeypatch):
    old_runs(home, 2)
    (home / "runs" / "old-00001" / "attempt-0" / "old-00001-slice-0-0" / "end").unlink()
    monkeypatch.setattr(pods, "_PROC", home / "none")
    assert [folder.name for folder in pods.living(home / "runs")] == ["old-00001-slice-0-0"]
