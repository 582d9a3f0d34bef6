"""Keys that programs on a host find through $NETRC: kept in memory until shutdown, and placed before the user's own."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path


def file(root: str) -> str:
    """Return the path of the key file, a separate one for each root folder."""
    name = hashlib.sha256(root.encode()).hexdigest()[:16]
    return f"/dev/shm/tpukit-{os.getuid()}-{name}/netrc"  # noqa: S108 (checked for its owner)


def lay(root: str, line: str) -> str:
    """Write the key file; return the problem, or an empty text on success."""
    target = Path(file(root))
    target.parent.mkdir(mode=0o700, exist_ok=True)
    if target.parent.lstat().st_uid != os.getuid():  # lstat, because a link to a folder of ours counts as its maker's
        return f"{target.parent} belongs to another user"
    try:
        rest = Path("~/.netrc").expanduser().read_text(encoding="utf-8")
    except OSError:
        rest = ""
    draft = target.with_name(f"netrc.{os.getpid()}")
    handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(handle, "w", encoding="utf-8") as content:
        content.write(line + rest)
    draft.replace(target)
    return ""
