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
_NO_SAVES = ("tensorboard", "events.out.tfevents", ".tpukit")
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
        now = moment.at
        found = {path: file for path, file in moment.files.items() if kind(path) not in self._ignore}
        written = {path for path, file in found.items() if self._is_save(path, file)}
        changed = {path for path in found if self._files.get(path) != found[path]} | (self._files.keys() - found.keys())
        self._files = found
        # Who looks rarely finds the end of one save and the beginning of the next at once.
        for number, paths in sorted(_by_step(written, moment.step).items(), key=lambda group: group[0] or -1):
            self._add(number, paths, moment)
        current = self._current
        if current is None:
            return
        if changed.intersection(current.paths):
            current = replace(current, changed=now)
        current = self._with_files(current)
        unfinished = any(_UNFINISHED.search(path) for path in current.paths)
        if now - current.changed >= QUIET and not unfinished:
            self._finish(current)
        else:
            self._current = current

    def _add(self, number: int | None, paths: Collection[str], moment: Moment) -> None:
        """Files that were written, all of them by the save of one step where their names say so."""
        current = self._current
        if current and number is not None and current.named and number != current.step:
            self._finish(self._with_files(current))
            current = None
        if current is None:
            current = self._reopened(number) or Save(moment.step, moment.at, moment.at)
        if number is not None and not current.named:
            current = replace(current, step=number, named=True)
        both = tuple(dict.fromkeys([*current.paths, *sorted(paths)]))
        self._current = replace(current, changed=moment.at, paths=both)

    def _with_files(self, save: Save) -> Save:
        """With what is still there of it."""
        paths = tuple(path for path in save.paths if path in self._files)
        return replace(save, paths=paths, size=sum(self._files[path].size for path in paths))

    def end(self) -> None:
        """The attempt is over: what was under way stays undone."""
        if self._current:
            self._history.append(self._current)
        self._current = None

    def _finish(self, save: Save) -> None:
        self._current = None
        save = replace(save, done=True)
        last = self._history[-1] if self._history else None
        if last and last.step == save.step and last.done:  # a pause within one save
            paths = tuple(dict.fromkeys([*last.paths, *save.paths]))
            save = replace(save, began=last.began, paths=paths, size=max(last.size, save.size))
            self._history.pop()
        self._history.append(save)

    def _reopened(self, number: int | None) -> Save | None:
        """The last save, where it only paused."""
        last = self._history[-1] if self._history else None
        if last is None or not last.named or number != last.step:
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


def _by_step(paths: Iterable[str], step: int) -> dict[int | None, list[str]]:
    groups: dict[int | None, list[str]] = {}
    for path in paths:
        groups.setdefault(_named(path, step), []).append(path)
    return groups


def _named(path: str, step: int) -> int | None:
    """The step that the name of what is saved says: as checkpoints are called, else a number near the step at which it
    began."""
    for parent, name in pairwise(("", *path.split("/"))):
        if (number := checkpoint_folder.step(_SUFFIX.sub("", name), parent)) is not None:
            return number
    numbers = [int(word) for word in re.findall(r"(?<![\d.])\d{1,12}(?!\d)", path)]
    return min((number for number in numbers if abs(number - step) <= 3), key=lambda one: abs(one - step), default=None)
