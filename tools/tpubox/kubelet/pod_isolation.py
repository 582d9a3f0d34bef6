"""The private parts of a container on a shared machine: temporary files, shared memory, host name.

Files in /tmp or /dev/shm are gone after a restart. A program that leaves something there for its next attempt or for
another pod finds nothing, as on a cluster. The rest of the machine is the image: changes to it persist, and other pods
see them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tpukit.places.local.processes import Mount

Object = Mapping[str, Any]
SHARED_MEMORY = "/dev/shm"  # noqa: S108 (the container's)
SHARED_MEMORY_BYTES = 64 << 20
"""Size from https://github.com/containerd/containerd/blob/main/internal/cri/server/podsandbox/sandbox_run_linux.go.

There all containers of a pod share it; here each has its own.
"""
_TEMPORARY = ("/tmp", "/var/tmp")  # noqa: S108 (the container's)
_LONGEST_NAME = 63


def temporary(inside: Iterable[Mount]) -> list[str]:
    """Return the folders for temporary files that are not volumes."""
    volumes = {mount.target.rstrip("/") for mount in inside}
    return [path for path in _TEMPORARY if path not in volumes]


def made(run: Path, paths: Iterable[str]) -> list[Mount]:
    """Create these folders for one run of a container."""
    found = []
    for path in paths:
        own = run / path.strip("/").replace("/", "-")
        own.mkdir(parents=True, exist_ok=True)
        own.chmod(0o1777)
        found.append(Mount(own, path))
    return found


def shared_memory(pod: Object, inside: Iterable[Mount]) -> int:
    """Return the size of private shared memory; 0 if it is a volume or the node's."""
    volume = any(mount.target.rstrip("/") == SHARED_MEMORY for mount in inside)
    return 0 if volume or pod["spec"].get("hostIPC") else SHARED_MEMORY_BYTES


def host_name(pod: Object) -> str:
    """Return the host name as a kubelet shortens it, or "" if the pod uses the node's."""
    if pod["spec"].get("hostNetwork"):
        return ""
    return str(pod["spec"].get("hostname") or pod["metadata"]["name"])[:_LONGEST_NAME].rstrip("-.")
