"""Starting an attempt: its own copy of the code, its environment, its shim."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys

from .host_files import HERE, ROOT, Refused, path
from .host_processes import MARK, SHIM

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, BinaryIO

PASSED_BY_SSH = re.compile(r"SSH_|OLDPWD$|PWD$|SHLVL$|_$")


def code(request: dict[str, Any], content: BinaryIO) -> dict[str, Any]:
    """Store staged code, which follows as a tar. Idempotent."""
    import tarfile
    import tempfile

    target = path("code", request["code"])
    if not os.path.isdir(target):
        os.makedirs(path("code"), exist_ok=True)
        new = tempfile.mkdtemp(prefix=".new-", dir=path("code"))
        try:
            with tarfile.open(fileobj=content, mode="r|*") as archive:
                # tpukit packed it itself. Python 3.12 warns without a filter, and the oldest versions have none.
                options = {"filter": "tar"} if hasattr(tarfile, "tar_filter") else {}
                archive.extractall(new, **options)  # type: ignore[arg-type]  # noqa: S202
            move(new, target)
        finally:
            shutil.rmtree(new, ignore_errors=True)
    return {}


def own_code(job: str, digest: str) -> str:
    """Return the job's writable copy of its code; make it if it is missing."""
    import tempfile

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
    """Return the pod as the shim reads it. A path may begin with ~: only the host knows its home."""
    workdir = os.path.expanduser(request["workdir"])
    local = "://" not in workdir
    if local:
        os.makedirs(workdir, exist_ok=True)
    from . import host_netrc as netrc

    keys = netrc.file(ROOT)
    found = {"NETRC": keys} if os.path.exists(keys) else {}
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
        "restores": True,
    }


def environment(given: dict[str, str]) -> dict[str, str]:
    """Return the environment of a login on this host, overridden by that of the job."""
    own = {name: value for name, value in os.environ.items() if not PASSED_BY_SSH.match(name)}
    return {**own, "PYTHONUNBUFFERED": "1", **given}


def run_shim(folder: str) -> None:
    shim = [sys.executable, "-I", "-S", os.path.join(HERE, SHIM), folder]
    with open(os.path.join(folder, "shim.log"), "ab") as log:
        done = subprocess.run(shim, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env={}, check=False)
    if done.returncode:
        with open(os.path.join(folder, "shim.log"), encoding="utf-8", errors="replace") as log_text:
            last = log_text.read().strip().splitlines()[-1:] or ["no message"]
        raise Refused("machine", f"the program could not be started: {last[0]}")
