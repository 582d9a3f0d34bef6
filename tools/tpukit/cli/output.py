"""Output after its reader has left (`tpu job list | head -1`) and to files, and messages for unexpected errors."""

from __future__ import annotations

import errno
import os
import sys
from pathlib import Path
from typing import TextIO

from tpukit.core.errors import Invalid, Problem

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_TOO_MANY = (errno.EMFILE, errno.ENFILE)


def silence(stream: TextIO) -> None:
    """Discard the remaining output of a stream: Python's flush at exit would fail again."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, stream.fileno())
    except (OSError, ValueError):
        return
    finally:
        os.close(nowhere)


def flush() -> OSError | None:
    """Flush the output, and return an error worth reporting: a reader that has left is not."""
    failed = None
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError as error:
            silence(stream)
            failed = failed if isinstance(error, BrokenPipeError) else error
    return failed


def check_writable(option: str, path: Path) -> None:
    """Refuse a file that cannot be written before long work begins, not at its end."""
    folder = path.absolute().parent
    if path.is_dir() or not folder.is_dir() or not os.access(path if path.exists() else folder, os.W_OK):
        raise Invalid(Problem(option, f"{path} cannot be written", "name a file in a folder that you can write to"))


def sentence(error: OSError) -> str:
    """Return what the operating system refused, where, and what to do about it."""
    where = f": {error.filename}" if error.filename else ""
    said = f"{error.strerror or error}{where}"
    if error.errno in _FULL:
        return f"{said}\n  free some disk space; earlier records are intact"
    if error.errno in _TOO_MANY:
        return f"{said}\n  raise the limit (ulimit -n) or end other programs"
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return f"{said}\n  change its permissions, or let $TPUKIT_HOME name another folder for tpukit's files"
    return said
