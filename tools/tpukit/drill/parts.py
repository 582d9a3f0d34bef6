"""Learn the parts of a program's saves: the files of all hosts, and which of them are data. Pure.

Hosts write their shards at different times, and a marker comes last. A save is finished when all its parts are
present, and a file of a few bytes is not a good target for a loss.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median

MARKER_BYTES, MARKER_SHARE = 256, 0.1
"""Largest marker, in bytes and as a share of the largest part."""
PATIENCE_LEAST, PATIENCE_SAVES = 1.0, 4.0
"""Seconds, and longest saves, after which a save that lacks a part counts as one of another kind."""
WHOLE_SHARE = 0.95
"""Size of a whole file as a share of its smallest size in finished saves: text has numbers of different length."""
_LAST = "partial|part|new"  # only at the end of a name: `part-3` and `new-model` are names of finished files
UNFINISHED = re.compile(rf"(?i)(?<![a-z])(?:tmp|temp|incomplete)(?![a-z])|[._-](?:{_LAST})(?=/|$)")
SUFFIX = re.compile(rf"(?i)[._-](?:(?:orbax-checkpoint-)?(?:tmp|temp|incomplete)(?![a-z]).{{0,100}}|{_LAST})$")
_DIGEST = re.compile(r"[0-9a-f]{12,}")


@dataclass(frozen=True, slots=True)
class Parts:
    """Parts of a save. Empty if unknown."""

    every: frozenset[str] = frozenset()
    markers: frozenset[str] = frozenset()
    patience: float = 0.0  # seconds without a change after which a save is over, even without some parts
    bytes_least: Mapping[str, int] = field(default_factory=dict)  # of each part in any save

    def has_data(self, paths: Iterable[str], step: int) -> bool:
        return any(name(path, step) not in self.markers for path in paths)

    def are_whole(self, sizes: Mapping[str, int], step: int) -> bool:
        """Return whether files are about as large as in finished saves. `sizes` has the size of each path."""
        return all(size >= WHOLE_SHARE * self.bytes_least.get(name(path, step), 0) for path, size in sizes.items())

    def data(self, paths: Sequence[str], step: int) -> Sequence[str]:
        """Return the paths that are data, or all of them if none is."""
        return [path for path in paths if name(path, step) not in self.markers] or paths


def name(path: str, step: int) -> str:
    """Return the part name of a file: its path without the step, digests and suffix for unfinished files."""
    return _without_step(path, step, 0)


def names(path: str, step: int) -> set[str]:
    """Return all possible part names of a file: at step 4, the path of host 4 has the step as well."""
    return {_without_step(path, step, 0), _without_step(path, step, 1)}


def _without_step(path: str, step: int, times: int) -> str:
    bare = _DIGEST.sub("*", "/".join(SUFFIX.sub("", word) for word in path.split("/")))
    return re.sub(rf"(?<!\d)0*{step}(?!\d)", "#", bare, count=times)


@dataclass(frozen=True, slots=True)
class Seen:
    """Observed save from which parts are learnt."""

    step: int
    began: float
    changed: float
    paths: tuple[str, ...]
    named: bool


def learn(saves: Sequence[Seen], sizes: Mapping[str, int]) -> Parts:
    """Return the parts that most saves have. `sizes` has the largest size of each path."""
    saves = _joined(saves)
    if not saves:
        return Parts()
    counts = Counter(
        part for save in saves for part in set[str]().union(*(names(path, save.step) for path in save.paths))
    )
    every = frozenset(part for part, count in counts.items() if 2 * count > len(saves))
    most, least = dict[str, int](), dict[str, int]()
    for save in saves:
        for path in save.paths:
            part, size = name(path, save.step), sizes.get(path, 0)
            most[part], least[part] = max(most.get(part, 0), size), min(least.get(part, size), size)
    limit = min(MARKER_BYTES, MARKER_SHARE * max(most.values(), default=0))
    markers = frozenset(part for part, size in most.items() if size <= limit)
    longest = max(save.changed - save.began for save in saves)
    return Parts(every, markers, max(PATIENCE_LEAST, PATIENCE_SAVES * longest), least)


def _joined(saves: Sequence[Seen]) -> list[Seen]:
    """Join entries of one save whose names do not say the step: consecutive shards, and the marker after them."""
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
