"""Check users' patterns for output lines: a pattern must yield a step and finish in bounded time.

Python's `re` cannot be interrupted, and a pattern such as `(a+)+b` practically never finishes on a line of thirty
letters. So a repeat of a repeat is refused, and other patterns are measured on lines made to be slow.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable
from typing import Any

from tpukit.jobs.spec.forms import refuse

EXAMPLE = r"'it=(?P<step>\d+) L=(?P<loss>\S+)'"
GROUPS = ("step", "loss", "saved", "total")
LINE = 400
"""Number of characters of a line that are matched."""
_SECONDS = 0.2
"""Processor seconds allowed for the slowest line."""
_LONG = 8
"""Repeats of fewer than this are treated as if written out."""
_PIECES = ("0", " ", "a", "_", "=", ":", "0 ", "a ", "a=0 ", "step 0 ", "step=0 loss=0 ")


def check(pattern: str) -> str:
    """Return the pattern, or refuse it if it cannot read progress."""
    try:
        compiled = re.compile(pattern)
        tree = re._parser.parse(pattern)  # type: ignore[attr-defined]  # the form that re itself compiles from
    except (re.error, RecursionError, OverflowError) as error:
        refuse(f"this is not a valid pattern: {error}", f"write a Python regular expression: {EXAMPLE}")
    names = set(compiled.groupindex)
    if unknown := sorted(names - set(GROUPS)):
        refuse(f"there is no group {unknown[0]!r}", f"name groups step, loss, saved or total: {EXAMPLE}")
    if not names & {"step", "saved"}:
        refuse("the pattern has no group for a step", f"name one step or saved: {EXAMPLE}")
    if compiled.search("") is not None:
        refuse("the pattern matches every line", f"write the text before the numbers: {EXAMPLE}")
    if _nested(tree, inside=False):
        refuse(
            "the pattern repeats a repeat or a choice, which can take unlimited time",
            r"write one repeat, such as \S+ or [^,]* in place of (\S+ )* or (a|b)*",
        )
    if _slow(compiled):
        refuse("the pattern takes too long on some lines", r"use \S+ or [^,]* in place of .* where you can")
    return pattern


def _nested(tree: Iterable[Any], *, inside: bool) -> bool:
    """Report whether a choice or a part of unknown length is repeated often."""
    for name, value in tree:
        kind = str(name)
        if kind.endswith("_REPEAT"):
            least, most, body = value
            often = int(most) - int(least) > _LONG or int(most) > 10 * _LONG
            if (inside and int(most) != int(least)) or _nested(body, inside=inside or often):
                return True
        elif kind == "BRANCH":
            if inside or any(_nested(one, inside=inside) for one in value[1]):
                return True
        elif kind in ("SUBPATTERN", "ATOMIC_GROUP", "ASSERT", "ASSERT_NOT", "GROUPREF_EXISTS"):
            parts = value[1:] if kind == "GROUPREF_EXISTS" else [value if kind == "ATOMIC_GROUP" else value[-1]]
            if any(_nested(part, inside=inside) for part in parts if part is not None):
                return True
    return False


def _slow(compiled: re.Pattern[str]) -> bool:
    """Measure the pattern in processor time of this thread, on slowly growing lines, so that no match takes long."""
    for piece in _PIECES:
        length = 8
        while length < LINE:
            length = min(LINE, length + length // 4)
            start = time.thread_time()
            compiled.search((piece * length)[: length - 1] + "\x00")
            if time.thread_time() - start > _SECONDS * min(1.0, 8 * length / LINE):
                return True
    return False
