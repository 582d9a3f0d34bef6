"""Saves, as they show in the files of a workdir: which began when, at which step, how large, and whether they are done.

A program need not say that it saves. What it appends to (logs, metrics) is no save; what it creates, replaces or
rewrites is.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import pairwise, zip_longest
from pathlib import Path

from tpukit.places import checkpoint_folder

QUIET = 0.03
"""Seconds without a change after which a save is over."""
_UNFINISHED = re.compile(r"(?i)(?<![a-z])(?:tmp|temp|partial|part|incomplete|new)(?![a-z])")
_SUFFIX = re.compile(r"(?i)[._-](?:orbax-checkpoint-)?(?:tmp|temp|partial|part|incomplete|new)(?![a-z]).{0,100}$")
_NO_SAVES = ("tensorboard", "events.out.tfevents")
_MOST_FILES = 20_000


@dataclass(frozen=True, slots=True)
class File:
    inode: int
    size: int
    changed: int


@dataclass(frozen=True, slots=True)
class Save:
    step: int  # by the name of what was saved, else the last one reported when it began
    began: float
    changed: float  # when something of it last changed
    size: int = 0
    done: bool = False
    paths: tuple[str, ...] = ()
    named: bool = False  # whether a path names the step

    @property
    def seconds(self) -> float:
        return self.changed - self.began


Files = Mapping[str, File]


def files(root: Path) -> dict[str, File]:
    """All files below `root`; what vanishes meanwhile is left out."""
    found: dict[str, File] = {}
    todo = [str(root)]
    while todo and len(found) < _MOST_FILES:
        with suppress(OSError), os.scandir(todo.pop()) as entries:
            for entry in entries:
                if entry.name.startswith(_NO_SAVES):
                    continue
                with suppress(OSError):
                    if entry.is_dir(follow_symlinks=False):
                        todo.append(entry.path)
                        continue
                    status = entry.stat(follow_symlinks=False)
                    path = entry.path[len(str(root)) + 1 :]
                    found[path] = File(status.st_ino, status.st_size, status.st_mtime_ns)
    return found


@dataclass(frozen=True, slots=True)
class Moment:
    """What a workdir held."""

    at: float
    step: int  # the last one that was reported then
    files: Files


def kind(path: str) -> str:
    """Paths that differ in their numbers alone are of one kind."""
    return re.sub(r"\d+", "#", path)


def not_saves(moments: Sequence[Moment], steps: int) -> frozenset[str]:
    """Kinds of files that are written too, and are no checkpoints: empty ones, those that grow by what is appended, and
    those that come with every step where others come more rarely."""
    written: Counter[str] = Counter()
    appended: Counter[str] = Counter()
    sizes: Counter[str] = Counter()
    for before, after in pairwise([Moment(0.0, -1, {}), *moments]):
        for path, file in after.files.items():
            known = before.files.get(path)
            sizes[kind(path)] = max(sizes[kind(path)], file.size)
            if known is None or known.inode != file.inode or (known != file and file.size <= known.size):
                written[kind(path)] += 1
            elif known != file and before.step != after.step:
                appended[kind(path)] += 1
    grows = {one for one in written if appended[one] > 2 * written[one]}
    empty = {one for one in written if not sizes[one]}
    candidates = written.keys() - grows - empty
    rare = {one for one in candidates if 2 * written[one] <= steps}
    return frozenset(grows | empty | (candidates - rare if rare else set()))


def seen(moments: Sequence[Moment], ignore: frozenset[str] = frozenset()) -> tuple[Save, ...]:
    """The saves of a run that has ended. `moments` are those at which something had changed."""
    saves = Saves(ignore)
    for moment, following in zip_longest(moments, moments[1:]):
        saves.observe(moment)
        if following is None or following.at - moment.at > 1.01 * QUIET:  # nothing changed until then
            saves.observe(replace(moment, at=moment.at + 1.01 * QUIET))
    saves.end()
    return saves.history


class Saves:
    """Fed with what the workdir holds, again and again."""

    def __init__(self, ignore: frozenset[str] = frozenset()) -> None:
        self._ignore = ignore
        self._files: Files = {}
        self._history: list[Save] = []
        self._current: Save | None = None

    @property
    def history(self) -> tuple[Save, ...]:
        return (*self._history, *([self._current] if self._current else []))

    @property
    def current(self) -> Save | None:
        """The save that is under way."""
        return self._current

    @property
    def last(self) -> Save | None:
        """The newest save that is done."""
        return self._history[-1] if self._history else None

    def observe(self, moment: Moment) -> None:
        now, step = moment.at, moment.step
        found = {path: file for path, file in moment.files.items() if kind(path) not in self._ignore}
        written = {path for path, file in found.items() if self._is_save(path, file)}
        grown = {path for path in found if self._files.get(path) != found[path]}
        gone = self._files.keys() - found.keys()
        renamed = {path for path in gone if _UNFINISHED.search(path)}
        self._files = found
        current = self._current
        if current is None:
            if not written:
                return
            current = self._reopened(written) or Save(step, now, now)
        known = set(current.paths)
        if written or renamed or grown & known:
            paths = tuple(path for path in dict.fromkeys([*current.paths, *sorted(written)]) if path in found)
            number = current.step if current.named else _named(paths, current.step)
            current = replace(current, changed=now, paths=paths)
            if number is not None:
                current = replace(current, step=number, named=True)
        size = sum(found[path].size for path in current.paths if path in found)
        current = replace(current, size=size)
        unfinished = any(_UNFINISHED.search(path) for path in found)
        if now - current.changed >= QUIET and not unfinished:
            self._finish(replace(current, done=True))
        else:
            self._current = current

    def end(self) -> None:
        """The attempt is over: what was under way stays undone."""
        if self._current:
            self._history.append(self._current)
        self._current = None

    def _finish(self, save: Save) -> None:
        self._current = None
        last = self._history[-1] if self._history else None
        if last and last.step == save.step and last.done:  # a pause within one save
            paths = tuple(dict.fromkeys([*last.paths, *save.paths]))
            self._history[-1] = replace(
                last, changed=save.changed, paths=paths, size=max(last.size, save.size), named=last.named or save.named
            )
        else:
            self._history.append(save)

    def _reopened(self, written: Collection[str]) -> Save | None:
        """The last save, where it only paused."""
        last = self._history[-1] if self._history else None
        if last is None or not last.named or _named(written, last.step) != last.step:
            return None
        self._history.pop()
        return replace(last, done=False)

    def _is_save(self, path: str, file: File) -> bool:
        before = self._files.get(path)
        if before is None:
            return True
        if before == file:
            return False
        return file.inode != before.inode or file.size <= before.size


def _named(paths: Iterable[str], step: int) -> int | None:
    """The step that the names of what is saved say: as checkpoints are called, else a number near the step at which it
    began."""
    parts = [part for path in paths for part in pairwise(("", *path.split("/")))]
    called = {
        number for parent, name in parts if (number := checkpoint_folder.step(_finished(name), parent)) is not None
    }
    numbers = {int(word) for path in paths for word in re.findall(r"(?<![\d.])\d{1,12}(?![\d])", path)}
    near = called or {number for number in numbers if abs(number - step) <= 3}
    return min(near, key=lambda number: abs(number - step), default=None)


def _finished(name: str) -> str:
    """The name that it will have: `20.orbax-checkpoint-tmp-123` will be `20`."""
    return _SUFFIX.sub("", name)
