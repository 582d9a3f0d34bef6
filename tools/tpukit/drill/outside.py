"""Find the folders outside a job's workdir that its hosts write to: checkpoints there do not survive the machine."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from tpukit.drill import parts, processes
from tpukit.drill.sites import Host
from tpukit.places import checkpoint_folder

_SYSTEM = ("/dev/", "/proc/", "/sys/", "/run/", "/memfd:")
_CACHES = ("/__pycache__/", "/.cache/")


class Outside:
    """Collect folders from the hosts of a run, from the files that are open for writing at each look."""

    def __init__(self, inside: Sequence[Path]) -> None:
        self._inside = tuple(f"{path}{os.sep}" for one in inside for path in {one, one.resolve()})
        self._folders: dict[str, None] = {}

    @property
    def folders(self) -> tuple[str, ...]:
        return tuple(self._folders)

    def look(self, hosts: Iterable[Host]) -> None:
        for host in hosts:
            own = {str(log.parent) for log in host.logs}  # the logs themselves, and progress reports
            paths = [path for pid in processes.family(host.pids) for path in _written(pid)]
            for path in paths:
                folder = _of_checkpoints(Path(path).parent)
                left_out = path.startswith((*self._inside, *_SYSTEM)) or any(word in path for word in _CACHES)
                if folder not in own and not left_out:
                    self._folders[folder] = None


def _of_checkpoints(folder: Path) -> str:
    """Return the folder of all checkpoints, given the folder of one."""
    bare = parts.SUFFIX.sub("", folder.name)
    return str(folder if checkpoint_folder.step(bare, folder.parent.name) is None else folder.parent)


def _written(pid: int) -> list[str]:
    """Return the regular files that a process has open for writing."""
    found = []
    with suppress(OSError):
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(OSError, ValueError, StopIteration):
                path = str(entry.readlink())
                if path.startswith("/") and not path.endswith(" (deleted)") and _for_writing(pid, entry.name):
                    found.append(path)
    return found


def _for_writing(pid: int, number: str) -> bool:
    lines = Path(f"/proc/{pid}/fdinfo/{number}").read_text(encoding="ascii").splitlines()
    flags = next(int(line.split()[1], 8) for line in lines if line.startswith("flags:"))
    return flags & os.O_ACCMODE != os.O_RDONLY
