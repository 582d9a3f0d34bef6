"""The user's code, frozen: a snapshot named by its content, with the commit it came from.

.gitignore is honoured, in a git checkout and outside one. What is staged once is never written again.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tpukit.errors import Invalid, NotFound
from tpukit.plan import Snapshot

MOST_BYTES = 256 << 20


def snapshot(folder: Path, shelf: Path) -> Snapshot:
    """Copy `folder` onto `shelf` unless the same content is there already."""
    if not folder.is_dir():
        raise NotFound(f"code: there is no folder {folder}", hint="`code` is relative to the job file")
    files = sorted(_files(folder))
    _check(folder, files)
    digest = _digest(folder, files)
    target = shelf / digest
    if not target.exists():
        _copy(folder, files, target)
    commit, dirty = _commit(folder)
    return Snapshot(digest, commit, dirty)


def unpack(shelf: Path, digest: str, target: Path) -> None:
    """A copy of a snapshot that a job may write into. Doing it twice does it once."""
    if target.exists():
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    new = Path(tempfile.mkdtemp(prefix=".code-", dir=target.parent))
    try:
        shutil.copytree(shelf / digest, new, symlinks=True, dirs_exist_ok=True)
        _move(new, target)
    finally:
        shutil.rmtree(new, ignore_errors=True)


def _files(folder: Path) -> Iterator[str]:
    listed = _git(folder, "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", ".")
    # Outside git; a folder that git ignores, and that was asked for all the same; a submodule that was not fetched.
    if listed in ("", "./\0"):
        yield from _walk(folder)
        return
    for name in dict.fromkeys(listed.split("\0")[:-1]):
        path = folder / name
        if path.is_dir() and not path.is_symlink():  # a checkout inside the checkout
            yield from (f"{name.rstrip('/')}/{inner}" for inner in _files(path))
        elif os.path.lexists(path):
            yield name


def _walk(folder: Path) -> Iterator[str]:
    """Files outside a git checkout, less what the .gitignore files on the way say."""
    from pathspec import GitIgnoreSpec

    specs: dict[Path, GitIgnoreSpec] = {}

    def ignored(path: Path, slash: str = "") -> bool:
        """The last word is that of the deepest .gitignore that has one."""
        for base in path.parents:
            said = specs[base].check_file(path.relative_to(base).as_posix() + slash).include if base in specs else None
            if said is not None:
                return said
            if base == folder:
                break
        return False

    for top, folders, files in os.walk(folder):
        here = Path(top)
        ignore = here / ".gitignore"
        if ignore.is_file():
            specs[here] = GitIgnoreSpec.from_lines(ignore.read_text(encoding="utf-8", errors="replace").splitlines())
        links = [name for name in folders if (here / name).is_symlink()]
        folders[:] = sorted(name for name in folders if name != ".git" and not ignored(here / name, "/"))
        for path in (here / name for name in [*files, *links]):
            if (path.is_file() or path.is_symlink()) and not ignored(path):  # no pipes, no sockets
                yield path.relative_to(folder).as_posix()


def _check(folder: Path, files: list[str]) -> None:
    total = 0
    root = folder.resolve()
    for name in files:
        path = folder / name
        if path.is_symlink() and (
            path.readlink().is_absolute() or not Path(os.path.realpath(path)).is_relative_to(root)
        ):
            raise Invalid(
                f"code: {name} is a link that leads out of {folder}",
                hint="copy the file in, make the link relative, or put it into .gitignore",
            )
        total += path.lstat().st_size
    if total > MOST_BYTES:
        largest = sorted(files, key=lambda name: -(folder / name).lstat().st_size)[:3]
        raise Invalid(
            f"code: {folder} holds {total >> 20} MiB, more than the {MOST_BYTES >> 20} MiB that are staged",
            hint=f"put data elsewhere or into .gitignore; the largest files are {', '.join(largest)}",
        )


def _digest(folder: Path, files: list[str]) -> str:
    whole = hashlib.sha256()
    for name in files:
        path = folder / name
        if path.is_symlink():
            kind, content = "link", os.fsencode(path.readlink())
        else:
            kind = "exec" if os.access(path, os.X_OK) else "file"
            content = hashlib.sha256(path.read_bytes()).digest()
        whole.update(kind.encode() + b" " + os.fsencode(name) + b"\0" + content + b"\0")
    return whole.hexdigest()


def _copy(folder: Path, files: list[str], target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    new = Path(tempfile.mkdtemp(prefix=".new-", dir=target.parent))
    try:
        for name in files:
            (new / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(folder / name, new / name, follow_symlinks=False)
        _move(new, target)
    finally:
        shutil.rmtree(new, ignore_errors=True)


def _move(new: Path, target: Path) -> None:
    try:
        new.rename(target)
    except OSError:
        if not target.exists():
            raise
        shutil.rmtree(new, ignore_errors=True)  # another process was faster with the same content


def _commit(folder: Path) -> tuple[str, bool]:
    commit = _git(folder, "rev-parse", "HEAD")
    return (commit, bool(_git(folder, "status", "--porcelain", "--", "."))) if commit else ("", False)


def _git(folder: Path, *arguments: str) -> str:
    """What git says, or nothing where it cannot say."""
    try:
        done = subprocess.run(["git", "-C", str(folder), *arguments], capture_output=True, check=False)
    except FileNotFoundError:
        return ""
    return done.stdout.decode(errors="surrogateescape").removesuffix("\n") if done.returncode == 0 else ""
