"""Find the user's code in a folder: all files that no .gitignore names, in a git checkout and outside one.

Anything that cannot be staged (unreadable folders, pipes, tpukit's own data) is a problem unless a .gitignore names it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from tpukit.core.errors import Invalid, Problem
from tpukit.jobs.snapshots import git

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec

MOST_FILES = 100_000
IGNORE = "put it into .gitignore"


@dataclass(slots=True)
class Listing:
    names: list[str] = field(default_factory=list)  # relative, with /, sorted
    problems: list[Problem] = field(default_factory=list)


def files(folder: Path, own: Sequence[Path] = ()) -> Listing:
    """List the files of `folder`, except in `own`: tpukit's folders would hold every snapshot of themselves."""
    inside = frozenset(path.resolve() for path in own)
    listing = Listing()
    for name in _files(folder, "", inside, listing.problems):
        listing.names.append(name)
        if len(listing.names) > MOST_FILES:
            raise Invalid(
                f"code: {folder} holds more than the limit of {MOST_FILES:,} files",
                hint="check that it is the right folder, and put data and environments into .gitignore",
            )
    listing.names.sort()
    return listing


def shown(name: str) -> str:
    """Return a file name as printable text: names need not be UTF-8."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")


def _files(folder: Path, prefix: str, own: frozenset[Path], problems: list[Problem]) -> Iterator[str]:
    listed = git.files(folder)
    # None: outside git. Empty: a folder that git ignores, but that was named explicitly. "./": a submodule that was not
    # fetched.
    if not listed or listed == ["./"]:
        yield from (prefix + name for name in _walked(folder, prefix, own, problems))
        return
    suspects = dict(_suspects(folder, own, git.ignored_folders(folder)))
    for name in suspects.keys() - git.ignored(folder, suspects):
        problems.append(_problem(prefix + name, suspects[name]))
    for name in dict.fromkeys(listed):
        path = folder / name
        if path.is_dir() and not path.is_symlink():  # a checkout inside the checkout
            inner = name.rstrip("/")
            if inner not in suspects:
                yield from _files(path, f"{prefix}{inner}/", own, problems)
        elif os.path.lexists(path) and not any(parent in suspects for parent in (name, *_parents(name))):
            yield prefix + name


def _suspects(folder: Path, own: frozenset[Path], ignored: frozenset[str]) -> Iterator[tuple[str, str]]:
    """Yield what git skips silently, with the problem of each."""
    todo = [""]
    while todo:
        base = todo.pop()
        for entry in _entries(folder / base):
            if isinstance(entry, OSError):
                yield base.rstrip("/"), _unreadable(entry)
                continue
            name = base + entry.name
            what = _wrong(entry, own)
            if what:
                yield name, what
            elif (
                entry.is_dir(follow_symlinks=False)
                and entry.name != ".git"
                and name not in ignored
                and not (folder / name / ".git").exists()  # a checkout inside the checkout is listed separately
            ):
                todo.append(f"{name}/")


def _walked(folder: Path, prefix: str, own: frozenset[Path], problems: list[Problem]) -> Iterator[str]:
    """Yield files outside a git checkout, except those named by .gitignore files on the way."""
    specs: dict[str, GitIgnoreSpec] = {}
    todo = [""]
    while todo:
        base = todo.pop()
        _read_ignore_file(folder / base, base, specs)
        ignored = _ignored_by(specs)
        for entry in _entries(folder / base):
            if isinstance(entry, OSError):
                problems.append(_problem(prefix + base.rstrip("/"), _unreadable(entry)))
                continue
            name = base + entry.name
            is_folder = entry.is_dir(follow_symlinks=False)
            if (is_folder and entry.name == ".git") or ignored(name, "/" if is_folder else ""):
                continue
            if what := _wrong(entry, own):
                problems.append(_problem(prefix + name, what))
            elif is_folder:
                todo.append(f"{name}/")
            else:
                yield name


def _read_ignore_file(folder: Path, base: str, specs: dict[str, GitIgnoreSpec]) -> None:
    from pathspec import GitIgnoreSpec

    path = folder / ".gitignore"
    try:
        if path.is_file():
            lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
            specs[base] = GitIgnoreSpec.from_lines(lines)
    except OSError:
        return  # reported when the file is copied


def _ignored_by(specs: dict[str, GitIgnoreSpec]) -> Callable[[str, str], bool]:
    def ignored(name: str, slash: str) -> bool:
        """Report whether the deepest .gitignore with an opinion ignores the file."""
        for base in (f"{parent}/" if parent else "" for parent in (*_parents(name), "")):
            said = specs[base].check_file(name.removeprefix(base) + slash).include if base in specs else None
            if said is not None:
                return said
        return False

    return ignored


def _parents(name: str) -> Iterator[str]:
    """Yield the folders that contain a file, the deepest first, without the root."""
    while "/" in name:
        name = name.rpartition("/")[0]
        yield name


def _entries(folder: Path) -> Iterator[os.DirEntry[str] | OSError]:
    try:
        with os.scandir(folder) as entries:
            yield from sorted(entries, key=lambda entry: entry.name)
    except FileNotFoundError:
        return  # removed meanwhile
    except OSError as error:
        yield error


def _wrong(entry: os.DirEntry[str], own: frozenset[Path]) -> str:
    """Return why an entry of a folder cannot be staged; empty if it can."""
    if entry.is_symlink() or entry.is_file(follow_symlinks=False):
        return ""
    if entry.is_dir(follow_symlinks=False):
        ours = any(entry.name == path.name for path in own) and Path(entry.path).resolve() in own
        return "is where tpukit keeps its own data" if ours else ""
    return "is a pipe, a socket or a device, and cannot be staged" if os.path.lexists(entry.path) else ""


def _unreadable(error: OSError) -> str:
    return f"is a folder that cannot be read: {error.strerror}"


def _problem(name: str, what: str) -> Problem:
    hint = f"{IGNORE}, or point $TPUKIT_HOME elsewhere" if "tpukit" in what else f"remove it, or {IGNORE}"
    return Problem("", f"code: {shown(name) or 'the folder itself'} {what}", hint)
