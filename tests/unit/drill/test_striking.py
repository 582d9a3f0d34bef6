"""Losses inflicted on real processes and files."""

from __future__ import annotations

import subprocess
import sys
import time
from dataclasses import dataclass

import pytest

from support.waiting import until
from tpukit.core.clock import SystemClock
from tpukit.drill import limits, processes
from tpukit.drill.following import Following
from tpukit.drill.limits import Limits
from tpukit.drill.losses import Damage, Loss, What, When
from tpukit.drill.parts import Parts
from tpukit.drill.saves import QUIET
from tpukit.drill.sites import Host, LocalSite
from tpukit.drill.striking import Strike

CONTENT = b"x" * 1000
WHOLE = frozenset({"checkpoints/#/state", "checkpoints/#/rest"})
CONSISTS = Parts(WHOLE, patience=9.0, bytes_least={"checkpoints/#/state": 1000})
WAITS = (sys.executable, "-S", "-c", "input()")


@pytest.fixture
def process():
    # With a shell around it, as many jobs have.
    with subprocess.Popen(["sh", "-c", '"$@"; exit 3', "sh", *WAITS], stdin=subprocess.PIPE) as started:
        until(lambda: len(processes.family([started.pid])) == 2)
        yield started
        processes.signal_all(processes.family([started.pid]), processes.signal.SIGKILL)


@dataclass
class Drilled:
    """A run with one host, whose log and files the test writes."""

    folder: object
    site: LocalSite
    following: Following
    strike: Strike
    host: Host

    def report(self, *steps):
        with self.host.logs[0].open("a") as log:
            log.writelines(f"step {step} loss 1.5\n" for step in steps)

    def look(self):
        self.following.poll([self.host], time.time())

    def consider(self):
        self.strike.consider(0, {(0, 0): self.host}, self.following, time.time())
        return self.strike.struck

    def write(self, name, content=CONTENT):
        path = self.folder / "checkpoints" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        return path


@pytest.fixture
def drilled(tmp_path, process):
    def make(loss, bounds=None, consists=None):
        clock = SystemClock()
        site = LocalSite(tmp_path, clock)
        folders = site.folders("run")
        log = tmp_path / "log"
        log.touch()
        following = Following(folders, consists=consists)
        strike = Strike(loss, site, clock, folders.workdir_path, bounds or Limits(grace=1.0))
        return Drilled(folders.workdir_path, site, following, strike, Host(0, 0, 0, 0, (log,), (process.pid,)))

    return make


@pytest.mark.parametrize("damage", [Damage.TRUNCATE, Damage.CORRUPT])
def test_spoilt_checkpoint_is_the_newest_that_the_dead_left_though_it_ended_after_the_last_look(
    drilled, process, damage
):
    one = drilled(Loss("spoilt", What.KILL, ((0, 0),), When.SAVED, 6, damage=damage))
    one.report(13)
    older = one.write("12/state")
    while one.following.saves.last is None:
        one.look()
        time.sleep(QUIET)
    newest = one.write("18/state")
    one.consider()

    assert one.strike.damaged == "checkpoints/18/state"
    assert newest.read_bytes() != CONTENT
    assert older.read_bytes() == CONTENT
    assert [(each.attempt, each.saved, each.named) for each in one.strike.struck] == [(0, 18, True)]
    assert process.wait() == -9


@pytest.mark.parametrize("when", [When.SAVE_BEGINS, When.SAVE_HALF])
def test_strike_within_a_save_that_ended_after_the_last_look_waits_for_the_next_one(drilled, process, when):
    """A busy machine may not let the drill look for longer than a save takes."""
    one = drilled(Loss("save", What.KILL, ((0, 0),), when, 6), consists=CONSISTS)
    one.report(10)
    one.write("10/state", CONTENT[:500])
    one.look()
    one.write("10/state")
    one.write("10/rest")
    assert one.consider() == []
    until(lambda: {processes.state(pid) for pid in processes.family([process.pid])} <= {"S", "R"})

    one.write("20/state", CONTENT[:500])
    one.look()
    assert [each.saving for each in one.consider()] == [20]
    assert process.wait() == -9
    assert processes.family([process.pid]) == [process.pid]  # the program within the shell is killed too


def test_strike_after_a_save_waits_while_the_next_one_is_written_and_never_follows_the_last_step(drilled, process):
    one = drilled(Loss("after-save", What.KILL, ((0, 0),), When.SAVED, 6), Limits(last=60), CONSISTS)
    one.report(10)
    one.write("10/state")
    one.write("10/rest")
    until(lambda: one.look() or one.following.saves.last)
    one.write("20/state")
    assert one.consider() == []
    one.write("20/rest")
    one.report(60)
    assert one.consider() == []
    one.strike._limits = Limits(last=61)
    assert [each.saved for each in one.consider()] == [20]
    assert process.wait() == -9


def test_strike_within_a_save_counts_a_file_that_is_there_in_part_as_unfinished(drilled, process):
    consists = Parts(frozenset({"checkpoints/#/state"}), patience=9.0, bytes_least={"checkpoints/#/state": 1000})
    one = drilled(Loss("save", What.KILL, ((0, 0),), When.SAVE_BEGINS, 6), consists=consists)
    one.report(10)
    one.write("10/state", CONTENT[:940])
    one.look()
    assert len(one.consider()) == 1


def test_strike_by_sigterm_directly_before_a_save_or_after_one_waits_until_there_is_work_to_lose(drilled, process):
    bounds = Limits(grace=1.0, unsaved=limits.unsaved(range(1, 61), (10, 20, 30)))
    one = drilled(Loss("term", What.TERM, ((0, 0),), step=15), bounds)
    one.report(15)
    one.look()
    one.report(16, 17, 18, 19)
    assert one.consider() == []
    one.report(20, 21)
    one.look()
    assert one.consider() == []
    one.report(22, 23)
    one.look()
    assert [each.step for each in one.consider()] == [23]
    assert process.wait() == -15


def test_strike_between_two_saves_waits_until_the_first_one_is_finished(drilled, process):
    one = drilled(Loss("kill-0-0", What.KILL, ((0, 0),), step=13), Limits(first_save=10), CONSISTS)
    one.report(13)
    one.write("10/state")
    one.look()
    assert one.consider() == []
    one.write("10/rest")
    assert until(lambda: one.look() or one.consider())
    assert process.wait() == -9


def test_strike_between_two_saves_believes_a_program_that_reports_its_saves(drilled, process):
    one = drilled(Loss("kill-0-0", What.KILL, ((0, 0),), step=13), Limits(first_save=10))
    one.report(13)
    one.host.logs[0].write_text(f'{one.host.logs[0].read_text()}tpukit-progress {{"saved": 10}}\n')
    one.look()
    assert len(one.consider()) == 1


def test_strike_before_the_first_save_does_not_come_after_it(drilled, process):
    one = drilled(Loss("before-first-save", What.KILL, ((0, 0),), step=3), Limits(first_save=10))
    one.report(3)
    one.look()
    one.report(4, 5, 6, 7, 8, 9, 10)
    assert one.consider() == []
    assert process.poll() is None


def test_strike_that_hangs_a_host_stops_the_program_within_its_shell(drilled, process):
    one = drilled(Loss("hang", What.HANG, ((0, 0),), step=3))
    one.report(3)
    one.look()
    assert len(one.consider()) == 1
    until(lambda: {processes.state(pid) for pid in processes.family([process.pid])} == {"T"})


def test_unsaved_steps_are_those_in_the_middle_between_two_saves():
    assert limits.unsaved(range(1, 31), (10, 20)) == {13, 14, 15, 16, 17, 23, 24, 25, 26, 27}
    assert limits.unsaved(range(1, 21), (10, 20)) == {13, 14, 15, 16, 17}
    assert limits.unsaved(range(1, 9), (2, 4, 6)) == {3, 5, 7}
    assert limits.unsaved((5, 10, 15, 20), (10, 20)) == {15}
    assert limits.unsaved((10, 20), (10, 20)) == frozenset()
    assert limits.unsaved((), ()) == frozenset()
