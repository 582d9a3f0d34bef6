"""Values that a plan changes inside a resource, before and after. No I/O.

https://developer.hashicorp.com/terraform/internals/json-format#change-representation
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_LONGEST = 60


@dataclass(frozen=True, slots=True)
class Difference:
    path: str  # node_config.0.labels.team
    before: str
    after: str
    replaces: bool = False  # whether this change replaces the resource


def by_address(plan: Mapping[str, Any]) -> dict[str, list[Difference]]:
    """Return the differences of every resource that a plan changes in place or replaces."""
    return {
        str(change["address"]): found
        for change in plan.get("resource_changes", [])
        if {"update", "create"} & set(change["change"]["actions"])
        and change["change"].get("before") is not None
        and (found := of(change["change"]))
    }


def of(change: Mapping[str, Any]) -> list[Difference]:
    """Return what differs between `before` and `after`. Mask secrets, and mark values known only after apply."""
    replacing = {_dotted(path) for path in change.get("replace_paths", [])}
    found = _compare(
        change.get("before"),
        change.get("after"),
        change.get("after_unknown"),
        (change.get("before_sensitive"), change.get("after_sensitive")),
        (),
    )
    return [
        Difference(path, before, after, any(f"{path}.".startswith(f"{one}.") for one in replacing))
        for path, before, after in found
    ]


def _compare(
    before: Any, after: Any, unknown: Any, secret: tuple[Any, Any], path: tuple[str, ...]
) -> Iterator[tuple[str, str, str]]:
    if secret[0] is True or secret[1] is True:
        if before != after or unknown is True:
            yield ".".join(path), "(secret)", "(secret)"
        return
    if unknown is True:
        yield ".".join(path), _shown(before), "(known after apply)"
        return
    names = _names(before, after, unknown)
    if names is None:
        if before != after:
            yield ".".join(path), _shown(before), _shown(after)
        return
    for name in names:
        inner = (_at(secret[0], name), _at(secret[1], name))
        yield from _compare(_at(before, name), _at(after, name), _at(unknown, name), inner, (*path, str(name)))


def _names(before: Any, after: Any, unknown: Any) -> list[Any] | None:
    """Return the keys or indices of both sides; None if either is a plain value or missing."""
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        more = unknown if isinstance(unknown, Mapping) else {}
        return list(dict.fromkeys([*before, *after, *more]))
    if _is_list(before) and _is_list(after) and not (_plain(before) and _plain(after)):
        return list(range(max(len(before), len(after))))
    return None


def _plain(values: Sequence[Any]) -> bool:
    return not any(isinstance(value, (Mapping, list)) for value in values)


def _is_list(value: Any) -> bool:
    return isinstance(value, list)


def _at(value: Any, name: Any) -> Any:
    if isinstance(value, Mapping):
        return value.get(name)
    if isinstance(value, list) and isinstance(name, int) and name < len(value):
        return value[name]
    return None


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False) if value is not None else "nothing"
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def _dotted(path: Sequence[Any]) -> str:
    return ".".join(map(str, path))
