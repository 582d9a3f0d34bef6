"""Runs one pod as a process group on this machine, and tells what became of it.

Nothing is kept in memory: a pod is a folder, so any process can look at it, stop it, or start it again (which does
nothing if it ran already). See shim.py for the files.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from pathlib import Path

from tpukit.core.errors import Transient

MARK = "TPUKIT_POD"
"""Environment variable that holds the pod's folder: how processes that slipped away are found again."""

_LOG = re.compile(r"log(\.\d+)?")
_PROC = Path("/proc")
_SHIM = Path(__file__).with_name("shim.py")
_MOUNTS = Path(__file__).with_name("mounts.py")
_FILTER = Path(__file__).with_name("call_filter.py")
_JOIN = Path(__file__).with_name("join.py")


@dataclass(frozen=True, slots=True)
class Mount:
    """A file or folder that a pod sees at another path. Linux only; ask can_mount() first."""

    source: Path
    target: str
    read_only: bool = False


@dataclass(frozen=True, slots=True)
class Confinement:
    """What a pod may not do although who starts it may. Linux only; the first two need can_mount()."""

    user: tuple[int, int] | None = None  # ids of user and group that it sees itself run as; files it makes stay ours
    read_only_root: bool = False  # nothing can be written but through its mounts
    no_new_privileges: bool = False  # a program that has more gives it no more
    capabilities: tuple[str, ...] | None = None  # that it keeps at most, by names of the kernel; None: all


@dataclass(frozen=True, slots=True)
class Pod:
    folder: Path
    argv: tuple[str, ...]
    env: Mapping[str, str]
    cwd: Path
    disks: tuple[Path, ...] = ()  # folders whose disk running full would explain a failure
    memory: int = 0  # bytes it may take; it is killed at more
    memory_folders: tuple[Path, ...] = ()  # what they hold is memory that it takes
    mounts: tuple[Mount, ...] = ()
    absent: tuple[str, ...] = ()  # files and folders that it does not see, where it has mounts
    empty: tuple[str, ...] = ()  # folders that hold nothing for it but its mounts, where it has some
    hostname: str = ""  # its own, where it has mounts; "": the machine's
    shared_memory: int = 0  # bytes of a /dev/shm of its own, where it has mounts; 0: the machine's
    stamped: bool = False  # the log holds the time of every line
    log_bytes: int = 0  # a stamped log that is so long goes on in another file; 0: it never does
    starts_pods: bool = False  # pods that it starts are none of its own processes: they outlive it
    init: bool = False  # its first process is told to leave as the first one of a container is: only where it listens
    confinement: Confinement | None = None
    # Targets of mounts that answer as GCS FUSE does, each with how much a folder may hold that is renamed. Ask
    # can_guard() first.
    buckets: Mapping[str, int] = field(default_factory=dict)
    denied: tuple[str, ...] = ()  # those of them that are read only because it is not allowed to write there


class Phase(StrEnum):
    ABSENT = "absent"  # never started
    RUNNING = "running"
    ENDED = "ended"
    LOST = "lost"  # killed together with the process that watched it


@dataclass(frozen=True, slots=True)
class PodState:
    phase: Phase
    pid: int = 0
    shim: int = 0
    began: float = 0.0
    awake: float = 0.0  # the same on a clock that stands still while the machine sleeps; 0: nobody knows
    ended: float = 0.0
    order: float = 0.0  # a clock shared by all pods of this machine, for who failed first
    code: int = 0
    signalled: bool = False  # it ended after being told to leave
    told_at: int = 0  # bytes of its log that it had printed by then
    error: str = ""  # what kept it from starting
    out_of_memory: bool = False
    disk_full: bool = False


def start(pods: Iterable[Pod]) -> None:
    """Start pods side by side. Returns when each has begun; starting one twice runs it once."""
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
    # Read in this order: a lock that is free after the beginning was read stays so, and then the end is final.
    began = _read(folder / "began")
    stopping, locked = stop_requested(folder), _locked(folder / "lock")
    if began is None and stopping and not locked:  # whoever locks it from now on finds the note and does not start it
        began = _read(folder / "began")
    return state_of(began, _read(folder / "end"), locked=locked, stopping=stopping)


def state_of(
    began: Mapping[str, object] | None, ended: Mapping[str, object] | None, *, locked: bool, stopping: bool
) -> PodState:
    """What the files of a pod say, wherever it ran: `began` was read first, then whether a stop was asked for and the
    lock is held, then `ended`."""
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
    """Tell a pod to leave; it is killed when the grace is over, whether or not the caller still lives by then.

    One that has not begun never will.
    """
    if status(folder).phase in (Phase.ENDED, Phase.LOST):
        return
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    try:
        _write(folder / "stop", {"grace": grace})
    except OSError:
        # On a full disk there is no note and so no grace, which is better than a pod that nobody can stop.
        if not (folder / "began").exists():
            raise
    began = _read(folder / "began")  # looked for after the note was written: we find the shim, or it finds the note
    if began is not None and _locked(folder / "lock"):
        with suppress(ProcessLookupError):
            os.kill(_int(began["shim"]), signal.SIGTERM)


def can_mount(folder: Path, *, user: tuple[int, int] | None = None) -> bool:
    """Whether pods can have a file system of their own here, and a user. `folder` is empty and stays so."""
    argv = [sys.executable, "-I", "-S", str(_MOUNTS), str(folder), *map(str, user or ())]
    return sys.platform == "linux" and subprocess.run(argv, capture_output=True, check=False).returncode == 0


def can_guard() -> bool:
    """Whether mounts of pods can answer as GCS FUSE does here."""
    argv = [sys.executable, "-I", "-S", str(_FILTER)]
    return sys.platform == "linux" and subprocess.run(argv, capture_output=True, check=False).returncode == 0


def joining(folder: Path, pid: int, command: Sequence[str]) -> list[str]:
    """The command that runs another one beside the process `pid` of a pod: with its files, its user and no more
    privileges than it has."""
    confined = (_read(folder / "pod.json") or {}).get("confined")
    return [sys.executable, "-I", "-S", str(_JOIN), str(pid), json.dumps(confined), *command]


def members(folder: Path) -> list[int]:
    """Processes of a running pod, its first one first."""
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
    """Kill a pod together with its shim, so that nothing is left to say how it ended: a machine that lost power."""
    began = _read(folder / "began")
    if began is not None and _read(folder / "end") is None and _locked(folder / "lock"):
        with suppress(ProcessLookupError):
            os.kill(_int(began["shim"]), signal.SIGKILL)
        kill_strays(folder)


def stopped(pid: int) -> bool:
    """Whether a process was stopped by a signal and waits to be continued."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] in ("T", "t")
    except OSError:
        return False


def stop_requested(folder: Path) -> bool:
    return (folder / "stop").exists()


def kill_strays(folder: Path) -> list[int]:
    """Kill processes of pods below `folder` that outlived their shim; ids of those found."""
    killed: dict[int, None] = {}
    empty = 0
    for _ in range(100):  # one that is killed later than its child may have started another by then
        found = strays(folder)
        for pid in found:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        killed |= dict.fromkeys(found)
        empty = 0 if found else empty + 1
        if empty == 2:  # a process has no environment to be seen while it becomes another program
            break
        time.sleep(0.01)
    return list(killed)


def strays(folder: Path) -> list[int]:
    """Processes that carry the mark of a pod below `folder`, this one left out."""
    return [pid for pid, pod in _marked() if pod == folder or pod.is_relative_to(folder)]


def living(folder: Path) -> dict[Path, list[int]]:
    """Pods below `folder` of which something runs, with the processes that carry their mark. All processes of this
    machine are read once, however many pods ever ran."""
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
    """Processes of pods, with the pod's folder, this process left out."""
    mark = f"{MARK}=".encode()
    for pid, environ in _processes("environ"):
        for word in environ.split(b"\0") if mark in environ else ():
            if word.startswith(mark) and pid != os.getpid():
                yield pid, Path(os.fsdecode(word.removeprefix(mark)))


def _shimmed() -> Iterator[Path]:
    """Folders of pods whose shim lives."""
    for _, command in _processes("cmdline"):
        words = command.rstrip(b"\0").split(b"\0")
        if len(words) > 2 and words[-2].endswith(b"/pods/shim.py"):
            yield Path(os.fsdecode(words[-1]))


def _processes(file: str) -> Iterator[tuple[int, bytes]]:
    for entry in _PROC.glob(f"[0-9]*/{file}"):
        with suppress(OSError):  # gone, or somebody else's
            yield int(entry.parent.name), entry.read_bytes()


def log_files(folder: Path) -> list[Path]:
    """The files of a pod's log that are there, the oldest first."""
    return sorted((file for file in folder.glob("log*") if _LOG.fullmatch(file.name)), key=log_number)


def log_number(file: Path) -> int:
    """How many files of the same log came before it."""
    return int(file.name.removeprefix("log").removeprefix(".") or 0)


def tail(folder: Path, lines: int = 400, size: int = 131_072, until: int | None = None) -> Sequence[str]:
    """The last lines a pod printed, or had printed `until` so many bytes: enough for an exception and all that JAX and
    the program's own threads say after it. Of a log of several files, those of the newest."""
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
    """A JSON file; None while it is missing or blank."""
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
