"""Times of commands, and what can be said of them on a machine that others use too.

Two things are compared by doing them in turn, so that whatever else the machine does meanwhile falls on both alike: the
median of the ratios of pairs, with the interval in which it lies in 95 of 100 repetitions. Where there is nobody to
compare with, the CPU seconds of a command count: waiting for a core that others have is not in them.
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
        """Missed only where all of the interval is below the bar."""
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
    """Of one command: seconds until it had ended, and those in which it and its children had a core."""

    wall: float
    cpu: float


def median(values: Sequence[float]) -> Estimate:
    """With the interval that resampling gives it (bootstrap, 95 %). The same values give the same interval."""
    draw = random.Random(0)
    medians = sorted(statistics.median(draw.choices(values, k=len(values))) for _ in range(RESAMPLES))
    cut = RESAMPLES // 40
    return Estimate(statistics.median(values), medians[cut], medians[-cut - 1])


def in_turn(ours: Callable[[], float], theirs: Callable[[], float], pairs: int) -> Pairs:
    """A B B A …, after one of each that does not count: it fills caches and writes bytecode."""
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
    """It must end well and show these words: a quick failure is no success."""
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
    """What both sides get: a home of their own, and nothing that makes them slower than they are for people. Proxies
    do: JAX asks one for the way to its own machine."""
    unwanted = ("PYTHON", "TPUKIT_", "XDG_")
    rest = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(unwanted) and not name.lower().endswith("_proxy")
    }
    return {**rest, "HOME": str(home), **more}


def milliseconds(times: Sequence[float]) -> str:
    """Median, least and most."""
    return f"{statistics.median(times) * 1e3:.0f} ms ({min(times) * 1e3:.0f}–{max(times) * 1e3:.0f})"


def _text(file: object) -> str:
    file.seek(0)  # type: ignore[attr-defined]
    content: bytes = file.read()  # type: ignore[attr-defined]
    return content.decode(errors="replace")
