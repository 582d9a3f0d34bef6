"""SIGTERM at any moment, delivered to any thread."""

from __future__ import annotations

import faulthandler
import signal
import threading
from collections.abc import Iterator

import pytest

from tpukit.cli.leaving import Leaving


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    faulthandler.dump_traceback_later(60, exit=True)  # fail instead of hanging when a wait never ends
    yield
    faulthandler.cancel_dump_traceback_later()
    for number, handler in before.items():
        signal.signal(number, handler)


def later(act, seconds: float = 0.05) -> None:
    timer = threading.Timer(seconds, act)
    timer.daemon = True
    timer.start()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_wait_signal_that_another_thread_gets_ends_it(number):
    """A signal to another thread, or one just before the wait begins, does not interrupt the main thread's wait."""
    leaving = Leaving()
    later(lambda: signal.pthread_kill(threading.get_ident(), number))
    later(leaving.done, 10.0)
    leaving.wait()
    assert leaving.asked


def test_wait_signal_while_its_lock_is_held_ends_it():
    leaving = Leaving()
    with leaving._done._cond:
        signal.raise_signal(signal.SIGTERM)
    leaving.wait()
    assert leaving.asked


def test_wait_ends_when_all_is_done_and_nobody_asked():
    leaving = Leaving()
    later(leaving.done)
    leaving.wait()
    assert not leaving.asked
