"""Find saved checkpoints by the names of files and folders under a workdir, which works with every program.

Orbax calls a finished checkpoint `N` in a folder of checkpoints, and `N.orbax-checkpoint-tmp` until then; others write
`checkpoint-N`, `step_N` or `ckpt-N.npz`. Names marked as unfinished are ignored.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

DEEPEST = 4
ENTRIES_MOST = 5000
"""Maximum number of entries read: a workdir may hold a data set."""

_HOME = re.compile(r"checkpoint|ckpt", re.IGNORECASE)
_NAMED = re.compile(
    r"(?:checkpoint|ckpt|model|state|global_step|step|iter)s?[-_.]?(?:step[-_]?)?(?P<step>\d{1,18})"
    r"(?:\.(?:json|npz?|npy|pt|pth|pkl|pickle|ckpt|bin|index|msgpack|safetensors|orbax|zip|tar))?",
    re.IGNORECASE,
)
_MARKS = ("_CHECKPOINT_METADATA", "commit_success.txt")


def step(name: str, parent: str) -> int | None:
    """Return the step of a finished checkpoint by its name; None for other names and for unfinished checkpoints."""
    if named := _NAMED.fullmatch(name):
        return int(named["step"])
    return int(name) if name.isascii() and name.isdigit() and len(name) <= 18 and _HOME.search(parent) else None


def newest(workdir: Path, since: float) -> int:
    """Return the highest step among the checkpoints finished at `since` or later; -1 if there are none."""
    best = -1
    for entry, number in _checkpoints(workdir):
        if number > best:
            try:
                recent = entry.stat().st_mtime >= since
            except OSError:
                continue
            best = number if recent else best
    return best


def _checkpoints(workdir: Path) -> Iterator[tuple[os.DirEntry[str], int]]:
    todo, left = [(str(workdir), workdir.name, 0)], ENTRIES_MOST
    while todo:
        folder, parent, depth = todo.pop(0)
        try:
            entries = os.scandir(folder)
        except OSError:
            continue
        with entries:
            for entry in entries:
                left -= 1
                if left < 0:
                    return
                number = step(entry.name, parent)
                is_folder = _is_folder(entry)
                if number is None and is_folder and entry.name.isdecimal() and _is_marked(entry.path):
                    number = step(entry.name, _MARKS[0])
                if number is not None:
                    yield entry, number
                elif is_folder and depth < DEEPEST and ".tmp" not in entry.name and "-tmp" not in entry.name:
                    todo.append((entry.path, entry.name, depth + 1))


def _is_marked(folder: str) -> bool:
    return any(Path(folder, mark).exists() for mark in _MARKS)


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir(follow_symlinks=False)
    except OSError:
        return False
