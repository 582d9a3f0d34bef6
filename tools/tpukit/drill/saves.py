"""Detect saves from the files of a workdir: when each began, at which step, its size, and whether it finished.

A program need not report its saves. Files that it appends to (logs, metrics) are no saves; files that it creates,
replaces or rewrites are.
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

from tpukit.drill import parts
from tpukit.drill.parts import Parts, Seen
from tpukit.places import checkpoint_folder

QUIET = 0.03
"""Seconds without a change after which a save is over."""
REOPENED = 3
"""Number of newest saves that a late file may belong to."""
_NO_SAVES = ("tensorboard", "events.out.tfevents", ".tpukit")
_MOST_FILES = 20_000


@dataclass(frozen=True, slots=True)
class File:
    inode: int
    size: int
    changed: int


@dataclass(frozen=True, slots=True)
class Save:
    step: int  # from the name of the save, else the last step reported when it began
    began: float
    changed: float  # time of the last change
    size: int = 0
    done: bool = False
    paths: tuple[str, ...] = ()
    named: bool = False  # a path names the step
    parts: frozenset[str] = frozenset()  # present under their final names

    @property
    def seconds(self) -> float:
        return self.changed - self.began


Files = Mapping[str, File]


def files(root: Path) -> dict[str, File]:
    """Return all files below `root`, without those that vanish meanwhile."""
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
    """Contents of a workdir at one time."""

    at: float
    step: int  # last reported step
    files: Files


def kind(path: str) -> str:
    """Return the kind of a path: paths that differ only in their numbers are of one kind."""
    return re.sub(r"\d+", "#", path)


def not_saves(moments: Sequence[Moment], steps: int) -> frozenset[str]:
    """Return the kinds of files that are no checkpoints.

    They are empty files, files that grow by appending, and files written at every step if others are less frequent.
    """
    written: Counter[str] = Counter()
    at_steps: dict[str, set[int]] = {}  # one save may have a file for each of a hundred hosts
    appended: Counter[str] = Counter()
    sizes: Counter[str] = Counter()
    for before, after in pairwise([Moment(0.0, -1, {}), *moments]):
        for path, file in after.files.items():
            known = before.files.get(path)
            sizes[kind(path)] = max(sizes[kind(path)], file.size)
            if known is None or known.inode != file.inode or (known != file and file.size <= known.size):
                written[kind(path)] += 1
                at_steps.setdefault(kind(path), set()).add(after.step)
            elif known != file and before.step != after.step:
                appended[kind(path)] += 1
    grows = {one for one in written if appended[one] > 2 * written[one]}
    empty = {one for one in written if not sizes[one]}
    candidates = written.keys() - grows - empty
    rare = {one for one in candidates if 2 * len(at_steps[one]) <= steps}
    return frozenset(grows | empty | (candidates - rare if rare else set()))


def learnt(moments: Sequence[Moment], ignore: frozenset[str]) -> Parts:
    """Return the parts of the saves of a finished run."""
    sizes: dict[str, int] = {}
    for moment in moments:
        for path, file in moment.files.items():
            sizes[path] = max(sizes.get(path, 0), file.size)
    done = [save for save in seen(moments, ignore) if save.done and save.paths]
    return parts.learn([Seen(one.step, one.began, one.changed, one.paths, one.named) for one in done], sizes)


def seen(
    moments: Sequence[Moment], ignore: frozenset[str] = frozenset(), consists: Parts | None = None
) -> tuple[Save, ...]:
    """Return the saves of a finished run. `moments` are those at which something had changed."""
    saves = Saves(ignore, consists)
    for moment, following in zip_longest(moments, moments[1:]):
        saves.observe(moment)
        for pause in (1.01 * QUIET, 1.01 * saves.consists.patience):
            if pause and (following is None or following.at - moment.at > pause):  # no change until then
                saves.observe(replace(moment, at=moment.at + pause))
    saves.end()
    return saves.history


class Saves:
    """Track saves from repeated observations of a workdir. `consists` has the parts of a finished save."""

    def __init__(self, ignore: frozenset[str] = frozenset(), consists: Parts | None = None) -> None:
        self._ignore = ignore
        self.consists = consists or Parts()
        self._files: Files = {}
        self._history: list[Save] = []
        self._current: Save | None = None

    @property
    def history(self) -> tuple[Save, ...]:
        return (*self._history, *([self._current] if self._current else []))

    @property
    def current(self) -> Save | None:
        """The save in progress."""
        return self._current

    @property
    def is_writing(self) -> bool:
        """Return whether data of the save in progress is missing, or is not final. Without known parts, assume so."""
        save = self._current
        if save is None:
            return False
        return not self.consists.every or not self._is_complete(save) or _is_unfinished(save)

    @property
    def last(self) -> Save | None:
        """The newest finished save."""
        return self._history[-1] if self._history else None

    def observe(self, moment: Moment) -> None:
        now = moment.at
        found = {path: file for path, file in moment.files.items() if kind(path) not in self._ignore}
        written = {path for path, file in found.items() if self._is_save(path, file)}
        changed = {path for path in found if self._files.get(path) != found[path]} | (self._files.keys() - found.keys())
        self._files = found
        # Infrequent observations see the end of one save and the beginning of the next at once.
        for number, paths in sorted(_by_step(written, moment.step).items(), key=lambda group: group[0] or -1):
            self._add(number, paths, moment)
        current = self._current
        if current is None:
            return
        if changed.intersection(current.paths):
            current = replace(current, changed=now)
        current = self._with_files(current)
        quiet = now - current.changed
        patience = QUIET if self._is_complete(current) else max(QUIET, self.consists.patience)
        if quiet >= patience and not _is_unfinished(current):
            self._finish(current, done=True)
        else:
            self._current = current

    def _add(self, number: int | None, paths: Collection[str], moment: Moment) -> None:
        """Add written files, all by the save of one step if their names say so."""
        current = self._current
        if current and number is not None and current.named and number != current.step:
            current = self._with_files(current)
            self._finish(current, done=self._is_complete(current))
            current = None
        if current is None:
            current = self._reopened(number) or Save(moment.step, moment.at, moment.at)
        if number is not None and not current.named:
            current = replace(current, step=number, named=True)
        both = tuple(dict.fromkeys([*current.paths, *sorted(paths)]))
        self._current = replace(current, changed=moment.at, paths=both)

    def _with_files(self, save: Save) -> Save:
        """Return the save with its remaining files and all parts it ever had: an old save may be pruned meanwhile."""
        paths = tuple(path for path in save.paths if path in self._files)
        finished = set[str]().union(
            *(parts.names(path, save.step) for path in paths if not parts.UNFINISHED.search(path))
        )
        size = sum(self._files[path].size for path in paths)
        return replace(save, paths=paths, size=size, parts=save.parts | finished)

    def _is_complete(self, save: Save) -> bool:
        """Return whether all parts exist in full size, or existed before they were pruned."""
        sizes = {path: self._files[path].size for path in save.paths if path in self._files}
        return not sizes or (self.consists.every <= save.parts and self.consists.are_whole(sizes, save.step))

    def end(self) -> None:
        """End the attempt: a save in progress stays unfinished, if something is missing."""
        if self._current:
            self._history.append(replace(self._current, done=not self.is_writing))
        self._current = None

    def _finish(self, save: Save, *, done: bool) -> None:
        self._current = None
        save = replace(save, done=done)
        last = self._history[-1] if self._history else None
        if last and last.step == save.step and last.done:  # a pause within one save
            paths = tuple(dict.fromkeys([*last.paths, *save.paths]))
            save = replace(save, began=last.began, paths=paths, size=max(last.size, save.size))
            self._history.pop()
        self._history.append(save)
        self._history.sort(key=lambda one: one.began)

    def _reopened(self, number: int | None) -> Save | None:
        """Return one of the last saves if it only paused: a host may still write it when another begins the next."""
        for index in range(len(self._history) - 1, max(-1, len(self._history) - 1 - REOPENED), -1):
            if self._history[index].named and number == self._history[index].step:
                return replace(self._history.pop(index), done=False)
        return None

    def _is_save(self, path: str, file: File) -> bool:
        before = self._files.get(path)
        if before is None:
            return True
        if before == file:
            return False
        return file.inode != before.inode or file.size <= before.size


def _is_unfinished(save: Save) -> bool:
    return any(parts.UNFINISHED.search(path) for path in save.paths)


def _by_step(paths: Iterable[str], step: int) -> dict[int | None, list[str]]:
    groups: dict[int | None, list[str]] = {}
    for path in paths:
        groups.setdefault(_named(path, step), []).append(path)
    return groups


def _named(path: str, step: int) -> int | None:
    """Return the step in a path: by the naming of checkpoints, else a number near the step at which the save began."""
    for parent, name in pairwise(("", *path.split("/"))):
        if (number := checkpoint_folder.step(parts.SUFFIX.sub("", name), parent)) is not None:
            return number
    numbers = [int(word) for word in re.findall(r"(?<![\d.])\d{1,12}(?!\d)", path)]
    return min((number for number in numbers if abs(number - step) <= 3), key=lambda one: abs(one - step), default=None)
