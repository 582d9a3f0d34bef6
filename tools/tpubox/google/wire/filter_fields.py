"""Fields that a list filter can name: those of the listed message, and those in its maps and messages."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tpubox.google.wire import schemas
from tpubox.google.wire.filter_grammar import Thing, Word, unparseable
from tpubox.google.wire.sources import GUESS

_NUMBERS = ("int32", "int64", "double")
_DEFAULTS = {"string": "", "boolean": False, **dict.fromkeys(_NUMBERS, 0)}
_ELIGIBLE = {"artifactregistry": ("name", "version")}
"""APIs with limited filters: the discovery document allows no other fields."""


@dataclass(frozen=True, slots=True)
class Field:
    """Path and type of a compared field."""

    path: tuple[str, ...]
    kind: Any  # type as in fields.json; for a list, that of its elements
    many: bool  # a list, or inside one
    keyed: bool  # the key of a map, which may be absent; other fields have a default

    @property
    def choice(self) -> tuple[str, ...]:
        return tuple(self.kind["one of"]) if isinstance(self.kind, dict) and "one of" in self.kind else ()

    @property
    def plain(self) -> bool:
        """True if the field is neither a message nor a map."""
        return bool(self.choice) or (isinstance(self.kind, str) and not self.kind.startswith("$"))

    @property
    def number(self) -> bool:
        return self.kind in _NUMBERS

    @property
    def time(self) -> bool:
        return self.kind in ("string", "any") and in_json(self.path[-1]).endswith(("Time", "Timestamp"))

    def values(self, thing: Thing) -> list[Any]:
        """Return the values: several or none in lists, none for an absent map key or time."""
        found = list(_values(thing, self.path))
        if found or self.many or self.keyed or self.time or not self.plain:
            return found
        return [_DEFAULTS.get(self.kind, "") if isinstance(self.kind, str) else ""]


def find(schema: str, message: str, word: Word) -> Field:
    """Return the field of this name, in JSON's spelling or with underscores; refuse an unknown one."""
    messages = schemas.fields_of_messages()[schema]
    kind: Any = f"${message}"
    path: list[str] = []
    many = keyed = False
    for piece in word.path:
        if isinstance(kind, list):
            many, kind = True, kind[0]
        keyed = kind == "any" or (isinstance(kind, dict) and "*" in kind)
        if keyed:
            kind = kind["*"] if isinstance(kind, dict) else kind
            path.append(piece)
            continue
        known = messages[kind[1:]] if isinstance(kind, str) and kind.startswith("$") else {}
        name = piece if piece in known else in_json(piece)
        if name not in known or (not path and name not in _ELIGIBLE.get(schema, known)):
            raise GUESS.invalid(f"Invalid filter: there is no field {word.text!r} to filter by.")
        kind = known[name]
        path.append(name)
    if not path:
        raise unparseable(word.text)
    if isinstance(kind, list):
        many, kind = True, kind[0]
    return Field(tuple(path), kind, many, keyed)


def in_json(name: str) -> str:
    return re.sub(r"_([a-z0-9])", lambda letter: letter[1].upper(), name)


def _values(value: Any, path: tuple[str, ...]) -> Iterator[Any]:
    if isinstance(value, list):
        for one in value:
            yield from _values(one, path)
    elif not path:
        yield value
    elif isinstance(value, Mapping):
        # The spelling of the fields is unknown in advance in a message of any type.
        name = path[0] if path[0] in value else in_json(path[0])
        if name in value:
            yield from _values(value[name], path[1:])
