"""The attempts of a host: which of them run, and the facts of each."""

from __future__ import annotations

import base64
import os
import re
import time
from contextlib import suppress

from . import host_processes as processes
from .host_files import HERE, Refused, is_locked, listed, path, read, write

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

PIECE = 256 << 10
"""Bytes of a log in one answer."""
PROGRESS_MOST = 64 << 10
SAVED_SECONDS = 2.0
"""Seconds between two reads of the names in a workdir."""
RETIRED_MOST = 600.0
"""Seconds for which a machine may be reserved for deletion."""
NAME = re.compile(r"[a-z0-9][-a-z0-9]{0,62}")


def attempt_folder(job: str, number: int) -> str:
    if not NAME.fullmatch(job):
        raise Refused("request", f"{job!r} is not the id of a job")
    return path("jobs", job, f"attempt-{int(number)}")


def fence(job: str, number: int) -> None:
    """Prevent earlier attempts of the job from beginning on this host."""
    file = path("jobs", job, "latest")
    os.makedirs(os.path.dirname(file), mode=0o700, exist_ok=True)
    latest = read(file) or {"attempt": -1}
    if latest["attempt"] > number:
        raise Refused("superseded", f"attempt {latest['attempt']} of {job} has already run on this host")
    write(file, {"attempt": number})


def held(job: str, number: int) -> dict[str, Any] | None:
    """Return the attempt that has this host, or is about to have it deleted, other than the requesting one."""
    for one in running(restore_files()):
        if (one["job"], one["attempt"]) != (job, number):
            return one
    return retired(job)


def retired(job: str) -> dict[str, Any] | None:
    """Return the attempt of another job that is about to have this machine deleted."""
    note = read(path("retired"))
    if note is None or note["job"] == job or not 0 <= note["until"] - time.time() <= RETIRED_MOST:
        return None
    return {"job": note["job"], "attempt": note["attempt"], "store": ""}


def running(shims: dict[str, int]) -> list[dict[str, Any]]:
    """List the running attempts: those with a shim in `shims`, and those whose files say so."""
    files = {path("jobs", job, name) for job in listed(path("jobs")) for name in listed(path("jobs", job))}
    found = []
    for folder in sorted({*files, *shims}):
        job, name = os.path.split(os.path.relpath(folder, path("jobs")))
        number = name[len("attempt-") :] if name.startswith("attempt-") else ""
        if not number.isdigit() or not (folder in shims or is_locked(os.path.join(folder, "lock"))):
            continue
        if read(os.path.join(folder, "end")) is not None:
            continue  # a shim writes the end last, and is about to exit
        owner = read(os.path.join(folder, "owner")) or {"store": ""}
        found.append({"job": job, "attempt": int(number), "store": owner["store"]})
    return found


def restore_files() -> dict[str, int]:
    """Return the living shims by folder, after those whose files were removed have rewritten them."""
    shims: dict[str, int] = processes.shims(path("jobs"))
    for folder, shim in shims.items():
        if not is_locked(os.path.join(folder, "lock")):
            processes.restore(folder, shim)
    return shims


def is_alive(folder: str) -> bool:
    """Return whether any process of an attempt runs. Processes that outlived its shim are killed with it."""
    if is_locked(os.path.join(folder, "lock")):
        return True
    left = processes.marked(path("jobs")).get(folder, [])
    if folder in processes.shims(path("jobs")):
        return True
    processes.kill(left)
    return bool(left)


def kill_strays() -> None:
    """Kill processes of attempts whose shim is dead: they may still hold the chips."""
    left, shims = processes.marked(path("jobs")), processes.shims(path("jobs"))
    for folder, pids in left.items():
        if folder not in shims and not is_locked(os.path.join(folder, "lock")):
            processes.kill(pids)


def facts(job: str, number: int, log: int | None) -> dict[str, Any]:
    """Return the content of an attempt's files.

    The order of reading matters: a lock that is free after `began` was read stays free. `log` is the position from
    which its log is returned; None leaves the log out.
    """
    folder = attempt_folder(job, number)
    if not is_locked(os.path.join(folder, "lock")):
        restore_files()
    began = read(os.path.join(folder, "began"))
    stopped = os.path.exists(os.path.join(folder, "stop"))
    alive = is_alive(folder)
    end = read(os.path.join(folder, "end"))
    if began is None and stopped and not alive:  # a shim that takes the lock from now on finds the note
        began, end = read(os.path.join(folder, "began")), read(os.path.join(folder, "end"))
    known: dict[str, Any] = {
        "began": began,
        "end": end,
        "locked": alive,
        "stop": stopped,
        "frozen": began is not None and frozen(began["pid"]),
        "latest": (read(path("jobs", job, "latest")) or {"attempt": 0})["attempt"],
    }
    known["progress"] = progress(os.path.join(folder, "progress"))
    if began is not None:
        known["saved"] = saved(folder, began["at"], final=end is not None)
    if log is not None:
        known["log"] = piece(os.path.join(folder, "log"), log, PIECE)
    return known


def saved(folder: str, since: float, *, final: bool) -> int:
    """Return the newest checkpoint in the workdir, for a program that does not report it; -1 if none is visible."""
    file = os.path.join(folder, "saved")
    known = read(file) or {"at": 0.0, "step": -1, "final": False}
    now = time.time()
    if known["final"] or (not final and abs(now - known["at"]) < SAVED_SECONDS):
        return int(known["step"])
    workdir = (read(os.path.join(folder, "pod.json")) or {"env": {}})["env"].get("TPUKIT_WORKDIR", "")
    if not workdir or "://" in workdir:
        return -1
    import pathlib

    newest = checkpoint_folder().newest
    step: int = max(int(known["step"]), newest(pathlib.Path(workdir), since - 1.0))
    with suppress(OSError):  # on a full disk it is read again next time
        write(file, {"at": now, "step": step, "final": final})
    return step


def checkpoint_folder() -> Any:
    """Load the module that knows the names of checkpoints.

    It belongs to another package of the product, and lies beside this one on a host.
    """
    import importlib.util

    spec = importlib.util.spec_from_file_location("checkpoint_folder", os.path.join(HERE, "checkpoint_folder.py"))
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def progress(file: str) -> dict[str, Any] | None:
    try:
        handle = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
    except OSError:
        return None
    with os.fdopen(handle, "rb") as report:
        changed = os.fstat(handle).st_mtime
        try:
            return {"text": report.read(PROGRESS_MOST).decode("utf-8", "replace"), "at": changed}
        except OSError:
            return None


def piece(file: str, position: int, most: int) -> dict[str, Any]:
    """Return the bytes of a log from a position on."""
    try:
        with open(file, "rb") as log:
            size = log.seek(0, os.SEEK_END)
            at = log.seek(min(position, size))
            return {"at": at, "bytes": base64.b64encode(log.read(most)).decode(), "size": size}
    except OSError:
        return {"at": 0, "bytes": "", "size": 0}


def frozen(pid: int) -> bool:
    """Return whether a process was stopped by a signal and waits to be continued."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
            return file.read().rpartition(")")[2].split()[0] in ("T", "t")
    except OSError:
        return False


def boot() -> str:
    """Return the boot id, which changes with every start of the machine."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return ""
