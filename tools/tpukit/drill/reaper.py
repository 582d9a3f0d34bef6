"""Stop everything of a drill as soon as the drill exits, for any reason.

Hosts outlive the process that started them, which is right for jobs and wrong for a drill. The drill holds a lock on a
file of its folder. This process waits for the lock in its own session, stops the hosts below the folder, and deletes
what the cluster note lists. The kernel releases the lock when the drill dies.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from pathlib import Path

from tpukit.core.clock import SYSTEM
from tpukit.places.local import processes as pods

LOCK = "drill.lock"
CLUSTER_NOTE = "cluster.json"
"""Note of the drill's objects in a cluster, if any."""
QUIET_SECONDS = 0.5
"""Seconds without any host after which all are gone: a host that is starting takes a moment to appear."""


NEW_SECONDS = 10.0


class Guard:
    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._lock = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        argv = [sys.executable, "-m", "tpukit.drill.reaper", str(folder)]
        self._process = subprocess.Popen(argv, start_new_session=True, **quiet)  # type: ignore[call-overload]

    def close(self) -> None:
        """Release the lock, and wait until nothing of the drill runs."""
        os.close(self._lock)
        self._process.wait()


def is_used(folder: Path) -> bool:
    """Return whether a drill holds the folder, or has just created it and is about to lock it."""
    try:
        lock = os.open(folder / LOCK, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return True
    try:
        if SYSTEM.now() - os.fstat(lock).st_mtime < NEW_SECONDS:
            return True
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(lock)
    return False


def main(folder: Path) -> None:
    lock = os.open(folder / LOCK, os.O_RDWR | os.O_CLOEXEC)
    fcntl.flock(lock, fcntl.LOCK_EX)
    quiet_since = SYSTEM.monotonic()
    while SYSTEM.monotonic() - quiet_since < QUIET_SECONDS:
        for pod in pods.living(folder):
            pods.stop(pod, 0)
            pods.kill_strays(pod)
            quiet_since = SYSTEM.monotonic()
        SYSTEM.sleep(0.05)
    if (folder / CLUSTER_NOTE).exists():
        from tpukit.drill import gke_site

        gke_site.clean(folder)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
