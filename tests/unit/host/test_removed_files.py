"""A program that removes the supervisor's files or kills its shim: it runs once, and a stop ends all of it."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.bare_host import Host
from support.waiting import alive, until
from tpukit.places.local import processes as pods
from tpukit.places.local.processes import Phase

RUNS = "while :; do sleep 0.05; done"


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    made = Host(tmp_path / "home" / ".tpukit")
    yield made
    pods.kill_strays(made.root)


@pytest.fixture
def removed(host: Host, tmp_path: Path) -> Host:
    """Return a host that runs attempt 0 of try-1, whose program has removed all of the supervisor's files."""
    host.start(f"echo x >> {tmp_path}/ran; rm -rf {host.root}; touch {tmp_path}/gone; echo printed; {RUNS}")
    until((tmp_path / "gone").exists, "the program to remove the files")
    host.install()
    return host


def processes(host: Host) -> list[int]:
    return [pid for pid in pods.strays(host.root / "jobs") if alive(pid)]


def test_attempt_whose_files_were_removed_still_runs_with_its_log(removed):
    assert removed.state().phase is Phase.RUNNING
    assert removed.log() == "printed\n"


def test_attempt_whose_files_were_removed_is_not_started_twice(removed, tmp_path):
    for _ in range(2):
        removed.start(f"echo x >> {tmp_path}/ran", attempt=0)
    assert removed.start(f"echo x >> {tmp_path}/ran", attempt=1)["refused"] == "held"
    assert (tmp_path / "ran").read_text() == "x\n"


def test_host_whose_files_were_removed_is_still_held(removed):
    held = removed.ask("prepare", job="other-2", attempt=0)["held"]
    assert (held["job"], held["attempt"]) == ("try-1", 0)
    assert removed.start("true", job="other-2")["refused"] == "held"


def test_attempt_whose_files_were_removed_is_stopped_and_nothing_runs_afterwards(removed):
    removed.ask("stop", job="try-1", attempt=0, grace=5)
    state = removed.ended()
    assert state.signalled
    assert processes(removed) == []


def test_exit_code_and_log_of_a_program_that_removed_the_files_are_kept(host, tmp_path):
    host.start(f"rm -rf {host.root} 2>/dev/null; echo last; exit 7")
    until(lambda: not processes(host) and host.root.exists(), "the end to be written")
    if not (host.root / "programs").exists():
        host.install()
    assert host.ended().code == 7
    assert host.log() == "last\n"


def test_files_removed_a_second_time_are_written_again(removed):
    removed.state()
    shutil.rmtree(removed.root)
    removed.install()
    assert removed.state().phase is Phase.RUNNING
    removed.ask("stop", job="try-1", attempt=0, grace=0)
    assert removed.ended().signalled


@pytest.mark.parametrize("files", ["stay", "are removed"])
def test_processes_that_outlive_their_shim_do_not_survive_a_stop(host, tmp_path, files):
    host.start(f"setsid sh -c '{RUNS}' & touch {tmp_path}/began; {RUNS}")
    until((tmp_path / "began").exists)
    os.kill(host.facts()["began"]["shim"], signal.SIGKILL)
    if files == "are removed":
        shutil.rmtree(host.root)
        host.install()
    host.ask("stop", job="try-1", attempt=0, grace=0)
    until(lambda: not host.facts()["locked"], "the host to report that nothing runs")
    assert processes(host) == []


def test_processes_that_outlive_their_shim_count_as_running_until_they_are_gone(host, tmp_path):
    host.start(f"setsid sh -c '{RUNS}' & touch {tmp_path}/began; {RUNS}")
    until((tmp_path / "began").exists)
    os.kill(host.facts()["began"]["shim"], signal.SIGKILL)

    def over() -> Any:
        facts = host.facts()
        assert facts["locked"] or processes(host) == []
        return not facts["locked"]

    until(over, "the attempt to be lost")
