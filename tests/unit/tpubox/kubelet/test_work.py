"""The queue of pods to process: one worker at a time for each pod, none forgotten, none repeated without need."""

from __future__ import annotations

import threading
import time
from pathlib import Path

from support.waiting import PATIENCE, until
from tpubox.kubelet.work import ExitWatcher, Line
from tpukit.places.local import processes as pods
from tpukit.places.local.processes import Pod


def test_line_key_added_twice_is_taken_once():
    line = Line()
    line.add("a")
    line.add("a")
    line.add("b")
    assert sorted([line.take(), line.take()]) == ["a", "b"]
    line.close()
    assert line.take() is None


def test_line_key_added_while_it_is_worked_on_comes_again_afterwards():
    line = Line()
    line.add("a")
    assert line.take() == "a"
    line.add("a")
    line.add("b")
    assert line.take() == "b"
    line.done("a")
    assert line.take() == "a"


def test_line_later_time_gives_way_to_an_earlier_one():
    line = Line()
    line.add("a", after=PATIENCE)
    began = time.monotonic()
    line.add("a", after=0.05)
    assert line.take() == "a"
    assert 0.04 < time.monotonic() - began < PATIENCE / 2


def test_line_never_gives_one_key_to_two_workers_and_forgets_none():
    line, busy, wrong = Line(), set(), []
    seen: dict[str, int] = {}
    lock = threading.Lock()

    def work() -> None:
        while (key := line.take()) is not None:
            with lock:
                if key in busy:
                    wrong.append(key)
                busy.add(key)
            time.sleep(0.001)
            with lock:
                busy.discard(key)
                seen[key] = wanted[key]
            line.done(key)

    wanted = {f"key-{number}": 0 for number in range(10)}
    workers = [threading.Thread(target=work) for _ in range(4)]
    for worker in workers:
        worker.start()
    for version in range(1, 30):
        for key in wanted:
            wanted[key] = version
            line.add(key)
        time.sleep(0.002)
    until(lambda: seen == wanted, "the last state of every key to be looked at")
    line.close()
    for worker in workers:
        worker.join()
    assert not wrong


def test_end_of_a_run_is_told_once_also_when_it_was_over_before(home: Path):
    told: list[str] = []
    ends = ExitWatcher(told.append)
    threading.Thread(target=ends.serve, daemon=True).start()
    go = home / "go"
    argv = ("/bin/sh", "-c", f"until [ -e {go} ]; do sleep 0.02; done")
    pods.start([Pod(home / "run", argv, {"PATH": "/usr/bin:/bin"}, home)])
    ends.watch("pod", home / "run")
    ends.watch("pod", home / "run")
    assert told == []
    go.touch()
    until(lambda: told)
    assert told == ["pod"]
    ends.watch("late", home / "run")
    assert told == ["pod", "late"]
