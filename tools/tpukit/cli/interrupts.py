"""SIGINT, SIGHUP and SIGTERM during work that must not be left half done or unreported.

Signals are always caught. Interrupted is raised only inside `armed`, where work may be interrupted at any point.
Elsewhere the signal waits until the next `armed` block or call of `check`.
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
    """Interruption by a signal. Not an Exception, so that code which continues after errors does not catch it."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number
        self.by_person = number == signal.SIGINT  # a user is at the terminal and can be asked


class Interrupts:
    """Signal handlers from `start` to the end of the process. Signals that nohup ignores stay ignored."""

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
        """Raise Interrupted for earlier signals and for those inside the block, at the latest where the block ends.

        An exception raised in Python code that a C library called may be dropped, so the end of the block raises it
        again.
        """
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
            if self._raised is not None:  # another exception was raised in its place
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
        """Raise an interrupt again that Python dropped.

        Python prints and drops exceptions in finalizers, which run at almost any moment: importing a module has one.
        The interrupt is repeated shortly afterwards.
        """
        if dropped.exc_value is None or dropped.exc_value is not self._raised:
            sys.__unraisablehook__(dropped)
        else:
            signal.setitimer(signal.ITIMER_REAL, _AGAIN_SECONDS)

    def _again(self, _number: int, _frame: FrameType | None) -> None:
        if self._raised is not None:  # it has not been caught yet
            raise self._raised
