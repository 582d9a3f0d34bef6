"""Attempts on a host that is reached by SSH: started once, found again, told to leave, their logs read by position.

It is sent to a bare machine as a file, with the shim and a few modules beside it, and run there for one request at a
time with whatever Python 3 the machine has: standard library only. A request is a line of JSON on stdin, with bytes
behind it where it brings code; the answer is a line of JSON on stdout. Nothing runs between requests but the shims (see
shim.py) and the watch over an attempt's driver (see host_unattended.py), so it can be killed at any moment, run forty
times at once, or be replaced by another version.

Files, below the folder that holds this program's own:

    lock                   held while an attempt is being started: one attempt at a time has the chips of a host
    code/DIGEST/           code as it was staged, named by its content
    retired                the attempt that is about to have this machine deleted, and until when no other job begins
    setup/KEY              the command of that key has prepared this machine
    jobs/JOB/latest        the highest attempt of a job that was started or stopped: earlier ones never begin
    jobs/JOB/code/         the job's own copy of its code
    jobs/JOB/attempt-N/    what the shim writes of an attempt, and `owner`: the store that started it
"""

from __future__ import annotations

import base64
import fcntl
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from contextlib import contextmanager, suppress

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any, BinaryIO

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))  # of programs/HASH/supervisor.py
MARK = "TPUKIT_POD"
PIECE = 256 << 10
"""Bytes of a log in one answer."""
PROGRESS_MOST = 64 << 10
SAVED_SECONDS = 2.0
"""Between two readings of the names in a workdir."""
SETUP_SECONDS = 1800
RETIRED_MOST = 600.0
"""Seconds for which a machine may be reserved to be deleted."""
PASSED_BY_SSH = re.compile(r"SSH_|OLDPWD$|PWD$|SHLVL$|_$")
NAME = re.compile(r"[a-z0-9][-a-z0-9]{0,62}")


class Refused(Exception):
    """The request cannot be done; `kind` says to a program why."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


def main() -> int:
    request = json.loads(sys.stdin.buffer.readline())
    sys.stdout.write(json.dumps(answer(request, sys.stdin.buffer)) + "\n")
    return 0


def answer(request: dict[str, Any], content: BinaryIO) -> dict[str, Any]:
    try:
        return REQUESTS[request["do"]](request, content)
    except Refused as refused:
        return {"refused": refused.kind, "message": str(refused)}
    except OSError as error:
        return {"refused": "machine", "message": str(error)}


def prepare(request: dict[str, Any], _: BinaryIO) -> dict[str, Any]:
    """Whether an attempt could be started now: what is missing, and who is in the way."""
    digest = request.get("code") or ""
    with locked():
        return {
            "code": not digest or os.path.isdir(path("code", digest)),
            "held": held(request["job"], request["attempt"]),
            "boot": boot(),
        }


def code(request: dict[str, Any], content: BinaryIO) -> dict[str, Any]:
    """Store staged code, which follows as a tar. Twice is once."""
    target = path("code", request["code"])
    if not os.path.isdir(target):
        os.makedirs(path("code"), exist_ok=True)
        new = tempfile.mkdtemp(prefix=".new-", dir=path("code"))
        try:
            with tarfile.open(fileobj=content, mode="r|*") as archive:
                # tpukit packed it itself. Python 3.12 warns without a filter, and the oldest ones know none.
                options = {"filter": "tar"} if hasattr(tarfile, "tar_filter") else {}
                archive.extractall(new, **options)  # type: ignore[arg-type]  # noqa: S202
            move(new, target)
        finally:
            shutil.rmtree(new, ignore_errors=True)
    return {}


def start(request: dict[str, Any], _: BinaryIO) -> dict[str, Any]:
    """Start an attempt, unless it was started before; what is known of it then."""
    job, number = request["job"], int(request["attempt"])
    with locked():
        fence(job, number)
        if in_the_way := held(job, number):
            raise Refused("held", f"job {in_the_way['job']} holds this host")
        kill_strays()
        folder = attempt_folder(job, number)
        cwd = own_code(job, request.get("code") or "")
        os.makedirs(folder, mode=0o700, exist_ok=True)
        write(os.path.join(folder, "owner"), {"store": request["store"]})
        if not os.path.exists(os.path.join(folder, "pod.json")):
            write(os.path.join(folder, "pod.json"), pod(request, folder, cwd))
        run_shim(folder)
        if request.get("uploader"):
            with suppress(Refused, OSError):  # the job goes on without it
                beside("host_uploader").start(folder, request["uploader"], MARK, run_shim)
        if request.get("unattended"):
            with suppress(OSError):  # on a full disk the job runs without the limit
                beside("host_unattended").begin(folder, {**request["unattended"], "job": job, "attempt": number}, MARK)
        return facts(job, number, None)


def status(request: dict[str, Any], _: BinaryIO) -> dict[str, Any]:
    """Describe the attempts that are asked for, and list all that run. Asking is what keeps an attempt attended."""
    for one in request["attempts"]:
        attend(attempt_folder(one["job"], one["attempt"]))
    return {
        "boot": boot(),
        "attempts": [facts(one["job"], one["attempt"], one.get("log")) for one in request["attempts"]],
        "running": running(),
    }


def attend(folder: str) -> None:
    """Note that a driver asks for an attempt. A watch that a reboot ended is started again."""
    own = os.path.join(folder, "unattended")
    with suppress(OSError):
        os.utime(os.path.join(own, "asked"))
        if not os.path.exists(os.path.join(own, "done")) and not is_locked(os.path.join(own, "lock")):
            beside("host_unattended").ensure(folder, MARK)


def stop(request: dict[str, Any], _: BinaryIO) -> dict[str, Any]:
    """Tell an attempt to leave; its shim kills it when the grace is over. One that has not begun never will."""
    job, number = request["job"], int(request["attempt"])
    folder = attempt_folder(job, number)
    with locked():
        with suppress(Refused):
            fence(job, number)
        try:
            os.makedirs(folder, mode=0o700, exist_ok=True)
            write(os.path.join(folder, "stop"), {"grace": request["grace"]})
        except OSError:
            # On a full disk there is no note and so no grace, which is better than a program that nobody can stop.
            kill(read(os.path.join(folder, "began")), folder)
            raise
    # Read after the note was written: we find the shim, or it finds the note.
    began = read(os.path.join(folder, "began"))
    if began is not None and is_locked(os.path.join(folder, "lock")):
        with suppress(ProcessLookupError):
            os.kill(began["shim"], signal.SIGTERM)
    return facts(job, number, None)


def kill(began: dict[str, Any] | None, folder: str) -> None:
    if began is not None and is_locked(os.path.join(folder, "lock")):
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(began["pid"], signal.SIGKILL)


def lose(request: dict[str, Any], _: BinaryIO) -> dict[str, Any]:
    """Kill an attempt with its shim, so that nothing says how it ended: as if the host had lost power."""
    folder = attempt_folder(request["job"], request["attempt"])
    began = read(os.path.join(folder, "began"))
    if began is not None and is_locked(os.path.join(folder, "lock")):
        with suppress(ProcessLookupError):
            os.kill(began["shim"], signal.SIGKILL)
    return {}


def secret(_: dict[str, Any], content: BinaryIO) -> dict[str, Any]:
    """Lay what follows, a line of netrc, where programs of this host find it."""
    if problem := beside("host_netrc").lay(ROOT, content.read(65536).decode()):
        raise Refused("machine", problem)
    return {}


def retire(request: dict[str, Any], _: BinaryIO) -> dict[str, Any]:
    """Refuse attempts of other jobs from now on, for so many seconds: the machine is about to be deleted."""
    with locked():
        runs = running()
        if all(one["job"] == request["job"] for one in runs) and retired(request["job"]) is None:
            until = time.time() + min(float(request["seconds"]), RETIRED_MOST)
            write(path("retired"), {"job": request["job"], "attempt": request["attempt"], "until": until})
    return {"running": runs, "held": held(request["job"], request["attempt"])}


def retired(job: str) -> dict[str, Any] | None:
    """Return the attempt of another job that is about to have this machine deleted."""
    note = read(path("retired"))
    if note is None or note["job"] == job or not 0 <= note["until"] - time.time() <= RETIRED_MOST:
        return None
    return {"job": note["job"], "attempt": note["attempt"], "store": ""}


def setup(request: dict[str, Any], _: BinaryIO) -> dict[str, Any]:
    """Prepare the machine with a command, unless the same one did so before with the same files."""
    key, cwd = request["key"], path("code", request["code"]) if request.get("code") else os.path.expanduser("~")
    done = path("setup", key)
    os.makedirs(path("setup"), exist_ok=True)
    with locked("setup.lock"):
        if os.path.exists(done):
            return {"ran": False}
        ran = subprocess.run(
            request["argv"],
            check=False,
            cwd=cwd,
            env=environment(request["env"]),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=SETUP_SECONDS,
        )
        if ran.returncode:
            last = ran.stdout[-2000:].decode("utf-8", "replace")
            raise Refused("setup", f"set-up ended with exit code {ran.returncode}: {last}")
        write(done, {"argv": request["argv"]})
    return {"ran": True}


def mount(request: dict[str, Any], _: BinaryIO) -> dict[str, Any]:
    """Mount shares and buckets, but for those that are there already: a machine that was made anew has none."""
    with locked("mount.lock"):
        for one in request["mounts"]:
            if refusal := beside("host_mounts").mount(one):
                raise Refused(*refusal)
    return {}


REQUESTS = {
    "retire": retire,
    "mount": mount,
    "secret": secret,
    "prepare": prepare,
    "code": code,
    "setup": setup,
    "start": start,
    "status": status,
    "stop": stop,
    "lose": lose,
}


def path(*names: str) -> str:
    return os.path.join(ROOT, *names)


def attempt_folder(job: str, number: int) -> str:
    if not NAME.fullmatch(job):
        raise Refused("request", f"{job!r} is not the id of a job")
    return path("jobs", job, f"attempt-{int(number)}")


def fence(job: str, number: int) -> None:
    """From now on no earlier attempt of the job begins on this host."""
    file = path("jobs", job, "latest")
    os.makedirs(os.path.dirname(file), mode=0o700, exist_ok=True)
    latest = read(file) or {"attempt": -1}
    if latest["attempt"] > number:
        raise Refused("superseded", f"attempt {latest['attempt']} of {job} was here already")
    write(file, {"attempt": number})


def held(job: str, number: int) -> dict[str, Any] | None:
    """Return the attempt that has this host, or is about to have it deleted, other than the one that asks."""
    for one in running():
        if (one["job"], one["attempt"]) != (job, number):
            return one
    return retired(job)


def running() -> list[dict[str, Any]]:
    found = []
    for job in listed(path("jobs")):
        for name in listed(path("jobs", job)):
            folder = path("jobs", job, name)
            if name.startswith("attempt-") and is_locked(os.path.join(folder, "lock")):
                if read(os.path.join(folder, "end")) is not None:
                    continue  # a shim writes the end last, and is about to leave
                owner = read(os.path.join(folder, "owner")) or {"store": ""}
                found.append({"job": job, "attempt": int(name[len("attempt-") :]), "store": owner["store"]})
    return found


def listed(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []


def facts(job: str, number: int, log: int | None) -> dict[str, Any]:
    """What the files of an attempt say, read in this order: a lock that is free after the beginning was read stays so.

    `log`: from which position on its log is wanted; None: not at all.
    """
    folder = attempt_folder(job, number)
    began = read(os.path.join(folder, "began"))
    stopped = os.path.exists(os.path.join(folder, "stop"))
    alive = is_locked(os.path.join(folder, "lock"))
    end = read(os.path.join(folder, "end"))
    if began is None and stopped and not alive:  # whoever locks it from now on finds the note
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
    """The newest checkpoint in the workdir, for a program that does not say what it saved; -1: none can be seen."""
    file = os.path.join(folder, "saved")
    known = read(file) or {"at": 0.0, "step": -1, "final": False}
    now = time.time()
    if known["final"] or (not final and abs(now - known["at"]) < SAVED_SECONDS):
        return int(known["step"])
    workdir = (read(os.path.join(folder, "pod.json")) or {"env": {}})["env"].get("TPUKIT_WORKDIR", "")
    if not workdir or "://" in workdir:
        return -1
    import pathlib

    step: int = max(int(known["step"]), beside("checkpoint_folder").newest(pathlib.Path(workdir), since - 1.0))
    with suppress(OSError):  # on a full disk it is read again next time
        write(file, {"at": now, "step": step, "final": final})
    return step


def beside(name: str) -> Any:
    """A module beside this file, for the few requests that need it. Python was told to look in no folder for them."""
    import importlib.util

    spec = importlib.util.spec_from_file_location(name, os.path.join(HERE, f"{name}.py"))
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
    """Bytes of a log from a position on."""
    try:
        with open(file, "rb") as log:
            size = log.seek(0, os.SEEK_END)
            at = log.seek(min(position, size))
            return {"at": at, "bytes": base64.b64encode(log.read(most)).decode(), "size": size}
    except OSError:
        return {"at": 0, "bytes": "", "size": 0}


def own_code(job: str, digest: str) -> str:
    """The job's copy of its code, which it may write into."""
    target = path("jobs", job, "code")
    if os.path.isdir(target):
        return target
    if not digest:
        os.makedirs(target, exist_ok=True)
        return target
    source = path("code", digest)
    if not os.path.isdir(source):
        raise Refused("code", f"code {digest[:12]} is not on this host")
    new = tempfile.mkdtemp(prefix=".code-", dir=os.path.dirname(target))
    try:
        shutil.copytree(source, os.path.join(new, "code"), symlinks=True)
        move(os.path.join(new, "code"), target)
    finally:
        shutil.rmtree(new, ignore_errors=True)
    return target


def move(new: str, target: str) -> None:
    try:
        os.rename(new, target)
    except OSError:
        if not os.path.isdir(target):  # another request was faster with the same content
            raise


def pod(request: dict[str, Any], folder: str, cwd: str) -> dict[str, Any]:
    """As the shim reads it. A path of the environment may begin with ~: only the host knows its home."""
    workdir = os.path.expanduser(request["workdir"])
    local = "://" not in workdir
    if local:
        os.makedirs(workdir, exist_ok=True)
    netrc = beside("host_netrc").file(ROOT)
    found = {"NETRC": netrc} if os.path.exists(netrc) else {}
    own = {**found, MARK: folder, "TPUKIT_WORKDIR": workdir, "TPUKIT_PROGRESS": os.path.join(folder, "progress")}
    return {
        "argv": request["argv"],
        "env": {**environment(request["env"]), **own},
        "cwd": cwd,
        "disks": [workdir] if local else [],
        "memory": 0,
        "mounts": [],
        "stamped": False,
        "starts_pods": False,
        "machine_signals": True,
    }


def environment(given: dict[str, str]) -> dict[str, str]:
    """What a login on this host finds, with what the job brings over it."""
    own = {name: value for name, value in os.environ.items() if not PASSED_BY_SSH.match(name)}
    return {**own, "PYTHONUNBUFFERED": "1", **given}


def run_shim(folder: str) -> None:
    shim = [sys.executable, "-I", "-S", os.path.join(HERE, "shim.py"), folder]
    with open(os.path.join(folder, "shim.log"), "ab") as log:
        done = subprocess.run(shim, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env={}, check=False)
    if done.returncode:
        with open(os.path.join(folder, "shim.log"), encoding="utf-8", errors="replace") as log_text:
            last = log_text.read().strip().splitlines()[-1:] or ["no message"]
        raise Refused("machine", f"it could not be started: {last[0]}")


def kill_strays() -> None:
    """Processes of attempts whose shim is gone: they may still hold the chips."""
    mark = f"{MARK}={path('jobs')}{os.sep}".encode()
    for name in listed("/proc"):
        if not name.isdigit() or int(name) == os.getpid():
            continue
        with suppress(OSError):
            with open(f"/proc/{name}/environ", "rb") as file:
                words = [word for word in file.read().split(b"\0") if word.startswith(mark)]
            folder = os.fsdecode(words[0]).partition("=")[2] if words else ""
            # A process with another view of the disks may mean another folder of that name.
            ours = folder and os.path.samefile(f"/proc/{name}/root{folder}", folder)
            if ours and not is_locked(os.path.join(folder, "lock")):
                os.kill(int(name), signal.SIGKILL)


@contextmanager
def locked(name: str = "lock") -> Iterator[None]:
    os.makedirs(ROOT, mode=0o700, exist_ok=True)
    handle = os.open(path(name), os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def is_locked(file: str) -> bool:
    try:
        handle = os.open(file, os.O_RDONLY)
    except OSError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(handle)
    return False


def frozen(pid: int) -> bool:
    """Whether a process was stopped by a signal and waits to be continued."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
            return file.read().rpartition(")")[2].split()[0] in ("T", "t")
    except OSError:
        return False


def boot() -> str:
    """Another one after every start of the machine."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return ""


def read(file: str) -> dict[str, Any] | None:
    """A JSON file; None while it is missing or blank."""
    try:
        with open(file, encoding="utf-8") as content:
            text = content.read().strip("\0 \n")
    except FileNotFoundError:
        return None
    value: dict[str, Any] | None = json.loads(text) if text else None
    return value


def write(file: str, value: dict[str, Any]) -> None:
    new = f"{file}.{os.getpid()}"
    with open(new, "w", encoding="utf-8") as content:
        json.dump(value, content)
        content.flush()
        os.fsync(content.fileno())
    os.replace(new, file)


if __name__ == "__main__":
    sys.exit(main())
