"""Pure functions that arrange a user's jobs for display: windows in order, children below their parents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tpukit.jobs.reasons import State
from tpukit.jobs.records import Job
from tpukit.sharing.settings import UserSettings
from tpukit.sharing.windows import Window

LETTERS = "wdtsv"
"""Window, directory, TPU, state, and verbose (output even of jobs with a known state)."""


@dataclass(frozen=True, slots=True)
class Line:
    window: Window
    job: Job | None  # None: its record was removed
    depth: int  # nesting level below its parents

    @property
    def state(self) -> str:
        return self.job.state if self.job else "unknown"

    @property
    def active(self) -> bool:
        return self.job is not None and not self.job.state.ended

    @property
    def unsure(self) -> bool:
        """Return True while the job runs and has saved nothing: its output then says more than its record."""
        return self.active and self.job is not None and self.job.attempt is not None and self.job.attempt.saved < 0

    @property
    def says(self) -> str:
        """Return the details to show next to the state."""
        if self.job is None:
            return "the record of its job was removed: `tpu job clear --missing` drops the window"
        stage = self.job.attempt.stage if self.job.attempt else 0
        resumed = f"stage {stage}" if stage else ""
        done = "its script reported that it is done" if self.window.finished and not self.job.state.ended else ""
        return "; ".join(filter(None, (resumed, done, self.job.message)))


def shown(settings: UserSettings, letters: str = "") -> str:
    """Return the given letters in order, or else those of the user's settings."""
    if letters:
        return "".join(letter for letter in LETTERS if letter in letters)
    wanted = {"w": True, "s": True, "d": settings.monitor_dir, "t": settings.monitor_tpu, "v": settings.monitor_verbose}
    return "".join(letter for letter in LETTERS if wanted[letter])


def lines(windows: Sequence[Window], jobs: Mapping[str, Job]) -> list[Line]:
    """Return lines for the windows, oldest first. A window whose parent was dropped is top-level."""
    numbers = {window.number for window in windows}
    below: dict[int, list[Window]] = {}
    for window in windows:
        parent = window.parent if window.parent in numbers and window.parent != window.number else 0
        below.setdefault(parent, []).append(window)
    placed: list[Line] = []
    seen: set[int] = set()

    def place(window: Window, depth: int) -> None:
        if window.number in seen:  # parents form a cycle
            return
        seen.add(window.number)
        placed.append(Line(window, jobs.get(window.job), depth))
        for child in below.get(window.number, ()):
            place(child, depth + 1)

    for window in (*below.get(0, ()), *windows):
        place(window, 0)
    return placed


def counts(placed: Sequence[Line]) -> str:
    """Return the counts by state, such as `2 running, 1 failed`."""
    totals = {state: sum(line.state == state for line in placed) for state in (*State, "unknown")}
    return ", ".join(f"{total} {state}" for state, total in totals.items() if total) or "no jobs"
