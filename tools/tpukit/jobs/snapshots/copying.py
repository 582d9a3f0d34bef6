"""Read the user's files once, hashing exactly the bytes written: an edit meanwhile is in both or in neither."""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tpukit.core.errors import Problem
from tpukit.jobs.snapshots.code_files import shown

CHUNK = 1 << 20


class Vanished(Exception):
    """A file disappeared, or became something else, after it was listed."""


@dataclass(frozen=True, slots=True)
class Read:
    """Result of reading files."""

    digest: str
    files: int
    bytes: int
    problems: tuple[Problem, ...]


def read(folder: Path, names: Iterable[str], target: Path | None = None) -> Read:
    """Hash files of `folder` (in the order of `names`), and copy them below `target`, if given.

    Problems with the user's files are in the result.

    Raises:
        Vanished: A file is no longer there.
        OSError: `target` cannot be written.
    """
    digest, count, total = hashlib.sha256(), 0, 0
    problems: list[Problem] = []
    root = Path(os.path.realpath(folder))
    made: set[Path] = set()
    for name in names:
        if target is not None and (parent := (target / name).parent) not in made:
            parent.mkdir(parents=True, exist_ok=True)
            made.add(parent)
        try:
            kind, content, size = _one(folder / name, root, None if target is None else target / name)
        except _Unusable as error:
            problems.append(Problem("", f"code: {shown(name)} {error}", error.hint))
            continue
        digest.update(kind + b" " + os.fsencode(name) + b"\0" + content + b"\0")
        count, total = count + 1, total + size
    return Read(digest.hexdigest(), count, total, tuple(problems))


class _Unusable(Exception):
    def __init__(self, what: str, hint: str) -> None:
        super().__init__(what)
        self.hint = hint


def _one(source: Path, root: Path, target: Path | None) -> tuple[bytes, bytes, int]:
    """Return kind, hash and size of one file."""
    try:
        link = os.readlink(source) if source.is_symlink() else None  # noqa: PTH115 (a Path would tidy the text up)
        # Without O_NONBLOCK, opening a pipe that replaced the file would block.
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        handle = os.open(source, flags) if link is None else -1
    except (FileNotFoundError, NotADirectoryError) as error:
        raise Vanished(str(source)) from error
    except OSError as error:
        if error.errno == errno.EINVAL or _changed(source):
            raise Vanished(str(source)) from error
        raise _unreadable(error) from error
    if link is not None:
        return _link(source, link, root, target)
    try:
        return _file(handle, source, target)
    finally:
        os.close(handle)


def _link(source: Path, text: str, root: Path, target: Path | None) -> tuple[bytes, bytes, int]:
    goal = os.path.realpath(source.parent.resolve() / text)
    if Path(text).is_absolute() or not Path(goal).is_relative_to(root):
        hint = "copy the file in, make the link relative, or put it into .gitignore"
        raise _Unusable(f"is a link to a file outside {root}", hint)
    if target is not None:
        target.symlink_to(text)
    return b"link", os.fsencode(text), len(text)


def _file(handle: int, source: Path, target: Path | None) -> tuple[bytes, bytes, int]:
    mode = os.fstat(handle).st_mode
    if not stat.S_ISREG(mode):
        raise Vanished(str(source))
    executable = bool(mode & 0o111)
    content, size = hashlib.sha256(), 0
    copy = None if target is None else os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        while True:
            try:
                chunk = os.read(handle, CHUNK)
            except OSError as error:
                raise _unreadable(error) from error
            if not chunk:
                break
            content.update(chunk)
            size += len(chunk)
            if copy is not None:
                _write(copy, chunk)
        if copy is not None:
            os.fchmod(copy, 0o755 if executable else 0o644)
    finally:
        if copy is not None:
            os.close(copy)
    return b"exec" if executable else b"file", content.digest(), size


def _write(handle: int, chunk: bytes) -> None:
    rest = memoryview(chunk)
    while rest:
        rest = rest[os.write(handle, rest) :]


def _changed(source: Path) -> bool:
    """Report whether the path is no longer a plain file."""
    try:
        return not stat.S_ISREG(source.lstat().st_mode)
    except OSError:
        return True


def _unreadable(error: OSError) -> _Unusable:
    return _Unusable(f"cannot be read: {error.strerror}", "make it readable, or put it into .gitignore")
