"""Raw mode for this process's terminal, so that a remote command gets every key, Ctrl-C too."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def terminal(wanted: bool) -> Iterator[None]:
    if not wanted:
        yield
        return
    import termios
    import tty

    file = sys.stdin.fileno()
    before = termios.tcgetattr(file)
    try:
        tty.setraw(file)
        yield
    finally:
        termios.tcsetattr(file, termios.TCSADRAIN, before)
