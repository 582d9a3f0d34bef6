"""Decide which files on this machine to remove: pure, over plain data.

Nothing that an active job needs is removed. Old files are removed first, oldest first. Then, while the limits are
exceeded, what ended jobs left is removed, oldest first.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from tpukit.core.quantities import counted

DAY = 86400.0


class What(StrEnum):
    CODE = "code"  # a snapshot of a user's code
    RUN = "run"  # logs, attempts and the copy of the code of one job
    CHECKPOINTS = "checkpoints"  # the workdir of one job, or its TensorBoard data
    LOCK = "lock"
    TEMPORARY = "temporary file"  # left by a process that was killed
    TRASH = "trash"  # left by an interrupted removal


@dataclass(frozen=True, slots=True)
class Item:
    what: What
    name: str  # of the job, or the digest of the code
    path: Path
    bytes: int
    used: float  # time of last use
    needed: bool = False  # an active job needs it
    known: bool = True  # the store has the job; other stores may have jobs that this one lacks


@dataclass(frozen=True, slots=True)
class Limits:
    age: float = 30 * DAY
    runs: int = 20 << 30  # bytes, including checkpoints where they may be removed
    code: int = 2 << 30
    fresh: float = 3600.0  # more recently used items stay, whatever the limits: they may be in use again
    temporary: float = DAY  # no process needs a temporary file for longer


@dataclass(frozen=True, slots=True)
class Removal:
    item: Item
    reason: str


def decide(items: Iterable[Item], now: float, limits: Limits) -> list[Removal]:
    ordered = sorted(items, key=lambda item: (item.used, item.path))
    old = [Removal(item, reason) for item in ordered if not item.needed and (reason := _old(item, now, limits))]
    gone = {removal.item.path for removal in old}
    rest = [item for item in ordered if item.path not in gone]
    return [
        *old,
        *_beyond(rest, (What.RUN, What.CHECKPOINTS), limits.runs, "runs", now, limits),
        *_beyond(rest, (What.CODE,), limits.code, "staged code", now, limits),
    ]


def _old(item: Item, now: float, limits: Limits) -> str:
    age = now - item.used
    if item.what is What.TRASH:
        return "its removal was interrupted"
    if item.what is What.TEMPORARY:
        return "left behind by a process that was killed" if age > limits.temporary else ""
    return f"not used for {counted(round(age / DAY), 'day')}" if age > limits.age else ""


def _beyond(
    items: Sequence[Item], kinds: tuple[What, ...], most: int, words: str, now: float, limits: Limits
) -> list[Removal]:
    mine = [item for item in items if item.what in kinds]
    excess = sum(item.bytes for item in mine) - most
    removals = []
    for item in mine:
        if excess <= 0:
            break
        if item.known and not item.needed and item.bytes and now - item.used > limits.fresh:
            removals.append(Removal(item, f"more {words} than {most / (1 << 30):g} GiB"))
            excess -= item.bytes
    return removals
