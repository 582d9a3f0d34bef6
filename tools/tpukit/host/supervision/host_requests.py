"""Requests of drivers, each with its answer."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from contextlib import suppress

from .host_attempts import (
    RETIRED_MOST,
    attempt_folder,
    boot,
    facts,
    fence,
    held,
    is_alive,
    kill_strays,
    restore_files,
    retired,
    running,
)
from .host_files import ROOT, Refused, is_locked, locked, path, read, write
from .host_hardware import ASKED
from .host_processes import MARK
from .host_starting import code, environment, own_code, pod, run_shim

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, BinaryIO

SETUP_SECONDS = 1800


def note_driver() -> None:
    """Record that a driver asks, for the start-up script of the TPU VM."""
    with suppress(OSError):
        os.makedirs(ROOT, mode=0o700, exist_ok=True)
        with open(path(ASKED), "w", encoding="ascii"):
            os.utime(path(ASKED))


def answer(request: dict[str, Any], content: BinaryIO) -> dict[str, Any]:
    try:
        return REQUESTS[request["do"]](request, content)
    except Refused as refused:
        return {"refused": refused.kind, "message": str(refused)}
    except OSError as error:
        return {"refused": "machine", "message": str(error)}


def prepare(request: dict[str, Any], _: BinaryIO) -> dict[str, Any]:
    """Report whether an attempt can be started now: missing code, and the attempt that holds the host."""
    digest = request.get("code") or ""
    with locked():
        return {
            "code": not digest or os.path.isdir(path("code", digest)),
            "held": held(request["job"], request["attempt"]),
            "boot": boot(),
        }


def start(request: dict[str, Any], _: BinaryIO) -> dict[str, Any]:
    """Start an attempt, unless it was started before, and return its facts."""
    job, number = request["job"], int(request["attempt"])
    with locked():
        fence(job, number)
        if in_the_way := held(job, number):
            raise Refused("held", f"job {in_the_way['job']} holds this host")
        kill_strays()
        folder = attempt_folder(job, number)
        if is_alive(folder):  # its files may have been removed
            return facts(job, number, None)
        cwd = own_code(job, request.get("code") or "")
        os.makedirs(folder, mode=0o700, exist_ok=True)
        write(os.path.join(folder, "owner"), {"store": request["store"]})
        if not os.path.exists(os.path.join(folder, "pod.json")):
            write(os.path.join(folder, "pod.json"), pod(request, folder, cwd))
        if request.get("unattended"):
            from . import host_unattended as unattended

            with suppress(OSError):  # on a full disk the job runs without the limit
                unattended.begin(folder, {**request["unattended"], "job": job, "attempt": number}, MARK)
        run_shim(folder)
        if request.get("uploader"):
            from . import host_uploader as uploader

            with suppress(Refused, OSError):  # the job runs without it
                uploader.start(folder, request["uploader"], MARK, run_shim)
        return facts(job, number, None)


def status(request: dict[str, Any], _: BinaryIO) -> dict[str, Any]:
    """Describe the requested attempts, and list all running ones. This request keeps an attempt attended."""
    for one in request["attempts"]:
        attend(attempt_folder(one["job"], one["attempt"]))
    return {
        "boot": boot(),
        "attempts": [facts(one["job"], one["attempt"], one.get("log")) for one in request["attempts"]],
        "running": running({}),  # `facts` has had missing files rewritten
    }


def attend(folder: str) -> None:
    """Record that a driver asks for an attempt. Restart a watch that a reboot ended."""
    own = os.path.join(folder, "unattended")
    with suppress(OSError):
        os.utime(os.path.join(own, "asked"))
        if not os.path.exists(os.path.join(own, "done")) and not is_locked(os.path.join(own, "lock")):
            from . import host_unattended as unattended

            unattended.ensure(folder, MARK)


def stop(request: dict[str, Any], _: BinaryIO) -> dict[str, Any]:
    """Stop an attempt; its shim kills it after the grace period. An attempt that has not begun never will."""
    job, number = request["job"], int(request["attempt"])
    folder = attempt_folder(job, number)
    with locked():
        with suppress(Refused):
            fence(job, number)
        restore_files()
        try:
            os.makedirs(folder, mode=0o700, exist_ok=True)
            write(os.path.join(folder, "stop"), {"grace": request["grace"]})
        except OSError:
            # A full disk cannot hold the note, so there is no grace period; better than a program that cannot be
            # stopped.
            kill(read(os.path.join(folder, "began")), folder)
            raise
    # Read after the note was written: either this finds the shim, or the shim finds the note.
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
    """Kill an attempt with its shim, so that no end is recorded: as if the host had lost power."""
    folder = attempt_folder(request["job"], request["attempt"])
    began = read(os.path.join(folder, "began"))
    if began is not None and is_locked(os.path.join(folder, "lock")):
        with suppress(ProcessLookupError):
            os.kill(began["shim"], signal.SIGKILL)
    return {}


def secret(_: dict[str, Any], content: BinaryIO) -> dict[str, Any]:
    """Store the content, a line of netrc, where programs of this host find it."""
    from . import host_netrc as netrc

    if problem := netrc.lay(ROOT, content.read(65536).decode()):
        raise Refused("machine", problem)
    return {}


def retire(request: dict[str, Any], _: BinaryIO) -> dict[str, Any]:
    """Refuse attempts of other jobs for some seconds: the machine is about to be deleted."""
    with locked():
        runs = running(restore_files())
        if all(one["job"] == request["job"] for one in runs) and retired(request["job"]) is None:
            until = time.time() + min(float(request["seconds"]), RETIRED_MOST)
            write(path("retired"), {"job": request["job"], "attempt": request["attempt"], "until": until})
    return {"running": runs, "held": held(request["job"], request["attempt"])}


def setup(request: dict[str, Any], _: BinaryIO) -> dict[str, Any]:
    """Prepare the machine with a command, unless the same command with the same files already did."""
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
            raise Refused("setup", f"the setup command ended with exit code {ran.returncode}: {last}")
        write(done, {"argv": request["argv"]})
    return {"ran": True}


def claim(request: dict[str, Any], content: BinaryIO) -> dict[str, Any]:
    """Mark the workdir for a job, unless it holds another job's output."""
    from . import host_workdir as workdir

    return workdir.claim(request, content)


def mount(request: dict[str, Any], _: BinaryIO) -> dict[str, Any]:
    """Mount the shares and buckets that are not mounted yet: a recreated machine has none."""
    from . import host_mounts as mounts

    with locked("mount.lock"):
        for one in request["mounts"]:
            if refusal := mounts.mount(one):
                raise Refused(*refusal)
    return {}


REQUESTS = {
    "retire": retire,
    "mount": mount,
    "claim": claim,
    "secret": secret,
    "prepare": prepare,
    "code": code,
    "setup": setup,
    "start": start,
    "status": status,
    "stop": stop,
    "lose": lose,
}
