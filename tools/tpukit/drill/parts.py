"""Tells what every save of a program consists of: the files of all hosts, and which of them are data. Pure.

Hosts write their shards at times of their own, and a marker comes last. So a save is done when all of its parts are
there, and a file of a few bytes is not what a loss should strike.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

MARKER_BYTES, MARKER_SHARE = 256, 0.1
"""Largest marker, in bytes and as a share of the largest part."""
PATIENCE_LEAST, PATIENCE_SAVES = 1.0, 4.0
"""Seconds, and longest saves, after which a save that lacks a part is taken for one of another kind."""
UNFINISHED = re.compile(r"(?i)(?<![a-z])(?:tmp|temp|partial|part|incomplete|new)(?![a-z])")
SUFFIX = re.compile(r"(?i)[._-](?:orbax-checkpoint-)?(?:tmp|temp|partial|part|incomplete|new)(?![a-z]).{0,100}$")
_DIGEST = re.compile(r"[0-9a-f]{12,}")


@dataclass(frozen=True, slots=True)
class Parts:
    """What a save consists of. Empty: it is not known."""

    every: frozenset[str] = frozenset()
    markers: frozenset[str] = frozenset()
    patience: float = 0.0  # seconds without a change after which a save is over, whatever it lacks

    def has_data(self, paths: Iterable[str], step: int) -> bool:
        return any(name(path, step) not in self.markers for path in paths)

    def data(self, paths: Sequence[str], step: int) -> Sequence[str]:
        """Return the paths that are data; all of them where none is."""
        return [path for path in paths if name(path, step) not in self.markers] or paths


def name(path: str, step: int) -> str:
    """Return what a file is to its save: its path without the step, digests and what says that it is unfinished."""
    return _without_step(path, step, 0)


def names(path: str, step: int) -> set[str]:
    """Return all that a file may be to its save: at step 4, host 4 has the step in its name as well."""
    return {_without_step(path, step, 0), _without_step(path, step, 1)}


def _without_step(path: str, step: int, times: int) -> str:
    bare = _DIGEST.sub("*", "/".join(SUFFIX.sub("", word) for word in path.split("/")))
    return re.sub(rf"(?<!\d)0*{step}(?!\d)", "#", bare, count=times)


@dataclass(frozen=True, slots=True)
class Seen:
    """A save as far as its parts are learnt from it."""

    step: int
    began: float
    changed: float
    paths: tuple[str, ...]
    named: bool


def learn(saves: Sequence[Seen], sizes: Mapping[str, int]) -> Parts:
    """Return the parts that most saves have. `sizes`: the largest that each path was."""
    saves = _joined(saves)
    if not saves:
        return Parts()
    counts = Counter(
        part for save in saves for part in set[str]().union(*(names(path, save.step) for path in save.paths))
    )
    every = frozenset(part for part, count in counts.items() if 2 * count > len(saves))
    most: dict[str, int] = {}
    for save in saves:
        for path in save.paths:
            part = name(path, save.step)
            most[part] = max(most.get(part, 0), sizes.get(path, 0))
    limit = min(MARKER_BYTES, MARKER_SHARE * max(most.values(), default=0))
    markers = frozenset(part for part, size in most.items() if size <= limit)
    longest = max(save.changed - save.began for save in saves)
    return Parts(every, markers, max(PATIENCE_LEAST, PATIENCE_SAVES * longest))


def _joined(saves: Sequence[Seen]) -> list[Seen]:
    """Join what belongs to one save though its names do not say the step: shards that come one after the other, and a
    marker behind them."""
    joined: list[Seen] = []
    pause = _typical_interval(saves) / 4
    for save in saves:
        last = joined[-1] if joined else None
        if last and not (last.named and save.named) and save.began - last.changed < pause:
            mine, theirs = ({name(path, one.step) for path in one.paths} for one in (save, last))
            if not mine & theirs:
                step = save.step if save.named else last.step
                paths = (*last.paths, *save.paths)
                joined[-1] = Seen(step, last.began, save.changed, paths, last.named or save.named)
                continue
        joined.append(save)
    return joined


def _typical_interval(saves: Sequence[Seen]) -> float:
    """Return the seconds between two saves of the same part."""
    began: dict[str, list[float]] = {}
    for save in saves:
        for part in {name(path, save.step) for path in save.paths}:
            began.setdefault(part, []).append(save.began)
    return median([later - earlier for times in began.values() for earlier, later in pairwise(times)] or [0.0])
