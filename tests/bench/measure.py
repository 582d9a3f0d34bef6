"""Times of two things done in turn, so that whatever else the machine does meanwhile falls on both alike."""

from __future__ import annotations

import os
import statistics
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Pairs:
    ours: tuple[float, ...]
    theirs: tuple[float, ...]

    def ratios(self, *, ours_over_theirs: bool = False) -> list[float]:
        pairs = zip(self.ours, self.theirs, strict=True)
        return [ours / theirs if ours_over_theirs else theirs / ours for ours, theirs in pairs]


def in_turn(ours: Callable[[], float], theirs: Callable[[], float], pairs: int) -> Pairs:
    """A B A B …, after one of each that does not count: it fills caches and writes bytecode."""
    ours(), theirs()
    times = [(ours(), theirs()) for _ in range(pairs)]
    return Pairs(tuple(a for a, _ in times), tuple(b for _, b in times))


def command(argv: Sequence[str], *, env: Mapping[str, str], cwd: Path, shows: Sequence[str]) -> float:
    """Seconds until a command has ended. It must end well and show these words: a quick failure is no success."""
    before = time.perf_counter()
    done = subprocess.run(argv, env=env, cwd=cwd, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    seconds = time.perf_counter() - before
    missing = [word for word in shows if word not in done.stdout]
    if done.returncode or missing:
        why = f"exit code {done.returncode}" if done.returncode else f"no {missing} in what it printed"
        raise SystemExit(f"bench: {' '.join(argv)}: {why}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return seconds


def environment(home: Path, **more: str) -> dict[str, str]:
    """What both sides get: a home of their own, and nothing that makes them slower than they are for people. Proxies
    do: JAX asks one for the way to its own machine."""
    unwanted = ("PYTHON", "TPUKIT_", "XDG_")
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(unwanted) and not name.lower().endswith("_proxy")
    }
    return {**kept, "HOME": str(home), **more}


def milliseconds(times: Sequence[float]) -> str:
    """Median, least and most."""
    return f"{statistics.median(times) * 1e3:.0f} ms ({min(times) * 1e3:.0f}–{max(times) * 1e3:.0f})"
