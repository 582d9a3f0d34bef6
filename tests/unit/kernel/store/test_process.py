"""The process that holds something, and whether it is alive."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

import tpukit
from support.waiting import PATIENCE
from tpukit.kernel.store import Holder, process
from tpukit.kernel.store.process import is_dead, this_process

SCRIPT = """
import msgspec, sys, time
from tpukit.kernel.store.process import this_process
print(msgspec.json.encode(this_process()).decode(), flush=True)
sys.stdin.read()
"""


@pytest.fixture
def other():
    environment = {"PYTHONPATH": str(Path(tpukit.__file__).parents[1])}
    argv = [sys.executable, "-c", SCRIPT]
    child = subprocess.Popen(argv, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    yield child, msgspec.json.decode(child.stdout.readline(), type=Holder)
    child.kill()
    child.communicate()


def test_this_process_is_the_same_whenever_it_is_asked_for_and_alive():
    assert this_process() == this_process()
    assert not is_dead(this_process())


def test_another_process_is_dead_once_it_was_killed_and_not_before(other):
    child, holder = other
    assert holder.machine == this_process().machine
    assert holder.name != this_process().name
    assert not is_dead(holder)
    child.send_signal(signal.SIGSTOP)
    assert not is_dead(holder)  # it can resume at any moment
    child.send_signal(signal.SIGCONT)
    child.kill()
    child.wait(timeout=PATIENCE)
    assert is_dead(holder)


def test_process_whose_id_was_used_again_is_dead():
    assert is_dead(msgspec.structs.replace(this_process(), started="another-boot/1"))


def test_process_of_a_cloned_machine_is_never_known_to_be_dead(monkeypatch):
    """Two machines of one image share machine id, host name and namespace; the process id does not exist here."""
    process._machine.cache_clear()
    process._boot.cache_clear()
    monkeypatch.setattr(process, "_text", lambda path: "b-2" if path.name == "boot_id" else "same")
    theirs = process._machine()
    monkeypatch.undo()
    process._machine.cache_clear()
    process._boot.cache_clear()
    monkeypatch.setattr(process, "_text", lambda path: "b-1" if path.name == "boot_id" else "same")
    try:
        assert process._machine() != theirs
        assert not is_dead(Holder("clone", theirs, 2**22 - 1, "b-2/77", "me"))
        assert is_dead(Holder("neighbour", process._machine(), 2**22 - 1, "b-1/77", "me"))
    finally:
        process._machine.cache_clear()
        process._boot.cache_clear()


def test_process_of_a_machine_that_cannot_tell_its_boots_apart_is_never_known_to_be_dead(monkeypatch):
    process._machine.cache_clear()
    process._boot.cache_clear()
    monkeypatch.setattr(process, "_text", lambda path: "" if path.name == "boot_id" else "same")
    try:
        assert not is_dead(Holder("a", process._machine(), 2**22 - 1, "/77", "me"))
    finally:
        process._machine.cache_clear()
        process._boot.cache_clear()


def test_process_of_another_machine_or_of_nobody_is_never_known_to_be_dead():
    gone = msgspec.structs.replace(this_process(), started="another-boot/1")
    assert not is_dead(msgspec.structs.replace(gone, machine="elsewhere"))
    assert not is_dead(Holder("a"))


def test_process_that_may_not_be_seen_is_not_dead(monkeypatch):
    """/proc can be mounted to hide processes of other users: a signal still reaches them."""
    monkeypatch.setattr(process, "_started", lambda pid: "")
    assert not is_dead(msgspec.structs.replace(this_process(), started="another-boot/1"))


def test_machine_without_proc_asks_ps(monkeypatch, tmp_path):
    monkeypatch.setattr(process, "_PROC", tmp_path)
    started = process._started(this_process().pid)
    assert started.count(":") == 2
    process._holder.cache_clear()
    process._machine.cache_clear()
    try:
        assert this_process().started == started
        assert not is_dead(this_process())
    finally:
        process._holder.cache_clear()
        process._machine.cache_clear()
