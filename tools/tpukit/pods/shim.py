"""The process above each pod's process. It is run as a file, with the standard library alone, so that it starts in
milliseconds and needs nothing of the user's environment.

It outlives whoever started it, so a job goes on when `tpu` is killed; whoever looks next finds out what happened from
the files it keeps in the pod's folder:

    pod.json   what to run                                         (written by the starter)
    lock       held while this process lives
    began      process ids and time, written once
    stop       {"grace": seconds}, read on SIGTERM                 (written by the stopper)
    end        how it ended; blank until then, so that a full disk cannot lose it
    log        standard output and error of the pod

Started twice, it runs the pod once. When the pod's first process ends, everything it left behind is killed.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import json
import os
import signal
import sys
import time
from contextlib import suppress

TYPE_CHECKING = False
if TYPE_CHECKING:  # typing is slow to import
    from typing import Any

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
END_BYTES = 4096
LINUX = sys.platform == "linux"


def main(folder: str) -> int:
    os.chdir(folder)
    ready, tell = os.pipe()
    if os.fork():  # the starter waits for this one: when it returns, the pod is known to be locked and begun
        os.close(tell)
        return 0 if os.read(ready, 1) else 1
    os.setsid()
    lock = os.open("lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.write(tell, b"+")
        return 0
    if not os.path.exists("began"):
        run(tell)
    else:
        os.write(tell, b"+")
    return 0


def run(tell: int) -> None:
    with open("pod.json", encoding="utf-8") as file:
        pod = json.load(file)
    watched = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD}
    signal.pthread_sigmask(signal.SIG_BLOCK, watched)
    if LINUX:
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    end = os.open("end", os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
    os.write(end, b" " * END_BYTES)
    kills = oom_kills()
    child, error = spawn(pod)
    write("began", {"shim": os.getpid(), "pid": child, "at": time.time()})
    os.write(tell, b"+")
    os.close(tell)
    code, told = (wait(child, watched) if child else (128, False)) if not error else (128, False)
    sweep()
    record = {
        "at": time.time(),
        "order": time.monotonic(),
        "code": code,
        "told": told,
        "error": error,
        "out_of_memory": code == 137 and not told and oom_kills() > kills,
        "disk_full": disk_full((".", pod["cwd"], *pod["disks"])),
    }
    os.pwrite(end, json.dumps(record).encode()[:END_BYTES], 0)


def spawn(pod: dict[str, Any]) -> tuple[int, str]:
    """Process id of the pod's first process, and what kept it from starting."""
    parent = os.getpid()
    failed, fail = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.setsid()
            if LINUX:  # the pod may not outlive its shim
                ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
                if os.getppid() != parent:
                    os._exit(137)
            signal.pthread_sigmask(signal.SIG_SETMASK, set())
            log = os.open("log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            os.dup2(log, 1)
            os.dup2(log, 2)
            os.chdir(pod["cwd"])
            os.execvpe(pod["argv"][0], pod["argv"], pod["env"])
        except OSError as problem:
            os.write(fail, f"{pod['argv'][0]}: {os.strerror(problem.errno or 0)}".encode())
        finally:
            os._exit(128)
    os.close(fail)
    error = os.read(failed, 4000).decode()
    os.close(failed)
    return child, error


def wait(child: int, watched: set[signal.Signals]) -> tuple[int, bool]:
    """Exit code of the pod's first process, and whether it was told to leave.

    Like a kubelet, tells the first process alone and kills the whole group when the grace is over.
    """
    deadline = None
    while True:
        left = 3600.0 if deadline is None else max(0.0, deadline - time.monotonic())
        caught = signal.sigtimedwait(watched, left) if LINUX else poll(watched, left)
        if caught is None and deadline is not None and time.monotonic() >= deadline:
            kill_group(child)
            deadline = time.monotonic() + 1.0
        elif caught is not None and caught.si_signo == signal.SIGTERM:
            grace = read_grace()
            if grace <= 0:
                kill_group(child)
            else:
                os.kill(child, signal.SIGTERM)
            due = time.monotonic() + grace
            deadline = due if deadline is None else min(deadline, due)
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return 137, deadline is not None
            if not pid:
                break
            if pid == child:
                code = os.waitstatus_to_exitcode(status)
                return (code if code >= 0 else 128 - code), deadline is not None


class _Caught:
    def __init__(self, si_signo: int) -> None:
        self.si_signo = si_signo


def poll(watched: set[signal.Signals], seconds: float) -> _Caught | None:
    """sigtimedwait for systems that have only sigpending and sigwait."""
    due = time.monotonic() + seconds
    while time.monotonic() < due:
        if signal.sigpending() & watched:
            return _Caught(signal.sigwait(watched))
        time.sleep(0.05)
    return None


def sweep() -> None:
    """Kill whatever the pod left running: orphans come to this process, which is their subreaper."""
    for _ in range(200):
        for pid in descendants():
            kill(pid)
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        time.sleep(0.01)


def descendants() -> list[int]:
    found, todo = [], [os.getpid()]
    while todo and LINUX:
        pid = todo.pop()
        try:
            with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
                children = [int(word) for word in file.read().split()]
        except OSError:
            continue
        found += children
        todo += children
    return found


def kill(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def kill_group(leader: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, signal.SIGKILL)
    kill(leader)


def read_grace() -> float:
    try:
        with open("stop", encoding="utf-8") as file:
            return float(json.load(file)["grace"])
    except (OSError, ValueError, KeyError):
        return 0.0


def oom_kills() -> int:
    try:
        with open("/proc/vmstat", encoding="ascii") as file:
            return sum(int(line.split()[1]) for line in file if line.startswith("oom_kill "))
    except OSError:
        return 0


def disk_full(places: tuple[str, ...]) -> bool:
    for place in places:
        try:
            disk = os.statvfs(place)
        except OSError as problem:
            if problem.errno == errno.ENOSPC:
                return True
            continue
        if disk.f_bavail * disk.f_frsize < 1 << 20:
            return True
    return False


def write(name: str, value: dict[str, Any]) -> None:
    with open(f"{name}.new", "w", encoding="utf-8") as file:
        json.dump(value, file)
    os.replace(f"{name}.new", name)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
