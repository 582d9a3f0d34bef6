"""Follow a run in progress: read the lines of its hosts and the files of its workdir at each poll."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from tpukit.drill import saves, trace
from tpukit.drill.parts import Parts
from tpukit.drill.saves import Moment, Saves
from tpukit.drill.sites import Folders, Host
from tpukit.drill.trace import Line, Reader, Report
from tpukit.places import lines


class Following:
    """State of one run in progress.

    `saves` tracks the save in progress. `step` is the last step that any host reported in this attempt, `saved` the
    newest that the program reported as saved. `text` extracts the program's output from a log line.
    """

    def __init__(
        self,
        folders: Folders,
        ignore: frozenset[str] = frozenset(),
        pattern: str = "",
        text: Callable[[str], str] = lambda line: line,
        consists: Parts | None = None,
    ) -> None:
        self.workdir, self.traces, self._text = folders.workdir_path, folders.traces_path, text
        self._log_reader, self._own_reader = Reader(pattern), Reader()
        self._reports: list[tuple[bool, Report]] = []
        self._positions: dict[Path, int] = {}
        self._own: set[tuple[int, int]] = set()
        self._files: saves.Files = {}
        self._attempt = -1
        self.saves = Saves(ignore, consists)
        self.moments: list[Moment] = []
        self.step = -1
        self.saved = -1
        self.largest_log = 0
        self._polled: float | None = None
        self._pauses = 0.0, 0.0  # their sum, and the sum of their squares

    @property
    def pause(self) -> float:
        """Mean length of the pause between two polls, weighted by length: more happens in a long one."""
        total, squares = self._pauses
        return squares / total if total else 0.0

    def poll(self, hosts: Sequence[Host], now: float) -> list[Report]:
        """Return the reports since the last poll."""
        if self._polled is not None:
            pause = now - self._polled
            self._pauses = self._pauses[0] + pause, self._pauses[1] + pause * pause
        self._polled = now
        newest = max((host.attempt for host in hosts), default=self._attempt)
        if newest != self._attempt:
            self.saves.end()
            self._attempt, self.step = newest, -1
        # Read files first, so that a visible save began before or after the steps read now, never between.
        found = saves.files(self.workdir)
        fresh = []
        for host in hosts:
            own = self.traces / f"{host.attempt}-{host.number}.jsonl"
            fresh += self._read(own, host, now, own=True)
            for log in host.logs:
                fresh += self._read(log, host, now, own=False)
        read = [(line.own, report) for line in fresh if (report := self._reader(line).read(line))]
        self._reports += read
        reports = [report for own, report in read if own == ((report.attempt, report.host) in self._own)]
        self.saved = max([self.saved, *(report.saved for report in reports)])
        self.step = max([self.step, *(report.step for report in reports if report.attempt == newest)])
        moment = Moment(now, self.step, found)
        if found != self._files:
            self.moments.append(moment)
            self._files = found
        self.saves.observe(moment)
        return reports

    @property
    def attempt(self) -> int:
        """The newest attempt seen; -1 if none."""
        return self._attempt

    @property
    def trace(self) -> trace.Trace:
        return trace.settled(self._reports)

    def _reader(self, line: Line) -> Reader:
        return self._own_reader if line.own else self._log_reader

    def _read(self, path: Path, host: Host, now: float, *, own: bool) -> list[Line]:
        fresh = []
        for text, position in lines.read(path, self._positions.get(path, 0)):
            self._positions[path] = position
            fresh.append(Line(host.attempt, host.number, text if own else self._text(text), now, own))
        if own and fresh:
            self._own.add((host.attempt, host.number))
        if not own:
            self.largest_log = max(self.largest_log, self._positions.get(path, 0))
        return fresh
