"""The watch that ends an attempt whose driver does not return, and releases its hardware.

One process for each attempt watches the time at which a driver last asked for the attempt. Time spent asleep does not
count, and each request resets it to 0. After `seconds` without a request, the watch stops the attempt as a driver
would, and deletes the TPU VM or queued resource in `hardware` with the token of the machine's own service account, if
that account may do so and the object still carries the labels of this attempt.

A driver that cannot reach this host, but reaches others or the API, renews the limit by a mark in the metadata of the
TPU VM. Only a change of that mark counts, so no two clocks are compared.

The watch ends when the attempt is over and holds no hardware, when a later attempt has begun, or when the home in which
it works is removed. It rewrites its own files if a program removed them, and needs no other file to stop the attempt.
The supervisor starts it with the attempt, and whenever a driver asks and the watch is missing: after a reboot it counts
from the first request on.

Files, in `unattended` in the folder of the attempt:

    wanted     limit, grace and hardware
    asked      its time is that of the last request
    lock       held by the watch
    done       the watch has nothing left to do
"""

from __future__ import annotations

import fcntl
import io
import json
import os
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

from . import host_requests as requests
from .host_files import HERE, ROOT
from .host_hardware import METADATA_HOST, mark, release

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, TextIO

    Attended = tuple[float, str]  # when a driver last asked, and the last mark

NAME = "unattended"
LOOK_SECONDS = 5.0
BEGIN_SECONDS = 10.0
RETRY_SECONDS = 60.0
"""Seconds between two requests to delete hardware."""
LEAVE_SECONDS = 120.0
"""Seconds that an attempt may take to leave, beyond its grace, before its hardware is deleted."""
MARK_LOOKS = 10
"""Number of reads of the mark within the limit."""


def begin(folder: str, wanted: dict[str, Any], mark: str) -> None:
    """Watch an attempt from now on. Idempotent.

    Returns once the watch has read its files: the attempt's program may remove them after that.
    """
    own = Path(folder, NAME)
    own.mkdir(mode=0o700, exist_ok=True)
    if not (own / "wanted").exists():
        (own / "asked").touch()
        new = own / f"wanted.{os.getpid()}"
        new.write_text(json.dumps(wanted), encoding="utf-8")
        new.replace(own / "wanted")
    ensure(folder, mark)
    due = time.monotonic() + BEGIN_SECONDS
    while is_free(own / "lock") and time.monotonic() < due:
        time.sleep(0.02)


def ensure(folder: str, mark: str) -> None:
    """Start the watch of an attempt if it is missing."""
    own = Path(folder, NAME)
    if not (own / "wanted").exists() or (own / "done").exists() or not is_free(own / "lock"):
        return
    env = {name: value for name, value in os.environ.items() if name == METADATA_HOST}
    with (own / "log").open("ab") as log:
        argv = [sys.executable, "-I", "-S", str(Path(HERE, "supervisor.py")), folder]
        streams: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": log, "stderr": log}
        subprocess.Popen(argv, **streams, env={**env, mark: str(own)}, cwd="/", start_new_session=True)


def main(name: str) -> int:
    folder = Path(name)
    wanted = json.loads((folder / NAME / "wanted").read_text(encoding="utf-8"))
    if (lock := own(folder, wanted)) is None:
        return 0
    with lock:
        while (last := watch(folder, wanted, lock)) is not None:
            stop(folder, wanted)
            if not wanted["hardware"] or released(folder, wanted, last):
                break
        with suppress(OSError):
            (folder / NAME / "done").touch()
    return 0


def own(folder: Path, wanted: dict[str, Any]) -> TextIO | None:
    """Lock the watch of an attempt and create its files; None if another process has the lock."""
    files = folder / NAME
    files.mkdir(mode=0o700, parents=True, exist_ok=True)
    lock = (files / "lock").open("w", encoding="ascii")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.close()
        return None
    if not (files / "asked").exists():
        (files / "asked").touch()
    (files / "wanted").write_text(json.dumps(wanted), encoding="utf-8")
    return lock


def watch(folder: Path, wanted: dict[str, Any], lock: TextIO) -> Attended | None:
    """Wait until no driver has attended for too long, and return the last sign of one; None if the watch can end."""
    last, since = attended(folder, ""), time.monotonic()
    read, every = since, max(LOOK_SECONDS, wanted["seconds"] / MARK_LOOKS)
    while needed(folder, wanted):
        restore(folder, wanted, lock)
        rest = wanted["seconds"] - (time.monotonic() - since)
        due = rest <= 0 or time.monotonic() - read >= every
        if (now := attended(folder, last[1]) if due else (asked(folder), last[1])) != last:
            last, since = now, time.monotonic()
        elif rest <= 0:
            return last
        read = time.monotonic() if due else read
        time.sleep(min(LOOK_SECONDS, max(0.1, rest)))
    return None


def restore(folder: Path, wanted: dict[str, Any], lock: TextIO) -> None:
    """Rewrite the files if a program removed them."""
    with suppress(OSError):
        if os.path.samestat((folder / NAME / "lock").stat(), os.fstat(lock.fileno())):
            return
    with suppress(OSError):  # on a full disk, the next look retries
        if (new := own(folder, wanted)) is not None:
            os.dup2(new.fileno(), lock.fileno(), inheritable=False)
            new.close()


def needed(folder: Path, wanted: dict[str, Any]) -> bool:
    """Return whether the attempt or its hardware still exists, and no later attempt has its own watch."""
    if superseded(folder, wanted) or not Path(ROOT).parent.exists():
        return False
    began = (folder / "began").exists() or (folder / "end").exists()  # read before the lock, which a shim takes first
    return bool(wanted["hardware"]) or not began or not is_free(folder / "lock")


def attended(folder: Path, known: str) -> Attended:
    """Return the newest signs of a driver. `known` is the last mark, used if it cannot be read now."""
    return asked(folder), mark(known)


def asked(folder: Path) -> float:
    try:
        return (folder / NAME / "asked").stat().st_mtime
    except OSError:
        return 0.0


def superseded(folder: Path, wanted: dict[str, Any]) -> bool:
    with suppress(OSError, ValueError):
        latest = json.loads((folder.parent / "latest").read_text(encoding="utf-8"))
        return int(latest["attempt"]) > int(wanted["attempt"])
    return False


def is_free(lock: Path) -> bool:
    try:
        with lock.open(encoding="ascii") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


def stop(folder: Path, wanted: dict[str, Any]) -> None:
    request = {"do": "stop", "job": wanted["job"], "attempt": wanted["attempt"], "grace": wanted["grace"]}
    requests.answer(request, io.BytesIO())
    due = time.monotonic() + wanted["grace"] + LEAVE_SECONDS
    while not is_free(folder / "lock") and time.monotonic() < due:
        time.sleep(1.0)


def released(folder: Path, wanted: dict[str, Any], last: Attended) -> bool:
    """Delete the hardware, with retries; False once a driver has attended since `last`, or the watch can end."""
    while attended(folder, last[1]) == last and needed(folder, wanted):
        if release(wanted["hardware"]):
            return True
        due = time.monotonic() + RETRY_SECONDS
        while asked(folder) == last[0] and needed(folder, wanted) and time.monotonic() < due:
            time.sleep(LOOK_SECONDS)
    return False
