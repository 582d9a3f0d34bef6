"""Ends everything of a drill as soon as the drill is gone, however it went.

Hosts outlive whoever started them, which is right for jobs and wrong for a drill. The drill holds a lock on a file of
its folder; this process waits for the lock, in a session of its own, and then ends the hosts below the folder and
removes what is noted of a cluster. Nobody can die without letting a lock go.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import time
from pathlib import Path

from tpukit.places.local import processes as pods

LOCK = "drill.lock"
CLUSTER_NOTE = "cluster.json"
"""What the drill has in a cluster, where it has anything."""
QUIET_SECONDS = 0.5
"""For how long nothing may be seen before all of it is gone: a host that was being started takes a moment to show."""


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
        """Returns when nothing of the drill runs any more."""
        os.close(self._lock)
        self._process.wait()


def is_used(folder: Path) -> bool:
    """Whether a drill holds the folder, or has just made it and is about to."""
    try:
        lock = os.open(folder / LOCK, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return True
    try:
        if time.time() - os.fstat(lock).st_mtime < NEW_SECONDS:
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
    quiet_since = time.monotonic()
    while time.monotonic() - quiet_since < QUIET_SECONDS:
        for pod in pods.living(folder):
            pods.stop(pod, 0)
            pods.kill_strays(pod)
            quiet_since = time.monotonic()
        time.sleep(0.05)
    if (folder / CLUSTER_NOTE).exists():
        from tpukit.drill import gke_site

        gke_site.clean(folder)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
