"""Names and values in sentences, as users write them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence

from tpukit.jobs.spec.located_yaml import scalar


def dotted(path: Sequence[str | int]) -> str:
    """Return a path as users write it: max.runtime, command[2]."""
    return brief("".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path).removeprefix("."))


def brief(text: str) -> str:
    """Return a user's name for something, kept short and on one line."""
    safe = text if text.isprintable() else repr(text)
    return safe if len(safe) <= 80 else safe[:80] + "…"


def either(choices: Sequence[str]) -> str:
    return f"{', '.join(choices[:-1])} or {choices[-1]}" if len(choices) > 1 else choices[0]


def flow(value: object) -> str:
    """Return a value as written on one line of YAML."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {flow(item)}" for key, item in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(flow, value)) + "]"
    if (
        isinstance(value, str)
        and isinstance(scalar(value), str)
        and re.fullmatch(r"[-\w./=:@]*[\w/=]", value, re.ASCII)
    ):
        return value
    return json.dumps(value, ensure_ascii=isinstance(value, str) and not value.isprintable())


def assigned(path: Sequence[str | int], value: str) -> str:
    """Return `key: value`, or the value alone for an item of a list."""
    return f"{brief(path[-1])}: {value}" if path and isinstance(path[-1], str) else value
