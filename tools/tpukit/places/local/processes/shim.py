"""The parent of each pod's first process, run as a file with the standard library only.

It starts in milliseconds, and needs nothing of the user's environment.

It outlives the process that started it, so a job continues when `tpu` is killed. Other processes read its state from
the files in the pod's folder:

    pod.json   what to run                                         (written by the starter)
    lock       held while this process lives
    began      process ids and time, written once
    stop       {"grace": seconds}, read on SIGTERM                 (written by the stopper)
               if it exists before the pod has begun, the pod never begins; if pod.json has
               "machine_signals", a SIGTERM without it is not meant for this process
    end        how it ended; blank until then, so that a full disk cannot lose it
    log        standard output and error of the pod; with the time of each line, like a container runtime's,
               if pod.json has "stamped"
    log.1 ...  continuations of a stamped log, once the file before has reached "log_bytes" of pod.json
    root       an empty folder; the root in the pod's own view of the file system, if it has one

If pod.json has "restores", removed files are written again on SIGHUP, on SIGTERM and at the end: a program may remove
them, and without them nothing could stop it or read its exit code.

Started twice, it runs the pod once. When the pod's first process ends, everything it left behind is killed, except pods
that it started, if pod.json has "starts_pods". A pod above its memory limit is killed too. If pod.json has "init", the
pod gets SIGTERM like the first process of a container: see hears().
"""

from __future__ import annotations

import _thread
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
    from collections.abc import Callable
    from typing import Any

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
FILE_BYTES = 4096
ERROR_LETTERS = 400  # of a name that could not be started: fits FILE_BYTES however JSON escapes it
INHERITED = (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT, signal.SIGHUP, signal.SIGTERM, signal.SIGQUIT)
"""Signals that Python, nohup or a shell's & may have ignored: a pod gets them in the state a kubelet leaves."""
LINE_BYTES = 16384  # longer lines are split
MEMORY_LOOKS = 0.1  # seconds between two memory checks of a pod with a limit
LINUX = sys.platform == "linux"
SIGTIMEDWAIT = {"x86_64": "128", "aarch64": "137"}  # the system call number


def main(folder: str) -> int:
    os.chdir(folder)
    ready, tell = os.pipe()
    if os.fork():  # the starter waits for this one: when it returns, the pod is locked and has begun
        os.close(tell)
        return 0 if os.read(ready, 1) else 1
    os.setsid()
    lock = os.open("lock", os.O_RDWR | os.O_CREAT, 0o600)
    if not locked(lock):
        os.write(tell, b"+")
        return 0
    if os.path.exists("began") or os.path.exists("stop"):
        os.close(lock)
        os.write(tell, b"+")
    else:
        run(folder, lock, tell)
    return 0


def locked(lock: int) -> bool:
    """Acquire the lock; return False if another shim has it.

    Observers, and other shims during this check, hold a shared lock for a moment; another shim's exclusive lock stays.
    """
    while True:
        with suppress(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        fcntl.flock(lock, fcntl.LOCK_UN)
        time.sleep(0.001 + os.getpid() % 16 / 4000)  # so that shims that started together get out of step


def run(folder: str, lock: int, tell: int) -> None:
    with open("pod.json", encoding="utf-8") as file:
        pod = json.load(file)
    watched = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD}
    signal.pthread_sigmask(signal.SIG_BLOCK, watched)
    if LINUX:
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    began, end = blank("began.new"), blank("end")
    kills = oom_kills()
    output = os.pipe() if pod["stamped"] else None
    gate, opener = os.pipe()
    child, failed, asking = spawn(pod, output, gate, opener)
    os.close(gate)
    if number := os.read(asking, 16):  # the listener runs before the program
        import call_filter  # type: ignore[import-not-found]  # beside this file
        import guard  # type: ignore[import-not-found]

        asked = call_filter.listener(child, int(number))
        _thread.start_new_thread(guard.answer, (asked, pod["buckets"], pod["denied"]))
    os.close(asking)
    copied = _thread.allocate_lock()
    if output:
        os.close(output[1])
        copied.acquire()
        _thread.start_new_thread(stamp, (output[0], copied, int(pod.get("log_bytes") or 0)))
    beginning = {"shim": os.getpid(), "pid": child, "at": time.time(), "awake": time.monotonic()}
    fill(began, beginning)
    os.replace("began.new", "began")
    restore = restorer(folder, pod, beginning, lock, end) if pod.get("restores") else lambda: None
    # Start it only now: a pod that ran unrecorded would run again after this process was killed.
    with suppress(BrokenPipeError):
        os.write(opener, b"+")
    os.close(opener)
    error = os.read(failed, 4000).decode()
    os.close(failed)
    os.write(tell, b"+")
    os.close(tell)
    if os.path.exists("stop"):  # written too late to keep the pod from beginning, and too early to signal this process
        os.kill(os.getpid(), signal.SIGTERM)
    code, told, greedy, (at, order) = wait(child, watched, pod, restore) if not error else (128, None, False, clocks())
    sweep(spare_pods=pod["starts_pods"])
    copied.acquire(timeout=5.0)
    restore()
    own_log()
    record = {
        "at": at,
        "order": order,
        "code": code,
        "told": told is not None,
        "told_at": told or 0,
        "error": error,
        "out_of_memory": greedy or (code == 137 and told is None and oom_kills() > kills),
        "disk_full": disk_full((".", pod["cwd"], *pod["disks"])),
    }
    fill(end, record)


def restorer(folder: str, pod: dict[str, Any], beginning: dict[str, Any], lock: int, end: int) -> Callable[[], None]:
    """Return a function that restores removed files of this folder, the lock first and `began` last.

    The numbers of open files stay, so that a later write to `end` goes to the new file.
    """
    log = -1
    with suppress(OSError):
        log = os.open("log", os.O_RDONLY | os.O_CREAT, 0o600)

    def restore() -> None:
        with suppress(OSError):
            if os.path.samestat(os.stat(os.path.join(folder, "lock")), os.fstat(lock)):
                return
        with suppress(OSError):  # on a full disk, the next request retries
            os.makedirs(folder, mode=0o700, exist_ok=True)
            os.chdir(folder)
            new = os.open("lock", os.O_RDWR | os.O_CREAT, 0o600)
            fcntl.flock(new, fcntl.LOCK_EX)
            move(new, lock)
            move(blank("end"), end)
            with open("pod.json", "w", encoding="utf-8") as file:
                json.dump(pod, file)
            with suppress(FileNotFoundError):
                os.unlink("log")
            os.symlink(f"/proc/{os.getpid()}/fd/{log}", "log")  # the program prints into the removed file
            began = blank("began.new")
            fill(began, beginning)
            os.close(began)
            os.replace("began.new", "began")

    return restore


def move(file: int, number: int) -> None:
    """Move an open file to another descriptor number."""
    os.dup2(file, number, inheritable=False)
    os.close(file)


def own_log() -> None:
    """Replace a log link to a removed file by a copy, because that file goes with this process."""
    with suppress(OSError):
        if os.path.islink("log"):
            with open("log", "rb") as old, open("log.new", "wb") as new:
                while piece := old.read(1 << 20):
                    new.write(piece)
            os.replace("log.new", "log")


def spawn(pod: dict[str, Any], output: tuple[int, int] | None, gate: int, opener: int) -> tuple[int, int, int]:
    """Start the pod's first process, which waits at the gate.

    Return its process id, a pipe that reports why it could not start, and one that reports the number of its filter's
    listener, if it has buckets. Without `output` it prints to the log.
    """
    parent = os.getpid()
    confined = pod.get("confined") or {}
    own_view = bool(pod["mounts"] or confined.get("user") or confined.get("read_only_root"))
    if own_view or confined:
        sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    if own_view:
        os.makedirs("root", exist_ok=True)
    failed, fail = os.pipe()
    asking, ask = os.pipe()
    child = os.fork()
    if not child:
        what = "log"
        try:
            os.setsid()
            log = output[1] if output else open_log("log")
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            os.dup2(log, 1)
            os.dup2(log, 2)
            what = ""  # the error has the file name
            enter(pod, own_view, ask)
            if LINUX:  # the pod may not outlive its shim; entering a namespace resets this
                ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
                if os.getppid() != parent:
                    os._exit(137)
            for number in INHERITED:
                signal.signal(number, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_SETMASK, set())
            what = pod["cwd"]
            os.chdir(what)
            what = pod["argv"][0]
            os.close(opener)
            if not os.read(gate, 1):  # the shim is gone
                os._exit(125)
            os.execvpe(what, pod["argv"], pod["env"])
        except OSError as problem:
            os.write(
                fail, f"{(what or str(problem.filename))[:ERROR_LETTERS]}: {os.strerror(problem.errno or 0)}".encode()
            )
        finally:
            os._exit(128)
    os.close(fail)
    os.close(ask)
    return child, failed, asking


def enter(pod: dict[str, Any], own_view: bool, ask: int) -> None:
    """Apply the pod's view of the file system and its restrictions to this process."""
    confined = pod.get("confined") or {}
    if LINUX and confined:
        import confine  # type: ignore[import-not-found]  # beside this file

        confine.limit_locked_memory(confined["capabilities"])
    if own_view:
        import mounts  # type: ignore[import-not-found]  # beside this file

        user = tuple(confined.get("user") or ()) or None
        read_only = bool(confined.get("read_only_root"))
        mounts.enter(
            os.path.abspath("root"),
            pod["mounts"],
            absent=pod["absent"],
            user=user,
            read_only=read_only,
            shared_memory=int(pod.get("shared_memory") or 0),
            folders=[pod["cwd"]],
            empty=pod.get("empty", ()),
        )
        if pod.get("hostname"):
            mounts.separate_name(pod["hostname"])
    if pod.get("buckets"):  # before it drops the privileges for it
        import call_filter

        os.write(ask, str(call_filter.install(denied=bool(pod["denied"]))).encode())
    os.close(ask)
    if LINUX and confined:
        confine.confine(confined["capabilities"], no_new_privileges=confined["no_new_privileges"])


def stamp(output: int, copied: _thread.LockType, most: int) -> None:
    """Copy lines to the log, each with its time: `2026-01-31T12:00:00.123456789Z stdout F text`.

    After `most` bytes (0: no limit) the log continues in another file. Files keep their names, so that readers can
    continue.
    """
    log, number, size = open_log("log"), 0, 0
    rest = b""
    while True:
        read = os.read(output, 1 << 16)
        *lines, rest = (rest + read).split(b"\n")
        second, nano = divmod(time.time_ns(), 10**9)
        at = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second)).encode() + b".%09dZ stdout " % nano
        parts = []
        for line in lines:
            *long, last = [line[i : i + LINE_BYTES] for i in range(0, len(line), LINE_BYTES)] or [b""]
            parts += [at + b"P " + part + b"\n" for part in long] + [at + b"F " + last + b"\n"]
        while len(rest) >= LINE_BYTES or (rest and not read):
            parts.append(at + b"P " + rest[:LINE_BYTES] + b"\n")
            rest = rest[LINE_BYTES:]
        with suppress(OSError):  # a full disk loses lines; without a reader, the pod would hang
            if most and parts and size >= most:
                newer = open_log(f"log.{number + 1}")
                os.close(log)
                log, number, size = newer, number + 1, 0
            size += os.write(log, b"".join(parts))
        if not read:
            break
    copied.release()


def open_log(name: str) -> int:
    return os.open(name, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)


def wait(
    child: int, watched: set[signal.Signals], pod: dict[str, Any], restore: Callable[[], None]
) -> tuple[int, int | None, bool, tuple[float, float]]:
    """Wait for the end of the pod's first process.

    Return its exit code, the size of its log when it was asked to stop (None: it was not), whether it exceeded its
    memory limit, and when it ended.

    Like a kubelet, signal only the first process, and kill the whole group after the grace period. "machine_signals": a
    SIGTERM without a note comes from a machine that shuts down. It goes to every process, so it is not passed on.
    """
    theirs = bool(pod.get("machine_signals"))
    deadline = told = None
    takes_too_much = memory_watch(child, pod)
    greedy = False
    while True:
        left = 3600.0 if deadline is None else max(0.0, deadline - time.monotonic())
        if takes_too_much and not greedy:
            left = min(left, MEMORY_LOOKS)
            greedy = takes_too_much()
            if greedy:
                kill_group(child)
        caught = next_signal(watched, left, restore)
        if caught is None and deadline is not None and time.monotonic() >= deadline:
            kill_group(child)
            deadline = time.monotonic() + 1.0
        elif caught is not None and caught.si_signo == signal.SIGTERM and theirs and not os.path.exists("stop"):
            pass
        elif caught is not None and caught.si_signo == signal.SIGTERM:
            told = log_size() if told is None else told
            grace = read_grace()
            if grace <= 0:
                kill_group(child)
            elif deadline is None and (not pod.get("init") or hears(child)):
                os.kill(child, signal.SIGTERM)  # once: a program may treat a second one as urgent
            due = time.monotonic() + grace
            deadline = due if deadline is None else min(deadline, due)
        while True:
            try:
                pid, status, ended = reap()
            except ChildProcessError:
                return 137, told, greedy, clocks()
            if not pid:
                break
            if pid == child:
                code = os.waitstatus_to_exitcode(status)
                return (code if code >= 0 else 128 - code), told, greedy, ended


def next_signal(watched: set[signal.Signals], seconds: float, restore: Callable[[], None]) -> Any:
    """Wait for a signal; None: none came. Restore files before a signal that a note in them explains."""
    caught = signal.sigtimedwait(watched, seconds) if LINUX else poll(watched, seconds)
    if caught is not None and caught.si_signo in (signal.SIGHUP, signal.SIGTERM):
        restore()
    return caught


def reap() -> tuple[int, int, tuple[float, float]]:
    """Return a child that ended (0: none), its status and when.

    The clocks are read before the child is reaped, so that a failure caused by its end has a later time.
    """
    if not LINUX:  # waitid may be missing
        return (*os.waitpid(-1, os.WNOHANG), clocks())
    found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    ended = clocks()
    return (*os.waitpid(found.si_pid, 0), ended) if found else (0, 0, ended)


def clocks() -> tuple[float, float]:
    """Return the wall-clock time, and a monotonic time to order events on this machine."""
    return time.time(), time.monotonic()


def memory_watch(child: int, pod: dict[str, Any]) -> Callable[[], bool] | None:
    """Return a function that checks the pod's memory limit; None without a limit."""
    limit = pod["memory"]
    if not LINUX or not 0 < limit < os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"):
        return None
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    import memory_taken  # type: ignore[import-not-found]  # beside this file

    stored = list(pod.get("memory_folders", ()))
    if pod.get("shared_memory"):
        stored.append(os.path.join("/proc", str(child), "root", "dev", "shm"))  # the pod's own
    return lambda: bool(memory_taken.taken(descendants(), stored, limit) > limit)


def hears(pid: int) -> bool:
    """Return whether a SIGTERM reaches the first process of a container now.

    The kernel drops it there unless it is caught, blocked or waited for, so that such a program runs until it is
    killed: https://man7.org/linux/man-pages/man7/pid_namespaces.7.html.
    """
    if not LINUX:
        return True
    try:
        with open(f"/proc/{pid}/status", encoding="utf-8", errors="replace") as file:
            masks = [int(line.split()[1], 16) for line in file if line.startswith(("SigBlk:", "SigCgt:"))]
        if any(mask >> (signal.SIGTERM - 1) & 1 for mask in masks):
            return True
        with open(f"/proc/{pid}/syscall", encoding="ascii") as file:  # waiting for a signal does not show as blocked
            return file.read().split()[0] == SIGTIMEDWAIT.get(os.uname().machine)
    except OSError:
        return False  # it is gone


class _Caught:
    def __init__(self, si_signo: int) -> None:
        self.si_signo = si_signo


def poll(watched: set[signal.Signals], seconds: float) -> _Caught | None:
    """Emulate sigtimedwait on systems that only have sigpending and sigwait."""
    due = time.monotonic() + seconds
    while time.monotonic() < due:
        if signal.sigpending() & watched:
            return _Caught(signal.sigwait(watched))
        time.sleep(0.05)
    return None


def sweep(*, spare_pods: bool) -> None:
    """Kill everything the pod left running. Orphans become children of this process, which is their subreaper."""
    for _ in range(200):
        left = descendants(spare_pods=spare_pods)
        for pid in left:
            kill(pid)
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        if spare_pods and not left:
            return
        time.sleep(0.01)


def descendants(*, spare_pods: bool = False) -> list[int]:
    found, todo = [], [os.getpid()]
    while todo and LINUX:
        pid = todo.pop()
        try:
            with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
                children = [int(word) for word in file.read().split()]
        except OSError:
            continue
        if spare_pods:
            children = [child for child in children if not is_shim(child)]
        found += children
        todo += children
    return found


def is_shim(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return os.fsencode(__file__) in file.read().split(b"\0")
    except OSError:
        return False


def kill(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def kill_group(leader: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, signal.SIGKILL)
    kill(leader)


def log_size() -> int:
    try:
        return os.stat("log").st_size
    except OSError:
        return 0


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


def blank(name: str) -> int:
    """Create a file that reserves space for later content, since the disk may be full by then."""
    file = os.open(name, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
    os.write(file, b" " * FILE_BYTES)
    return file


def fill(file: int, value: dict[str, Any]) -> None:
    os.pwrite(file, json.dumps(value).encode(), 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
