"""What a filter of a list can name: the fields of the message that is listed, and what is in its maps and messages."""

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
"""Of this API, says its discovery document, no other fields can be filtered by."""


@dataclass(frozen=True, slots=True)
class Field:
    """The way to what is compared, and what is there."""

    path: tuple[str, ...]
    kind: Any  # as fields.json has types; of a list, that of what it holds
    many: bool  # there is a list on the way to it, or it is one
    keyed: bool  # the key of a map, which is there or not; other fields have a default

    @property
    def choice(self) -> tuple[str, ...]:
        return tuple(self.kind["one of"]) if isinstance(self.kind, dict) and "one of" in self.kind else ()

    @property
    def plain(self) -> bool:
        """No message and no map."""
        return bool(self.choice) or (isinstance(self.kind, str) and not self.kind.startswith("$"))

    @property
    def number(self) -> bool:
        return self.kind in _NUMBERS

    @property
    def time(self) -> bool:
        return self.kind in ("string", "any") and in_json(self.path[-1]).endswith(("Time", "Timestamp"))

    def values(self, thing: Thing) -> list[Any]:
        """What is there; more than one or none in lists, and none where a map or a time is not there."""
        found = list(_values(thing, self.path))
        if found or self.many or self.keyed or self.time or not self.plain:
            return found
        return [_DEFAULTS.get(self.kind, "") if isinstance(self.kind, str) else ""]


def find(schema: str, message: str, word: Word) -> Field:
    """The field of this name, in JSON's way of writing or with underscores; refuses one that the message has not."""
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
        # Of a message of any type it is not known before how its fields are written.
        name = path[0] if path[0] in value else in_json(path[0])
        if name in value:
            yield from _values(value[name], path[1:])
