"""Find the files that accumulate on this machine, and remove them so that a crash leaves none half removed."""

from __future__ import annotations

import fcntl
import os
import secrets
import shutil
import stat
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tpukit.jobs.housekeeping.decide import Item, What

TRASH = ".trash-"
WORK = "work"
"""Folder of a run that holds its checkpoints."""


@dataclass(frozen=True, slots=True)
class JobFacts:
    """Facts about a job that decide which files may be removed."""

    active: bool
    ended: float = 0.0
    digest: str = ""  # of its code
    readable: bool = True  # False: the record exists, but what the job needs is unknown


def scan(data: Path, state: Path, known: Mapping[str, JobFacts], *, checkpoints: bool = False) -> list[Item]:
    """Return everything that could ever be removed. Symbolic links belong to the user and are left alone."""
    return [
        *_code(data / "code", known),
        *_runs(data / "runs", known, checkpoints),
        *(_results(data / "tensorboard", known) if checkpoints else ()),
        *_locks(state / "locks", known),
        *_left(data),
    ]


def remove(item: Item) -> bool:
    """Remove the item, and return False if it came into use since the scan.

    Partly removed items become trash, which the next scan finds.
    """
    if item.what is What.LOCK:
        return _remove_lock(item.path)
    if item.what is What.CODE and _changed(item.path) > item.used:
        return False
    for path in _parts(item):
        _discard(path)
    if item.what is What.CHECKPOINTS:
        with suppress(OSError):  # the run had more than checkpoints
            item.path.parent.rmdir()
    return True


def _code(shelf: Path, known: Mapping[str, JobFacts]) -> Iterator[Item]:
    unsure = any(not facts.readable for facts in known.values())
    users: dict[str, list[JobFacts]] = {}
    for facts in known.values():
        users.setdefault(facts.digest, []).append(facts)
    for path in _folders(shelf):
        jobs = users.get(path.name, [])
        used = max([_changed(path), *(facts.ended for facts in jobs)])
        needed = unsure or any(facts.active for facts in jobs)
        yield Item(What.CODE, path.name, path, _size(path), used, needed, known=bool(jobs))


def _runs(runs: Path, known: Mapping[str, JobFacts], checkpoints: bool) -> Iterator[Item]:
    for folder in _folders(runs):
        facts = known.get(folder.name)
        own = [path for path in _entries(folder) if path.name != WORK and not path.name.startswith(".")]
        work = folder / WORK
        has_work = os.path.lexists(work)
        if own or not has_work:
            size = sum(map(_size, own))
            yield _of_job(What.RUN, folder.name, folder, size, max(map(_changed, own or [folder])), facts)
        if checkpoints and has_work and not work.is_symlink():
            changed = max(map(_changed, [work, *_entries(work)]))
            yield _of_job(What.CHECKPOINTS, folder.name, work, _size(work), changed, facts)


def _results(boards: Path, known: Mapping[str, JobFacts]) -> Iterator[Item]:
    for folder in _folders(boards):
        changed = max(map(_changed, [folder, *_entries(folder)]))
        yield _of_job(What.CHECKPOINTS, folder.name, folder, _size(folder), changed, known.get(folder.name))


def _locks(locks: Path, known: Mapping[str, JobFacts]) -> Iterator[Item]:
    for path in _entries(locks):
        if path.is_file() and not path.is_symlink():
            yield _of_job(What.LOCK, path.name, path, 0, _changed(path), known.get(path.stem))


def _of_job(what: What, name: str, path: Path, size: int, changed: float, facts: JobFacts | None) -> Item:
    used = max(changed, facts.ended if facts else 0.0)
    return Item(what, name, path, size, used, needed=facts is not None and facts.active, known=facts is not None)


def _left(data: Path) -> Iterator[Item]:
    patterns = {
        What.TEMPORARY: ("code/.new-*", "runs/*/.code-*", "sender.*", "machine.*"),
        What.TRASH: (f"code/{TRASH}*", f"runs/{TRASH}*", f"runs/*/{TRASH}*", f"tensorboard/{TRASH}*"),
    }
    for what, globs in patterns.items():
        for path in (path for pattern in globs for path in sorted(data.glob(pattern))):
            with suppress(FileNotFoundError):
                yield Item(what, path.name, path, _size(path), path.lstat().st_mtime)


def _parts(item: Item) -> list[Path]:
    """Return the paths to remove: of a run with checkpoints, all but those."""
    if item.what is What.RUN and os.path.lexists(item.path / WORK):
        return [path for path in _entries(item.path) if path.name != WORK]
    return [item.path]


def _discard(path: Path) -> None:
    """Rename, then delete: a half-removed item never keeps its own name."""
    if not path.name.startswith(TRASH):
        trash = path.with_name(TRASH + secrets.token_hex(8))
        path.rename(trash)
        path = trash
    if path.is_dir() and not path.is_symlink():
        _delete(path)
    else:
        path.unlink(missing_ok=True)


def _delete(folder: Path) -> None:
    """Delete a folder, including read-only folders in it."""
    _open_up(folder)
    for top, inner, _ in os.walk(folder):
        for name in inner:
            _open_up(Path(top, name))
    shutil.rmtree(folder)


def _open_up(folder: Path) -> None:
    with suppress(OSError):
        mode = folder.lstat().st_mode
        if stat.S_ISDIR(mode) and mode & 0o700 != 0o700:
            folder.chmod(0o700)


def _remove_lock(path: Path) -> bool:
    handle = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        path.unlink()
    except BlockingIOError:
        return False
    finally:
        os.close(handle)
    return True


def _folders(folder: Path) -> Iterator[Path]:
    return (
        path for path in _entries(folder) if not path.name.startswith(".") and path.is_dir() and not path.is_symlink()
    )


def _entries(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []


def _changed(path: Path) -> float:
    try:
        return path.lstat().st_mtime
    except FileNotFoundError:
        return 0.0


def _size(path: Path) -> int:
    """Return bytes on disk, without following links."""
    total = 0
    with suppress(OSError):
        total = path.lstat().st_blocks * 512
        if path.is_dir() and not path.is_symlink():
            for top, folders, files in os.walk(path):
                for name in (*folders, *files):
                    with suppress(OSError):
                        total += Path(top, name).lstat().st_blocks * 512
    return total
