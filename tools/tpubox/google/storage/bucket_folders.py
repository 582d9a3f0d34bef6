"""Buckets as folders: Pods with a mounted bucket and callers of Cloud Storage see the same contents.

An object is a file at its name. Names that a folder cannot hold have no file (a//b, .., a/b beside a, and a/ which
means a folder): Cloud Storage FUSE does not show them as files either. Symbolic links are not followed, so no path
leaves a bucket.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import suppress
from itertools import takewhile
from pathlib import Path

END = "\n"
"""Terminator of a name, which separates it from longer names with the same start: no name contains it."""


class Files:
    def __init__(self, root: Path) -> None:
        self._root = root
        self._drafts = root.with_name(f"{root.name}.new")
        for folder in (root, self._drafts):
            folder.mkdir(exist_ok=True, mode=0o700)

    def add(self, bucket: str) -> None:
        (self._root / bucket).mkdir(exist_ok=True)

    def remove(self, bucket: str) -> None:
        shutil.rmtree(self._root / bucket, ignore_errors=True)

    def mark(self, bucket: str, name: str) -> str:
        """Return a mark of the file's current state, which changes with each write; empty if there is no file."""
        try:
            found = self._path(bucket, name).lstat()
        except (OSError, ValueError):
            return ""
        return f"{found.st_ino} {found.st_size} {found.st_mtime_ns}" if stat.S_ISREG(found.st_mode) else ""

    def write(self, bucket: str, name: str, content: bytes) -> str:
        """Write the file atomically and return its mark; empty if the name cannot be a file."""
        try:
            path = self._path(bucket, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            draft = self._drafts / str(os.getpid())  # requests are served one at a time
            draft.write_bytes(content)
            draft.replace(path)
        except (FileExistsError, NotADirectoryError, IsADirectoryError, ValueError):
            return ""
        return self.mark(bucket, name)

    def read(self, bucket: str, name: str, start: int = 0, length: int | None = None) -> bytes:
        """Return the content; empty if the file has disappeared."""
        with suppress(OSError), self._path(bucket, name).open("rb") as file:
            file.seek(start)
            return file.read(-1 if length is None else length)
        return b""

    def delete(self, bucket: str, name: str) -> None:
        """Delete the file and the folders that become empty."""
        path = self._path(bucket, name)
        path.unlink(missing_ok=True)
        with suppress(OSError):  # not empty
            while (path := path.parent) != self._root / bucket:
                path.rmdir()

    def names(self, bucket: str, prefix: str = "", start: str = "") -> Iterator[str]:
        """Yield all file names with a prefix from `start` on, in order; earlier folders are not read."""
        try:
            inside = self._path(bucket, prefix.rpartition("/")[0]) if "/" in prefix else self._root / bucket
        except ValueError:
            return
        below = prefix[: prefix.rfind("/") + 1]
        yield from takewhile(lambda name: name.startswith(prefix), _walk(inside, below, max(prefix, start)))

    def _path(self, bucket: str, name: str) -> Path:
        parts = name.split("/")
        if set("\0\r\n") & set(name) or any(part in ("", ".", "..") or len(part.encode()) > 255 for part in parts):
            raise ValueError(f"no file can be called {name!r}")
        path = self._root / bucket
        for part in parts[:-1]:
            path /= part
            if path.is_symlink():
                raise ValueError(f"{name!r} leads out of its bucket")
        return path / parts[-1]


def _walk(folder: Path, below: str, start: str) -> Iterator[str]:
    """Yield names in the order of names with terminator, which is the order of objects in the state."""
    try:
        entries = [(f"{below}{one.name}{'/' if one.is_dir(follow_symlinks=False) else END}", one.path)
                   for one in os.scandir(folder)]  # fmt: skip
    except OSError:  # it disappeared, or is a file
        return
    for name, path in sorted(entries):
        if name.endswith("/"):
            if name > start or start.startswith(name):
                yield from _walk(Path(path), name, start)
        elif name >= start:
            yield name.removesuffix(END)
