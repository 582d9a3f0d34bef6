"""Signals that arrive while a command is running."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress

import pytest

from support.waiting import PATIENCE
from tpukit.cli.interrupts import Interrupted, Interrupts


@pytest.fixture
def interrupts():
    taken = (signal.SIGINT, signal.SIGHUP, signal.SIGTERM, signal.SIGALRM)
    before = {number: signal.getsignal(number) for number in taken}
    hook = sys.unraisablehook
    for number in before:  # a shell makes background processes ignore some of them
        signal.signal(number, signal.SIG_DFL)
    yield Interrupts().start()
    for number, handler in before.items():
        signal.signal(number, handler)
    sys.unraisablehook = hook


def press(number: signal.Signals = signal.SIGINT) -> None:
    os.kill(os.getpid(), number)


def test_signal_inside_breaks_the_block_off(interrupts):
    with pytest.raises(Interrupted) as raised, interrupts.armed():
        press()
        raise AssertionError("it goes on")
    assert raised.value.by_person


def test_signal_before_is_raised_where_the_next_block_begins(interrupts):
    press(signal.SIGTERM)
    with pytest.raises(Interrupted) as raised, interrupts.armed():
        raise AssertionError("it goes on")
    assert not raised.value.by_person


def test_signal_that_a_library_dropped_is_raised_where_the_block_ends(interrupts):
    with pytest.raises(Interrupted), interrupts.armed(), suppress(BaseException):
        press()


class Finalized:
    def __init__(self, then):
        self._then = then

    def __del__(self):
        self._then()


def test_signal_that_came_in_a_finalizer_is_raised_a_moment_later_and_nothing_is_printed(interrupts, capsys):
    with pytest.raises(Interrupted), interrupts.armed():
        Finalized(press)
        time.sleep(60)
        raise AssertionError("it goes on")
    assert capsys.readouterr().err == ""


def test_error_of_a_finalizer_is_printed_as_ever(interrupts, capsys):
    def fails():
        raise OSError("of its own")

    Finalized(fails)
    assert "of its own" in capsys.readouterr().err


def test_signal_that_became_another_error_is_raised_in_the_next_block(interrupts):
    with pytest.raises(OSError, match="instead"), interrupts.armed():
        with suppress(BaseException):
            press()
        raise OSError("instead")
    with pytest.raises(Interrupted), interrupts.armed():
        raise AssertionError("it goes on")


def test_signal_that_was_answered_is_not_raised_again(interrupts):
    with pytest.raises(Interrupted), interrupts.armed():
        press()
    with interrupts.armed():
        pass
    interrupts.check()


HANGS = """
import threading
from concurrent.futures import ThreadPoolExecutor
from tpukit import cli

def interrupted():
    ThreadPoolExecutor(1).submit(threading.Event().wait)
    print("said before", flush=False)
    raise KeyboardInterrupt

cli._call = interrupted
cli.main()
"""


def test_command_that_is_interrupted_waits_for_no_thread_that_hangs():
    done = subprocess.run([sys.executable, "-c", HANGS], capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert (done.returncode, done.stdout) == (130, "said before\n"), done.stderr
