"""Progress of hosts from their log files. Each read continues where the last one ended."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from tpukit.places import lines, trainer_lines
from tpukit.places.progress import Progress
from tpukit.places.trainer_lines import Mention, Reader

FIRST_BYTES = 1 << 18
"""Size of the end of a log that is read first; the rest before it is skipped."""
BYTES_AT_ONCE = 4 << 20
LOGS_MOST = 4096


class Pace:
    """The longest time between two reports. Programs print as rarely as they like, so silence alone is no hang."""

    def __init__(self, *, whole: bool = False) -> None:
        """Initialize. `whole`: every line since the program began is read."""
        self.longest = math.inf
        self._whole = whole
        self._step: int | None = None
        self._at = 0.0
        self._first: int | None = None
        self._several = False

    @property
    def early(self) -> bool:
        """True while the program has printed exactly one step since it began."""
        return self._whole and self._first is not None and not self._several

    def saw(self, step: int | None) -> None:
        """Count the step of one line: a read may bring many lines, and `note` gets only their last step."""
        if step is not None:
            self._several = self._several or self._first not in (None, step)
            self._first = step if self._first is None else self._first

    def note(self, step: int | None, now: float) -> None:
        if step is None or step == self._step:
            return
        if self._step is not None:
            gap = max(0.0, now - self._at)
            self.longest = gap if self.longest == math.inf else max(gap, self.longest)
        self._step, self._at = step, now


@dataclass(slots=True)
class _Log:
    reader: Reader
    position: int
    known: Mention = field(default_factory=Mention)
    moved: float = 0.0
    pace: Pace = field(default_factory=Pace)


class LogProgress:
    """Progress from the logs that one process follows, not stored: another process reads the logs again."""

    def __init__(self, text: Callable[[str], str] = str) -> None:
        """Initialize with `text`, which returns what the program printed from a line of the file."""
        self._text = text
        self._logs: dict[Path, _Log] = {}

    def read(self, path: Path, pattern: str, now: float) -> Progress:
        """Return the progress in the log so far, reported when the file was last changed or earlier."""
        try:
            status = path.stat()
        except OSError:
            return Progress()
        log = self._logs.get(path)
        if log is None or status.st_size < log.position:
            while len(self._logs) >= LOGS_MOST:
                self._logs.pop(next(iter(self._logs)))
            start = max(0, status.st_size - FIRST_BYTES)
            log = self._logs[path] = _Log(Reader(pattern), start, pace=Pace(whole=log is None and start == 0))
        until = log.position + BYTES_AT_ONCE
        for line, position in lines.read(path, log.position):
            log.position = position
            said = log.reader.read(self._text(line))
            if said:
                log.pace.saw(said.step)
                log.known = trainer_lines.merged(log.known, said)
                log.moved = min(now, status.st_mtime)
            if position > until:
                break
        log.pace.note(log.known.step, now)
        return progress(log.known, log.moved, log.pace)


def progress(said: Mention, moved: float, pace: Pace) -> Progress:
    saved = -1 if said.saved is None else said.saved
    longest, early = pace.longest, pace.early
    loss = said.loss if said.loss is not None and math.isfinite(said.loss) else None
    return Progress(said.step, loss, saved=saved, moved=moved, total=said.total, pace=longest, early=early)
