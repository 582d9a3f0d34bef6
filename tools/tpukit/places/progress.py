"""The last progress that a host reported, in a file or in a line of its log.

Any program may write either, so the content is not trusted: reading it never raises or waits, and returns values that
can be stored (whole numbers of 64 bits) and shown (finite numbers).
"""

from __future__ import annotations

import json
import math
import os
import stat
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

BYTES_MOST = 64 * 1024
"""Maximum size of a report."""
_INT_MOST = 2**63 - 1
_EARLIEST = 946_684_800.0
"""The year 2000. An earlier time comes from another clock, such as the time since the program began."""


@dataclass(frozen=True, slots=True)
class Progress:
    step: int | None = None
    loss: float | None = None
    steps_per_s: float | None = None
    saved: int = -1
    moved: float = 0.0  # when it was reported; 0: nothing was reported
    total: int | None = None  # the total number of steps: it has ended when it reaches them
    planned: int | None = None  # the same for display only: something may follow the last step
    pace: float = 0.0  # the longest time between two reports; infinite: not known yet; 0: it reports every step
    early: bool = False  # its steps are readable, and it has shown at most one since it began
    beat: float = 0.0  # on the host's monotonic clock: its last sign of life after that step; 0: none
    cpu: float = 0.0  # seconds of processor time by then
    saves: bool = False  # it was saving or restoring then

    @property
    def finished(self) -> bool:
        """True if it reports that no step is left."""
        return self.step is not None and self.total is not None and self.step >= self.total > 0


def parse(text: bytes | str, now: float) -> Progress:
    """Parse a report read at `now`. Without a plausible time, it counts as reported at `now`."""
    values = _values(text)
    if values is None:
        return Progress()
    step, saved = _count(values.get("step")), _count(values.get("saved"))
    said = _number(values.get("time"))
    return Progress(
        step=step,
        loss=_number(values.get("loss")),
        steps_per_s=_number(values.get("steps_per_s")),
        saved=-1 if saved is None else saved,
        moved=now if said is None or said < _EARLIEST else min(said, now),
        total=_count(values.get("total")),
        planned=_count(values.get("steps")),
        early=step is None and values.get("starting") is True,
        beat=_number(values.get("beat")) or 0.0,
        cpu=_number(values.get("cpu")) or 0.0,
        saves=values.get("doing") in ("saving", "restoring"),
    )


def first_of(reported: Progress, printed: Callable[[], Progress]) -> Progress:
    """Return the program's own report or, if that has no progress yet, what the lines of its log show."""
    if reported.step is not None or reported.saved >= 0:
        return reported
    shown = printed()
    if not reported.early or shown.step is not None:
        return shown
    moved = max(shown.moved, reported.moved)
    return replace(shown, early=True, moved=moved, beat=reported.beat, cpu=reported.cpu, saves=reported.saves)


def read(path: Path, now: float) -> Progress:
    """Read a report file, as of its last change; empty if it is not a plain file."""
    try:
        # Opening a FIFO without a writer, or a device, would block. A link may lead to one, or to a secret.
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except (OSError, ValueError):
        return Progress()
    try:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            return Progress()
        text = os.read(handle, BYTES_MOST + 1)
    except OSError:
        return Progress()
    finally:
        os.close(handle)
    return parse(text, min(now, status.st_mtime))


def _values(text: bytes | str) -> dict[str, object] | None:
    if len(text) > BYTES_MOST:
        return None
    try:
        # NaN is not valid JSON, but Python writes it, and the step beside it is still useful.
        values = json.loads(text, parse_constant=lambda _: None)
    except (ValueError, RecursionError):  # ValueError: also invalid UTF-8 and too long numbers
        return None
    return values if isinstance(values, dict) else None


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def _count(value: object) -> int | None:
    """Return a step, which programs may also write as a float."""
    number = _number(value)
    if number is None or not number.is_integer():
        return None
    count = int(value) if isinstance(value, int) else int(number)
    return count if 0 <= count <= _INT_MOST else None
