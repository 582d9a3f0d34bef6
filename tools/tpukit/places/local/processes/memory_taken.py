"""Memory use of processes and of files in memory, as the kernel charges it to a container.

Runs in the shim, with the standard library only. Linux only.
"""

from __future__ import annotations

import os
import stat

BLOCK = 512  # https://man7.org/linux/man-pages/man3/stat.3type.html


def taken(pids: list[int], folders: list[str], limit: int) -> int:
    """Return the memory use in bytes.

    Memory shared between processes and mapped files are deduplicated only near the limit, because that is slow.
    """
    stored, files = _stored(folders)
    quick = stored + sum(_figure(f"/proc/{pid}/status", "VmRSS:") for pid in pids)
    if quick <= limit:
        return quick
    if not files:
        return stored + sum(_figure(f"/proc/{pid}/smaps_rollup", "Pss:") for pid in pids)
    return stored + sum(_unmapped(f"/proc/{pid}/smaps", files) for pid in pids)


def _stored(folders: list[str]) -> tuple[int, set[int]]:
    """Return the bytes in all files of these folders, and their inode numbers."""
    size, files = 0, set[int]()
    todo = list(folders)
    while todo:
        try:
            with os.scandir(todo.pop()) as entries:
                for entry in entries:
                    found = entry.stat(follow_symlinks=False)
                    if stat.S_ISDIR(found.st_mode):
                        todo.append(entry.path)
                    elif found.st_ino not in files:  # count a file with two names once
                        files.add(found.st_ino)
                        size += found.st_blocks * BLOCK
        except OSError:  # removed meanwhile
            continue
    return size, files


def _unmapped(smaps: str, files: set[int]) -> int:
    """Return one process's share of all mapped memory except these files."""
    size, counts = 0, True
    try:
        with open(smaps, encoding="utf-8", errors="replace") as lines:
            for line in lines:
                first, *words = line.split()
                if not first.endswith(":"):  # ADDRESSES MODE OFFSET DEVICE FILE PATH
                    counts = int(words[3]) not in files
                elif counts and first == "Pss:":
                    size += int(words[0]) << 10
    except OSError:
        pass
    return size


def _figure(path: str, name: str) -> int:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return next((int(line.split()[1]) << 10 for line in file if line.startswith(name)), 0)
    except OSError:
        return 0
