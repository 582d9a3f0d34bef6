"""Snapshots of the user's code, named by their content, with the commit that they came from.

.gitignore is honoured, in a git checkout and outside one. The name is the hash of exactly the bytes that were copied,
and a snapshot is never rewritten. Problems are reported before anything is stored.
"""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from tpukit.core.errors import Denied, Invalid, NotFound, Problem, TpukitError
from tpukit.core.quantities import counted
from tpukit.jobs.plan import Snapshot
from tpukit.jobs.snapshots import code_files, copying, git
from tpukit.jobs.snapshots.code_files import Listing, shown

T = TypeVar("T")

MOST_BYTES = 256 << 20
MOST_PROBLEMS = 20
"""Most problems that are reported at once."""
TRIES = 5
"""Number of attempts to read a folder whose files change meanwhile."""
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@dataclass(frozen=True, slots=True)
class Inspection:
    """The snapshot that a folder would give now."""

    digest: str  # empty if there are problems
    commit: str
    dirty: bool
    names: tuple[str, ...]
    bytes: int
    problems: tuple[Problem, ...]

    @property
    def snapshot(self) -> Snapshot:
        return Snapshot(self.digest, self.commit, self.dirty)


def inspect(folder: Path, own: Sequence[Path] = ()) -> Inspection:
    """Read the code as `snapshot` would, without storing it. Problems are in the result; NotFound is raised.

    `own` are tpukit's data and state folders, which are never code.
    """
    try:
        return _settled(folder, lambda: _inspect(folder, own))
    except Invalid as error:
        return Inspection("", "", dirty=False, names=(), bytes=0, problems=error.problems)


def snapshot(folder: Path, shelf: Path, own: Sequence[Path] = ()) -> Snapshot:
    """Copy `folder` onto `shelf`, unless the same content is already there.

    `own` as for `inspect`; the parent folder of the shelf is added to it.
    """
    digest = _settled(folder, lambda: _store(folder, shelf, (shelf.parent, *own)))
    return Snapshot(digest, *git.commit(folder))


def require(shelf: Path, digest: str) -> Path:
    """Return the folder of a snapshot, and mark it as used, so that cleaning keeps it.

    Raises:
        Invalid: The snapshot was removed.
    """
    path = shelf / digest
    try:
        os.utime(path)
    except FileNotFoundError as error:
        raise Invalid(
            f"code: the staged code {digest[:12]} is no longer in {shelf}",
            hint="`tpu run FILE` stages the code again and sends a new job; or copy the folder from the machine "
            "that sent this job",
        ) from error
    except OSError:
        pass  # it exists, but is another user's or on a read-only disk
    return path


def unpack(shelf: Path, digest: str, target: Path) -> None:
    """Copy a snapshot for a job to write into. Idempotent; `target` never holds a partial copy."""
    if target.exists():
        return
    source = require(shelf, digest)
    target.parent.mkdir(parents=True, exist_ok=True)
    new = Path(tempfile.mkdtemp(prefix=".code-", dir=target.parent))
    try:
        shutil.copytree(source, new, symlinks=True, dirs_exist_ok=True)
        _move(new, target)
    finally:
        shutil.rmtree(new, ignore_errors=True)


def verify(shelf: Path, digest: str) -> bool:
    """Report whether a snapshot still has the content that it is named by."""
    path = shelf / digest
    names = sorted(one.relative_to(path).as_posix() for one in path.rglob("*") if one.is_symlink() or not one.is_dir())
    try:
        again = copying.read(path, names)
    except copying.Vanished:
        return False
    return path.is_dir() and not again.problems and again.digest == digest


def _settled(folder: Path, attempt: Callable[[], T]) -> T:
    """Retry `attempt` until the folder's files hold still for long enough."""
    if not folder.is_dir():
        raise NotFound(f"code: there is no folder {folder}", hint="`code` is relative to the job file")
    for _ in range(TRIES):
        try:
            return attempt()
        except copying.Vanished as error:
            last = str(error)
    raise Invalid(
        f"code: files in {folder} appear and disappear during staging, such as {shown(last)}",
        hint="stop the program that writes there, or put these files into .gitignore",
    )


def _seen(folder: Path, own: Sequence[Path]) -> tuple[Listing, copying.Read]:
    """Read a folder, with every problem found."""
    listed = code_files.files(folder, own)
    too_large = _too_large(folder, listed)  # reading all of it would take long
    read = copying.read(folder, () if too_large else listed.names)
    problems = sorted([*listed.problems, *too_large, *read.problems], key=str)
    rest = len(problems) - MOST_PROBLEMS
    more = [Problem("", f"code: and {counted(rest, 'more problem')}")] if rest > 0 else []
    return listed, replace(read, problems=(*problems[:MOST_PROBLEMS], *more))


def _inspect(folder: Path, own: Sequence[Path]) -> Inspection:
    listed, read = _seen(folder, own)
    digest = "" if read.problems else read.digest
    return Inspection(digest, *git.commit(folder), tuple(listed.names), read.bytes, read.problems)


def _store(folder: Path, shelf: Path, own: Sequence[Path]) -> str:
    # Read first, to report problems before anything is stored and to skip the copy of known content.
    listed, read = _seen(folder, own)
    _refuse(read.problems)
    # Stored code can be damaged: a power loss leaves empty files, and the first versions of this module could store an
    # edit under the hash of the earlier content.
    if verify(shelf, read.digest):
        require(shelf, read.digest)
        return read.digest
    new: Path | None = None
    try:
        shelf.mkdir(parents=True, exist_ok=True, mode=0o700)
        new = Path(tempfile.mkdtemp(prefix=".new-", dir=shelf))
        copied = copying.read(folder, listed.names, new)
        _refuse(copied.problems)
        _refuse(_too_much(folder, copied.bytes, ()))
        if (shelf / copied.digest).is_dir() and not verify(shelf, copied.digest):
            damaged = new.with_name(f"{new.name}-damaged")
            (shelf / copied.digest).rename(damaged)
            shutil.rmtree(damaged, ignore_errors=True)
        _move(new, shelf / copied.digest)
        return copied.digest
    except OSError as error:
        raise _cannot_store(shelf, error) from error
    finally:
        if new is not None:
            shutil.rmtree(new, ignore_errors=True)


def _refuse(problems: Sequence[Problem]) -> None:
    if problems:
        raise Invalid(problems)


def _too_large(folder: Path, listed: Listing) -> list[Problem]:
    sizes = {}
    for name in listed.names:
        try:
            sizes[name] = (folder / name).lstat().st_size
        except OSError as error:
            if isinstance(error, (FileNotFoundError, NotADirectoryError)):
                raise copying.Vanished(name) from error
            sizes[name] = 0  # reported when the file is read
    return _too_much(folder, sum(sizes.values()), sorted(sizes, key=lambda name: -sizes[name])[:3])


def _too_much(folder: Path, total: int, largest: Sequence[str]) -> list[Problem]:
    if total <= MOST_BYTES:
        return []
    what = f"code: {folder} holds {total >> 20} MiB, more than the limit of {MOST_BYTES >> 20} MiB"
    named = f"; the largest files are {', '.join(map(shown, largest))}" if largest else ""
    return [Problem("", what, f"put data elsewhere or into .gitignore{named}")]


def _cannot_store(shelf: Path, error: OSError) -> TpukitError:
    if error.errno in _FULL:
        return Invalid(
            f"code: the disk of {shelf} is full",
            hint="`tpu clean` removes files of old jobs there; or point $TPUKIT_HOME at another disk",
        )
    hint = "point $TPUKIT_HOME at a folder that you may write to"
    return Denied(f"code cannot be staged in {shelf}: {error.strerror or error}", hint=hint)


def _move(new: Path, target: Path) -> None:
    try:
        new.rename(target)
    except OSError:
        if not target.exists():
            raise
        shutil.rmtree(new, ignore_errors=True)  # another process stored the same content first
