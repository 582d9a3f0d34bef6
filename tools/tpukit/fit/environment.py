"""Python environment with JAX and the TPU compiler, in the cache folder.

There is one for each list of versions and each Python. It is built under another name and renamed when complete, so
Ctrl-C, a full disk or a lost connection never leaves an incomplete environment.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from tpukit.core import paths
from tpukit.core.errors import Denied, Invalid, Problem, Transient

CONSTRAINTS = Path(__file__).with_name("constraints.txt")
SIZE_MB = 1360
"""Size of the environment on disk, measured with Python 3.13 on x86-64."""
NEEDED_MB = 2000
"""Disk space needed for the build: the environment and the packed files that pip unpacks."""
OLDEST = (3, 12)
"""Oldest Python that this JAX supports."""

Say = Callable[[str], None]


def find() -> Path | None:
    """Return the interpreter of the environment, or None if it has not been built."""
    folder = _folder()
    return folder / "bin" / "python" if (folder / ".ready").exists() else None


def make(say: Say) -> Path:
    """Return the interpreter of the environment. Build it first if it is missing."""
    check_platform()
    if found := find():
        return found
    folder = _folder()
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_suffix(".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("another `tpu fit` is installing the TPU compiler; waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        if found := find():
            return found
        _check_disk(folder.parent)
        _build(folder, say)
    return folder / "bin" / "python"


def check_platform() -> None:
    """Raise Invalid if libtpu cannot be installed."""
    machine = os.uname().machine
    if not sys.platform.startswith("linux") or machine != "x86_64":
        where = f"{sys.platform} on {machine}"
        hint = "run `tpu fit` on a Linux machine with x86-64, for example in CI"
        raise Invalid(Problem("", f"the TPU compiler exists only for Linux on x86-64, and this is {where}", hint))
    if sys.version_info[:2] < OLDEST:
        version = ".".join(map(str, sys.version_info[:2]))
        hint = "install tpukit with Python 3.12 or newer"
        raise Invalid(Problem("", f"`tpu fit` needs Python 3.12 or newer, and this is {version}", hint))


def _folder() -> Path:
    key = hashlib.sha256(CONSTRAINTS.read_bytes() + sys.version.encode()).hexdigest()[:16]
    return paths.cache() / "fit" / f"environment-{key}"


def _check_disk(folder: Path) -> None:
    free = shutil.disk_usage(folder).free >> 20
    if free < NEEDED_MB:
        hint = "free some space, or point $XDG_CACHE_HOME at a larger disk"
        raise Denied(f"the TPU compiler needs {NEEDED_MB:,} MB in {folder}, and {free:,} MB are free", hint=hint)


def _build(folder: Path, say: Say) -> None:
    draft = folder.with_name(f"building-{os.getpid()}")
    for old in folder.parent.glob("building-*"):  # left by a killed process, because this process holds the lock
        shutil.rmtree(old, ignore_errors=True)
    say(f"installing JAX and the TPU compiler into {folder} ({SIZE_MB:,} MB on disk, once)")
    try:
        subprocess.run([sys.executable, "-m", "venv", str(draft)], check=True, capture_output=True)
        (draft / "tmp").mkdir()
        _install(draft, say)
        shutil.rmtree(draft / "tmp")
        (draft / ".ready").touch()
        draft.rename(folder)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _install(draft: Path, say: Say) -> None:
    argv = [str(draft / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", "--no-input", "install"]
    argv += ["--quiet", "--no-cache-dir", "--no-deps", "--requirement", str(CONSTRAINTS)]
    log = draft / "pip.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            argv, stdout=output, stderr=output, env={**os.environ, "TMPDIR": str(draft / "tmp")}, start_new_session=True
        )
        try:
            while process.poll() is None:
                with suppress(subprocess.TimeoutExpired):
                    process.wait(5)
                say(f"installing: {_size_mb(draft):,} MB of about {SIZE_MB:,} MB")
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
    if process.returncode:
        text = log.read_text(encoding="utf-8", errors="replace").strip()
        raise _refusal(text)


def _refusal(text: str) -> Exception:
    lines = [line for line in text.splitlines() if line.startswith("ERROR")] or text.splitlines()[-1:]
    said = lines[0].removeprefix("ERROR: ")[:300] if lines else "no output"
    if "No space left" in text:
        return Denied("the disk is full", hint="free some space, or point $XDG_CACHE_HOME at a larger disk")
    if any(word in text for word in ("NewConnectionError", "Temporary failure", "Connection", "from versions: none")):
        hint = "connect this machine to a Python package index once, and run the command again"
        return Transient(f"the TPU compiler could not be downloaded: {said}", hint=hint)
    return Transient(f"pip could not install the TPU compiler: {said}", hint="run the command again")


def _size_mb(folder: Path) -> int:
    total = 0
    for root, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):
                total += (Path(root) / name).lstat().st_size
    return total >> 20
