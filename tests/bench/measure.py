"""Times of commands, and conclusions that hold on a machine with other users.

Two commands are compared by running them in turn, so that other load on the machine affects both alike. The result is
the median of the ratios of pairs, with its 95 % interval. Where there is nothing to compare with, the CPU seconds of a
command count, which exclude time spent waiting for a core.
"""

from __future__ import annotations

import os
import random
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

RESAMPLES = 4000


@dataclass(frozen=True, slots=True)
class Estimate:
    """A median and its interval."""

    value: float
    low: float
    high: float

    def at_least(self, bar: float) -> bool:
        """Check a lower limit. It is missed only if the whole interval is below it."""
        return self.high >= bar

    def at_most(self, bar: float) -> bool:
        return self.low <= bar


@dataclass(frozen=True, slots=True)
class Pairs:
    ours: tuple[float, ...]
    theirs: tuple[float, ...]

    def times_faster(self) -> Estimate:
        return median([theirs / ours for ours, theirs in zip(self.ours, self.theirs, strict=True)])

    def times_as_long(self) -> Estimate:
        return median([ours / theirs for ours, theirs in zip(self.ours, self.theirs, strict=True)])

    def longer_by(self) -> Estimate:
        return median([ours - theirs for ours, theirs in zip(self.ours, self.theirs, strict=True)])


@dataclass(frozen=True, slots=True)
class Took:
    """Times of one command: wall-clock seconds, and CPU seconds including its children."""

    wall: float
    cpu: float


def median(values: Sequence[float]) -> Estimate:
    """Return the median with its bootstrap interval (95 %). The same values give the same interval."""
    draw = random.Random(0)
    medians = sorted(statistics.median(draw.choices(values, k=len(values))) for _ in range(RESAMPLES))
    cut = RESAMPLES // 40
    return Estimate(statistics.median(values), medians[cut], medians[-cut - 1])


def in_turn(ours: Callable[[], float], theirs: Callable[[], float], pairs: int) -> Pairs:
    """Run both in turn (A B B A …), after one uncounted run of each to fill caches and write bytecode."""
    ours(), theirs()
    times = []
    for number in range(pairs):
        if number % 2:
            second = theirs()
            times.append((ours(), second))
        else:
            times.append((ours(), theirs()))
    return Pairs(tuple(a for a, _ in times), tuple(b for _, b in times))


def command(argv: Sequence[str], *, env: Mapping[str, str], cwd: Path, shows: Sequence[str]) -> Took:
    """Measure a command that must succeed and print these words, so that a quick failure does not count."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        before = time.perf_counter()
        process = subprocess.Popen(argv, env=env, cwd=cwd, stdin=subprocess.DEVNULL, stdout=out, stderr=err)
        _, status, used = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - before
        process.returncode = os.waitstatus_to_exitcode(status)
        printed, said = (_text(file) for file in (out, err))
    missing = [word for word in shows if word not in printed]
    if process.returncode or missing:
        why = f"exit code {process.returncode}" if process.returncode else f"no {missing} in what it printed"
        raise SystemExit(f"bench: {' '.join(argv)}: {why}\n{printed[-2000:]}{said[-2000:]}")
    return Took(seconds, used.ru_utime + used.ru_stime)


def wall(argv: Sequence[str], *, env: Mapping[str, str], cwd: Path, shows: Sequence[str]) -> float:
    return command(argv, env=env, cwd=cwd, shows=shows).wall


def environment(home: Path, **more: str) -> dict[str, str]:
    """Return the environment of both sides: a home of their own, without settings that slow them down.

    Proxies are such a setting: JAX uses one even to reach its own machine.
    """
    unwanted = ("PYTHON", "TPUKIT_", "XDG_")
    rest = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(unwanted) and not name.lower().endswith("_proxy")
    }
    return {**rest, "HOME": str(home), **more}


def milliseconds(times: Sequence[float]) -> str:
    """Return the median, the least and the most."""
    return f"{statistics.median(times) * 1e3:.0f} ms ({min(times) * 1e3:.0f}–{max(times) * 1e3:.0f})"


def _text(file: object) -> str:
    file.seek(0)  # type: ignore[attr-defined]
    content: bytes = file.read()  # type: ignore[attr-defined]
    return content.decode(errors="replace")
