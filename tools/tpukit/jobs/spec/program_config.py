"""The program's own settings under `config:`, and short names for the long ones.

A setting can be written as nested parts (`training: {learning_rate: 0.1}`), dotted (`training.learning_rate: 0.1`), as
the program's full flag (`config.training.learning_rate`) or as an alias (`lr`). All become the first.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from tpukit.core.errors import Problem
from tpukit.jobs.spec.forms import Form, Refusal, Violation, shown, sound
from tpukit.jobs.spec.located_yaml import DEEPEST, Node

ALIASES: Mapping[str, str] = {
    "lr": "config.training.learning_rate",
    "bs": "config.training.batch_size",
    "ep": "config.training.num_epochs",
    "wd": "config.training.weight_decay",
    "b1": "config.training.adam_b1",
    "b2": "config.training.adam_b2",
    "ckpt": "config.training.checkpoint_per_epoch",
}

KEY = Form(r"[A-Za-z_][-A-Za-z0-9_]*", "use letters, digits, - and _, with no digit first", 128)


def check(config: dict[str, Any]) -> dict[str, Any]:
    """Return a config that can become flags and JSON, or refuse it."""
    if found := _wrong(config, ()):
        raise Refusal(found)
    return config


def _wrong(value: object, path: tuple[str | int, ...]) -> list[Violation]:
    if len(path) > DEEPEST:
        return [(path, f"this is nested more than {DEEPEST} levels deep", "use fewer levels")]
    if isinstance(value, Mapping):
        keys = [((*path, key), "this cannot be the name of a setting", KEY.words) for key in value if not KEY.fits(key)]
        return keys + [found for key, item in value.items() for found in _wrong(item, (*path, key))]
    if isinstance(value, (list, tuple)):
        return [found for index, item in enumerate(value) for found in _wrong(item, (*path, index))]
    return [(path, what, hint) for what, hint in _wrong_leaf(value)]


def _wrong_leaf(value: object) -> Iterator[tuple[str, str]]:
    if isinstance(value, float) and not math.isfinite(value):
        yield f"{value} is not a finite number", "write a number, or leave it out"
    if isinstance(value, int) and abs(value) >= 1 << 63:
        yield f"{shown(value)} does not fit into 64 bits", "write a smaller number, or put it in quotes"
    if isinstance(value, str):
        try:
            sound(value)
        except Refusal as refused:
            yield from ((what, hint) for _, what, hint in refused.violations)


def steps(name: str, aliases: Mapping[str, str]) -> list[str]:
    """Return the path from `config` to the setting of this name."""
    parts = aliases.get(name, name).split(".")
    return parts[1:] if parts[0] == "config" and len(parts) > 1 else parts


def expand(config: Node, aliases: Mapping[str, str]) -> list[Problem]:
    """Expand the name of every setting, in place, and return problems with duplicates."""
    if not isinstance(config.value, dict):
        return []
    long: dict[str, Node] = {}
    problems: list[Problem] = []
    for name, node in config.value.items():
        first, *rest = steps(name, aliases)
        if len(rest) > DEEPEST:
            problems.append(Problem(node.where, f"config has a name of more than {DEEPEST} parts", "use fewer levels"))
            continue
        for step in reversed(rest):
            node = Node({step: node}, node.where)  # noqa: PLW2901
        problems += _merge(long, first, node, "config")
    config.value = long
    return problems


def _merge(into: dict[str, Node], key: str, node: Node, around: str) -> Iterator[Problem]:
    there = into.setdefault(key, node)
    if there is node:
        return
    name = f"{around}.{key}"
    if isinstance(there.value, dict) and isinstance(node.value, dict):
        for inner, item in node.value.items():
            yield from _merge(there.value, inner, item, name)
    else:
        yield Problem(node.where, f"{name} is given twice", f"keep one of them; the other is at {there.where}")
