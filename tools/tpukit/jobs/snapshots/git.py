"""Query git about a folder, without a shell, and never with the repository settings of another user."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable
from pathlib import Path

from tpukit.core.errors import Invalid, Problem

_ELSEWHERE = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_COMMON_DIR", "GIT_PREFIX")
"""Variables set inside hooks and `git rebase --exec`, which would point git to another checkout."""


def files(folder: Path) -> list[str] | None:
    """Return tracked files and untracked ones that are not ignored; None outside a checkout or without git."""
    return _names(folder, "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", ".")


def ignored_folders(folder: Path) -> frozenset[str]:
    """Return folders in which everything is ignored, without their subfolders."""
    names = _names(folder, "ls-files", "-z", "--others", "--ignored", "--exclude-standard", "--directory", "--", ".")
    return frozenset(name.rstrip("/") for name in names or () if name.endswith("/"))


def ignored(folder: Path, names: Iterable[str]) -> frozenset[str]:
    """Return those of `names` that a .gitignore names."""
    asked = b"".join(os.fsencode(name) + b"\0" for name in names)
    if not asked:
        return frozenset()
    done = _run(folder, "check-ignore", "-z", "--stdin", answer=asked)
    return frozenset(_split(done.stdout)) if done is not None else frozenset()


def commit(folder: Path) -> tuple[str, bool]:
    """Return the checked-out commit, and whether files below `folder` differ from it. Empty without a commit."""
    head = _run(folder, "rev-parse", "--verify", "--quiet", "HEAD")
    if head is None or head.returncode:
        return "", False
    status = _run(folder, "status", "--porcelain", "--", ".")
    return head.stdout.decode().strip(), status is not None and bool(status.stdout)


def _names(folder: Path, *arguments: str) -> list[str] | None:
    done = _run(folder, *arguments)
    if done is None:
        return None
    if done.returncode == 0:
        return _split(done.stdout)
    said = done.stderr.decode(errors="replace").strip()
    if "not a git repository" in said:
        return None
    if "dubious ownership" in said:
        raise Invalid(
            Problem(
                "",
                f"code: the git checkout of {folder} belongs to another user, so git refuses to read it",
                f"git config --global --add safe.directory {folder.resolve()}  # if you trust its owner",
            )
        )
    last = said.splitlines()[-1] if said else f"exit code {done.returncode}"
    raise Invalid(f"code: git cannot list the files of {folder}: {last}", hint=f"`git -C {folder} status` shows more")


def _split(output: bytes) -> list[str]:
    return [os.fsdecode(name) for name in output.split(b"\0")[:-1]]


def _run(folder: Path, *arguments: str, answer: bytes = b"") -> subprocess.CompletedProcess[bytes] | None:
    """Run git in a folder; return None if git is not installed."""
    # Messages are matched by their English text.
    environment = {name: value for name, value in os.environ.items() if name not in _ELSEWHERE} | {"LC_ALL": "C"}
    argv = ["git", "-C", str(folder), *arguments]
    try:
        return subprocess.run(argv, input=answer, capture_output=True, check=False, env=environment)
    except FileNotFoundError:
        return None
