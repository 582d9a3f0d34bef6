"""Pure functions for names that users choose and for the names of TPUs.

Commands take a user, a TPU, numbers and KEY=VALUE side by side, so a name that could be one of the others is refused.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass

from tpukit.core.errors import Invalid, Problem

WORDS = frozenset(
    (
        *("true", "false", "none", "null", "yes", "no", "all", "me", "user"),
        *("username", "tag", "config", "rule", "dir", "tpu", "place", "window", "windows"),
        *("command", "s", "w", "d", "t", "v", "ssn", "re", "q"),
        "apply",
    )
)
"""Words that have another meaning on the command line, and so are not allowed as names."""
_NAME = re.compile(r"[a-z](?:[a-z0-9_]|-(?=[a-z0-9_])){0,31}")
_TPU = re.compile(r"(?:[a-z][a-z0-9]*-)*(?:v\d+[a-z]*|tpu7x)(?:-[a-z0-9]+)+")
_NODE = re.compile(r"[a-z](?:[-a-z0-9]{0,61}[a-z0-9])?")
_PARTS = re.compile(r"(?:(?P<prefix>.+?)-)?(?P<type>(?:v\d+[a-z]*|tpu7x)-\d+)(?:-(?P<rest>[a-z0-9-]+))?")
_SPOT = re.compile(r"p[a-z]*\d+|(?:.*-)?(?:preemptible|spot)(?:-.*)?")


@dataclass(frozen=True, slots=True)
class TpuName:
    """Parts of a TPU's name: `kmh-tpuvm-v2-32-preemptible-1` is a spot v2-32 with the short name v2-32-p1."""

    type: str
    spot: bool
    short: str  # without the group's prefix


def is_tpu(word: str) -> bool:
    """Return True if a word looks like the name of a TPU, and therefore like nothing else."""
    return _TPU.fullmatch(word) is not None


def is_node(word: str) -> bool:
    """Return True if the Cloud TPU API accepts a word as the name of a TPU VM."""
    return _NODE.fullmatch(word) is not None


def parse_tpu(name: str) -> TpuName | None:
    """Parse the name of a TPU VM. Return None if it does not follow the naming scheme."""
    parts = _PARTS.fullmatch(name)
    if parts is None:
        return None
    rest = parts["rest"] or ""
    short = re.sub(r"^(?:preemptible|spot)-", "p", rest)
    return TpuName(parts["type"], _SPOT.fullmatch(rest) is not None, "-".join(filter(None, (parts["type"], short))))


def check_user(name: str, reserved: Collection[str]) -> str:
    """Return a valid user name, or raise Invalid. `reserved`: the words that commands begin with."""
    return _check("user", name, reserved)


def check_alias(name: str, reserved: Collection[str], *, tpu: bool = False) -> str:
    """Return a valid alias of a setting or a TPU, or raise Invalid. Aliases of TPUs may look like TPU names."""
    return name if tpu and is_tpu(name) else _check("alias", name, reserved)


def _check(what: str, name: str, reserved: Collection[str]) -> str:
    if not _NAME.fullmatch(name):
        hint = "use up to 32 small letters, digits, - and _, with a letter first"
        raise Invalid(Problem(what, f"{name!r} is not allowed", hint))
    if name in reserved or name in WORDS:
        raise Invalid(Problem(what, f"{name} is a word of the command line", "use another name"))
    if is_tpu(name):
        raise Invalid(Problem(what, f"{name} looks like the name of a TPU", "use another name"))
    return name
