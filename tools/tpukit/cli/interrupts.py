"""Ctrl-C, a hangup and a polite kill while something must not be left half done or unsaid.

A signal is heard at every moment. It is raised as Interrupted only inside `armed`, where work may be broken off at any
point; everywhere else it waits until the next `armed`, or until somebody asks for it.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_HEARD = (signal.SIGINT, signal.SIGHUP, signal.SIGTERM)
_AGAIN_SECONDS = 0.01


class Interrupted(BaseException):
    """Not an Exception: nothing that goes on after errors may go on after this."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number
        self.by_person = number == signal.SIGINT  # somebody is there and can be asked


class Interrupts:
    """Hears signals from `start` to the end of the process. What nohup had ignored stays ignored."""

    def __init__(self) -> None:
        self._pending = 0
        self._armed = False
        self._raised: Interrupted | None = None

    def start(self) -> Interrupts:
        for number in _HEARD:
            if signal.getsignal(number) != signal.SIG_IGN:
                signal.signal(number, self._hear)
        signal.signal(signal.SIGALRM, self._again)
        sys.unraisablehook = self._dropped
        return self

    @contextmanager
    def armed(self) -> Iterator[None]:
        """Raises Interrupted for what was heard before or is heard inside, at the latest where the block ends: what is
        raised in Python that a library in C has called may be dropped there."""
        self._armed = True
        try:
            self.check()
            yield
            if self._raised is not None:
                raise self._raised
        except Interrupted:
            self._raised = None
            raise
        finally:
            self._armed = False
            if self._raised is not None:  # something else was raised in its place
                self._pending, self._raised = self._raised.number, None

    def check(self) -> None:
        if self._pending:
            number, self._pending = self._pending, 0
            raise Interrupted(number)

    def _hear(self, number: int, _frame: FrameType | None) -> None:
        if self._armed:
            self._armed, self._raised = False, Interrupted(number)
            raise self._raised
        self._pending = number

    def _dropped(self, dropped: sys.UnraisableHookArgs) -> None:
        """Python prints and drops what is raised in a finalizer, and one runs at almost any moment: the import of a
        module has one. The moment after it is as good."""
        if dropped.exc_value is None or dropped.exc_value is not self._raised:
            sys.__unraisablehook__(dropped)
        else:
            signal.setitimer(signal.ITIMER_REAL, _AGAIN_SECONDS)

    def _again(self, _number: int, _frame: FrameType | None) -> None:
        if self._raised is not None:  # whoever is to catch it still waits for it
            raise self._raised
