"""Shares and buckets that are mounted on a host for a job."""

from __future__ import annotations

import os
import shutil
import subprocess

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

SECONDS = 60


def mount(one: dict[str, Any]) -> tuple[str, str] | None:
    """Mount a share or bucket, unless it is mounted already.

    On failure return a kind, `mount` if retrying helps and `request` if not, and a sentence.
    """
    source, target = one["source"], one["path"]
    try:
        if not _run(["mountpoint", "-q", target]).returncode:
            return None
        if one["kind"] != "nfs" and shutil.which("gcsfuse") is None:
            return "request", "this host has no gcsfuse, which mounts buckets: install it in the setting `setup`"
        for argv in _commands(one):
            ran = _run(argv)
            if ran.returncode:
                last = ran.stdout.decode("utf-8", "replace").strip().splitlines()[-1:] or ["no message"]
                return "mount", f"{source} could not be mounted at {target}: {last[0]}"
    except subprocess.TimeoutExpired as error:
        return "mount", f"{' '.join(error.cmd)} did not end within {SECONDS} s"
    return None


def _commands(one: dict[str, Any]) -> list[list[str]]:
    source, target = one["source"], one["path"]
    folder = ["sudo", "-n", "mkdir", "-p", target]
    if one["kind"] == "nfs":
        return [folder, ["sudo", "-n", "mount", "-t", "nfs", "-o", "nolock,soft", source, target]]
    # https://cloud.google.com/storage/docs/cloud-storage-fuse/cli-options
    # Without a higher limit, gcsfuse cannot rename folders with content, which is how checkpoints are committed.
    options = ["--implicit-dirs", *(["-o", "ro"] if one["read_only"] else ["--rename-dir-limit", "200000"])]
    owner = f"{os.getuid()}:{os.getgid()}"
    return [folder, ["sudo", "-n", "chown", owner, target], ["gcsfuse", *options, source, target]]


def _run(argv: list[str]) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        argv, check=False, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=SECONDS
    )
