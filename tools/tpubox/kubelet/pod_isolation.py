"""What a container has to itself although it runs on the machine of all others: temporary files, shared memory, a name.

What it writes to /tmp or /dev/shm is gone when it is started again, so that a program which leaves something there for
its next attempt, or for another pod, finds nothing here either. The rest of the machine is the image: what is written
to it stays, and is seen by other pods.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tpukit.places.local.processes import Mount

Object = Mapping[str, Any]
SHARED_MEMORY = "/dev/shm"  # noqa: S108 (the container's)
SHARED_MEMORY_BYTES = 64 << 20
"""https://github.com/containerd/containerd/blob/main/internal/cri/server/podsandbox/sandbox_run_linux.go. There all
containers of a pod share it; here each has its own."""
_TEMPORARY = ("/tmp", "/var/tmp")  # noqa: S108 (the container's)
_LONGEST_NAME = 63


def temporary(inside: Iterable[Mount]) -> list[str]:
    """Folders for temporary files that are no volumes."""
    volumes = {mount.target.rstrip("/") for mount in inside}
    return [path for path in _TEMPORARY if path not in volumes]


def made(run: Path, paths: Iterable[str]) -> list[Mount]:
    """These folders for one run of a container."""
    found = []
    for path in paths:
        own = run / path.strip("/").replace("/", "-")
        own.mkdir(parents=True, exist_ok=True)
        own.chmod(0o1777)
        found.append(Mount(own, path))
    return found


def shared_memory(pod: Object, inside: Iterable[Mount]) -> int:
    """Bytes; 0 where it has a volume, or the node's."""
    volume = any(mount.target.rstrip("/") == SHARED_MEMORY for mount in inside)
    return 0 if volume or pod["spec"].get("hostIPC") else SHARED_MEMORY_BYTES


def host_name(pod: Object) -> str:
    """As a kubelet cuts it; "" where it is the node's."""
    if pod["spec"].get("hostNetwork"):
        return ""
    return str(pod["spec"].get("hostname") or pod["metadata"]["name"])[:_LONGEST_NAME].rstrip("-.")
