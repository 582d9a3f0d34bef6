"""Run pods as process groups on this machine, and report their state.

There is no state in memory: a pod is a folder, so any process can observe it, stop it, or start it again (without
effect if it already ran). See shim.py for the files.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from pathlib import Path

from tpukit.core.clock import SYSTEM
from tpukit.core.errors import Transient

MARK = "TPUKIT_POD"
"""Environment variable that holds the pod's folder, to find processes that left the process group."""

_LOG = re.compile(r"log(\.\d+)?")
_PROC = Path("/proc")
_SHIM = Path(__file__).with_name("shim.py")
_SHIM_OF_ANY_VERSION = os.fsencode(f"/{_SHIM.parent.name}/{_SHIM.name}")
_MOUNTS = Path(__file__).with_name("mounts.py")
_FILTER = Path(__file__).with_name("call_filter.py")
_JOIN = Path(__file__).with_name("join.py")


@dataclass(frozen=True, slots=True)
class Mount:
    """A file or folder that a pod sees at another path. Linux only; check can_mount() first."""

    source: Path
    target: str
    read_only: bool = False


@dataclass(frozen=True, slots=True)
class Confinement:
    """Restrictions of a pod compared to the user that starts it. Linux only; the first two need can_mount()."""

    user: tuple[int, int] | None = None  # ids of user and group that it sees itself run as; files it creates stay ours
    read_only_root: bool = False  # only its mounts are writable
    no_new_privileges: bool = False  # programs with more privileges do not grant them
    capabilities: tuple[str, ...] | None = None  # the maximum, by kernel names; None: all


@dataclass(frozen=True, slots=True)
class Pod:
    folder: Path
    argv: tuple[str, ...]
    env: Mapping[str, str]
    cwd: Path
    disks: tuple[Path, ...] = ()  # folders on disks that may run full and so explain a failure
    memory: int = 0  # maximum bytes; it is killed above that
    memory_folders: tuple[Path, ...] = ()  # folders whose content counts as its memory
    mounts: tuple[Mount, ...] = ()
    absent: tuple[str, ...] = ()  # files and folders hidden from it, if it has mounts
    empty: tuple[str, ...] = ()  # folders that only show its mounts, if it has some
    hostname: str = ""  # its own, if it has mounts; "": the machine's
    shared_memory: int = 0  # bytes of its own /dev/shm, if it has mounts; 0: the machine's
    stamped: bool = False  # the log holds the time of every line
    log_bytes: int = 0  # size at which a stamped log continues in another file; 0: never
    starts_pods: bool = False  # pods that it starts are not its own processes: they outlive it
    init: bool = False  # its first process gets signals as a container's does: only those it handles
    confinement: Confinement | None = None
    # Mount targets that behave like GCS FUSE, each with the limit for a folder rename. Check can_guard() first.
    buckets: Mapping[str, int] = field(default_factory=dict)
    denied: tuple[str, ...] = ()  # those of them that are read-only for lack of permission


class Phase(StrEnum):
    ABSENT = "absent"  # never started
    RUNNING = "running"
    ENDED = "ended"
    LOST = "lost"  # killed together with its shim


@dataclass(frozen=True, slots=True)
class PodState:
    phase: Phase
    pid: int = 0
    shim: int = 0
    began: float = 0.0
    awake: float = 0.0  # the same on a clock that stops while the machine sleeps; 0: unknown
    ended: float = 0.0
    order: float = 0.0  # a clock shared by all pods of this machine, to order failures
    code: int = 0
    signalled: bool = False  # it ended after the request to stop
    told_at: int = 0  # size of its log by then
    error: str = ""  # why it could not start
    out_of_memory: bool = False
    disk_full: bool = False


def start(pods: Iterable[Pod]) -> None:
    """Start pods concurrently, and return when each has begun. Starting one twice runs it once."""
    shims = []
    for pod in pods:
        pod.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        spec = pod.folder / "pod.json"
        if not spec.exists():
            _write(
                spec,
                {
                    "argv": list(pod.argv),
                    "env": {**pod.env, MARK: str(pod.folder)},
                    "cwd": str(pod.cwd),
                    "disks": [str(disk) for disk in pod.disks],
                    "memory": pod.memory,
                    "memory_folders": [str(folder) for folder in pod.memory_folders],
                    "absent": pod.absent,
                    "mounts": [[str(mount.source), mount.target, mount.read_only] for mount in pod.mounts],
                    "empty": pod.empty,
                    "hostname": pod.hostname,
                    "shared_memory": pod.shared_memory,
                    "stamped": pod.stamped,
                    "log_bytes": pod.log_bytes,
                    "starts_pods": pod.starts_pods,
                    "init": pod.init,
                    **({"buckets": dict(pod.buckets), "denied": list(pod.denied)} if pod.buckets else {}),
                    **({"confined": asdict(pod.confinement)} if pod.confinement else {}),
                },
            )
        shims.append((pod, _start_shim(pod.folder)))
    for pod, shim in shims:
        if shim.wait():
            last = (pod.folder / "shim.log").read_text(errors="replace").strip().splitlines()[-1:] or ["no message"]
            raise Transient(f"{pod.folder.name} could not be started: {last[0]}", hint=f"look at {pod.folder}")


def _start_shim(folder: Path) -> subprocess.Popen[bytes]:
    # -I and -S: neither the environment nor site-packages can change what the shim does.
    argv = [sys.executable, "-I", "-S", str(_SHIM), str(folder)]
    with (folder / "shim.log").open("ab") as log:
        return subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env={})


def status(folder: Path) -> PodState:
    # In this order: a lock that is free after the beginning was read stays free, and then the end is final.
    began = _read(folder / "began")
    stopping, locked = stop_requested(folder), _locked(folder / "lock")
    if began is None and stopping and not locked:  # a later lock holder finds the note and does not start the pod
        began = _read(folder / "began")
    return state_of(began, _read(folder / "end"), locked=locked, stopping=stopping)


def state_of(
    began: Mapping[str, object] | None, ended: Mapping[str, object] | None, *, locked: bool, stopping: bool
) -> PodState:
    """Return the state that the files of a pod describe, wherever it ran.

    The order of reading: `began`, then whether a stop was requested and the lock is held, then `ended`.
    """
    if began is None:
        never = stopping and not locked
        return PodState(Phase.ENDED, code=143, signalled=True) if never else PodState(Phase.ABSENT)
    known = PodState(
        Phase.RUNNING,
        pid=_int(began["pid"]),
        shim=_int(began["shim"]),
        began=_float(began["at"]),
        awake=_float(began.get("awake", 0.0)),
    )
    if ended is None:
        return known if locked else replace(known, phase=Phase.LOST, awake=0.0, code=137)
    return replace(
        known,
        phase=Phase.ENDED,
        awake=0.0,
        ended=_float(ended["at"]),
        order=_float(ended["order"]),
        code=_int(ended["code"]),
        signalled=bool(ended["told"]),
        told_at=_int(ended.get("told_at", 0)),
        error=str(ended["error"]),
        out_of_memory=bool(ended["out_of_memory"]),
        disk_full=bool(ended["disk_full"]),
    )


def stop(folder: Path, grace: float) -> None:
    """Tell a pod to stop; it is killed after the grace period, even if the caller has ended by then.

    A pod that has not begun never begins.
    """
    if status(folder).phase in (Phase.ENDED, Phase.LOST):
        return
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    try:
        _write(folder / "stop", {"grace": grace})
    except OSError:
        # On a full disk, stop without a note and so without grace.
        if not (folder / "began").exists():
            raise
    began = _read(folder / "began")  # read after the note was written: either we find the shim, or it finds the note
    if began is not None and _locked(folder / "lock"):
        with suppress(ProcessLookupError):
            os.kill(_int(began["shim"]), signal.SIGTERM)


def can_mount(folder: Path, *, user: tuple[int, int] | None = None) -> bool:
    """Return whether pods can have their own file system here, and a user. `folder` is empty and stays empty."""
    argv = [sys.executable, "-I", "-S", str(_MOUNTS), str(folder), *map(str, user or ())]
    return sys.platform == "linux" and subprocess.run(argv, capture_output=True, check=False).returncode == 0


def can_guard() -> bool:
    """Return whether mounts of pods can behave like GCS FUSE here."""
    argv = [sys.executable, "-I", "-S", str(_FILTER)]
    return sys.platform == "linux" and subprocess.run(argv, capture_output=True, check=False).returncode == 0


def joining(folder: Path, pid: int, command: Sequence[str]) -> list[str]:
    """Return the command that runs another one beside the process `pid` of a pod.

    It has the same files, the same user and at most the same privileges.
    """
    confined = (_read(folder / "pod.json") or {}).get("confined")
    return [sys.executable, "-I", "-S", str(_JOIN), str(pid), json.dumps(confined), *command]


def members(folder: Path) -> list[int]:
    """Return the processes of a running pod, its first one first."""
    state = status(folder)
    if state.phase is not Phase.RUNNING:
        return []
    found, todo = [], [state.pid]
    while todo:
        pid = todo.pop()
        found.append(pid)
        with suppress(OSError):
            todo += map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split())
    return found


def lose(folder: Path) -> None:
    """Kill a pod together with its shim, so that its end is not recorded, as if the machine had lost power."""
    began = _read(folder / "began")
    if began is not None and _read(folder / "end") is None and _locked(folder / "lock"):
        with suppress(ProcessLookupError):
            os.kill(_int(began["shim"]), signal.SIGKILL)
        kill_strays(folder)


def stopped(pid: int) -> bool:
    """Return whether a process was stopped by a signal and can be continued."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] in ("T", "t")
    except OSError:
        return False


def stop_requested(folder: Path) -> bool:
    return (folder / "stop").exists()


def kill_strays(folder: Path) -> list[int]:
    """Kill processes of pods below `folder` that outlived their shim; return their ids."""
    killed: dict[int, None] = {}
    empty = 0
    for _ in range(100):  # one killed after its child may have started another
        found = strays(folder)
        for pid in found:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        killed |= dict.fromkeys(found)
        empty = 0 if found else empty + 1
        if empty == 2:  # a process has no readable environment during exec
            break
        SYSTEM.sleep(0.01)
    return list(killed)


def strays(folder: Path) -> list[int]:
    """Return the processes that carry the mark of a pod below `folder`, except this one."""
    return [pid for pid, pod in _marked() if pod == folder or pod.is_relative_to(folder)]


def living(folder: Path) -> dict[Path, list[int]]:
    """Return the pods below `folder` with running processes, and those that carry their mark.

    Reads all processes of this machine once, however many pods ever ran.
    """
    if not _PROC.is_dir():
        return {began.parent: [] for began in folder.rglob("began") if not began.with_name("end").exists()}
    pods: dict[Path, list[int]] = {}
    for pid, pod in _marked():
        if pod.is_relative_to(folder):
            pods.setdefault(pod, []).append(pid)
    for pod in _shimmed():  # before a pod's first process and after its last
        if pod.is_relative_to(folder):
            pods.setdefault(pod, [])
    return pods


def _marked() -> Iterator[tuple[int, Path]]:
    """Yield processes of pods with the pod's folder, except this process."""
    mark = f"{MARK}=".encode()
    for pid, environ in _processes("environ"):
        for word in environ.split(b"\0") if mark in environ else ():
            if word.startswith(mark) and pid != os.getpid():
                yield pid, Path(os.fsdecode(word.removeprefix(mark)))


def _shimmed() -> Iterator[Path]:
    """Yield folders of pods whose shim runs."""
    for _, command in _processes("cmdline"):
        words = command.rstrip(b"\0").split(b"\0")
        if len(words) > 2 and words[-2].endswith(_SHIM_OF_ANY_VERSION):
            yield Path(os.fsdecode(words[-1]))


def _processes(file: str) -> Iterator[tuple[int, bytes]]:
    for entry in _PROC.glob(f"[0-9]*/{file}"):
        with suppress(OSError):  # gone, or another user's
            yield int(entry.parent.name), entry.read_bytes()


def log_files(folder: Path) -> list[Path]:
    """Return the existing files of a pod's log, the oldest first."""
    return sorted((file for file in folder.glob("log*") if _LOG.fullmatch(file.name)), key=log_number)


def log_number(file: Path) -> int:
    """Return the number of earlier files of the same log."""
    return int(file.name.removeprefix("log").removeprefix(".") or 0)


def tail(folder: Path, lines: int = 400, size: int = 131_072, until: int | None = None) -> Sequence[str]:
    """Return the last lines that a pod printed, by default or up to `until` bytes of its log.

    They suffice for an exception and all that JAX and the program's own threads print after it. If the log has several
    files, they come from the newest.
    """
    try:
        with next(reversed(log_files(folder)), folder / "log").open("rb") as log:
            end = log.seek(0, os.SEEK_END)
            end = end if until is None else min(end, until)
            start = log.seek(max(0, end - size))
            return log.read(end - start).decode(errors="replace").splitlines()[-lines:]
    except OSError:
        return []


def _locked(path: Path) -> bool:
    try:
        handle = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(handle)
    return False


def _read(path: Path) -> dict[str, object] | None:
    """Read a JSON file; None while it is missing or blank."""
    try:
        text = path.read_text(encoding="utf-8").strip("\0 \n")
    except FileNotFoundError:
        return None
    value: dict[str, object] | None = json.loads(text) if text else None
    return value


def _write(path: Path, value: Mapping[str, object]) -> None:
    new = path.with_name(f"{path.name}.{os.getpid()}")
    new.write_text(json.dumps(value), encoding="utf-8")
    new.replace(path)


def _int(value: object) -> int:
    assert isinstance(value, int)
    return value


def _float(value: object) -> float:
    assert isinstance(value, (int, float))
    return float(value)
