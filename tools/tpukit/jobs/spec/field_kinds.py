"""Kinds of field values: each reads a value, reports everything wrong with it, and provides its JSON Schema.

A kind accepts plain data, as in YAML and JSON, and never converts between types: 2.0 is not a whole number and "yes" is
not true.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from tpukit.jobs.spec.forms import Form, Path, Refusal, Violation, refuse, shown, sound
from tpukit.jobs.spec.words import assigned, dotted, either, flow

_EMPTY = '""'
BAD: Any = object()
"""Placeholder for a value that was refused."""


class Kind:
    """A kind of field value. Each of `rules` receives a value of this kind and returns, converts or refuses it."""

    inner: tuple[Kind, ...] = ()
    """Kinds of the values inside such a value."""

    def __init__(self, *rules: Callable[[Any], Any]) -> None:
        self.rules = rules

    def check(self, value: Any, path: Path, wrong: list[Violation]) -> Any:
        """Return the value as specs hold it, or BAD, with the problems added to `wrong` as sentences."""
        if value is None:
            wrong.append((path, f"{dotted(path)} has no value", f"write {assigned(path, _EMPTY)} for an empty text"))
            return BAD
        before = len(wrong)
        try:
            value = self.read(value, path, wrong)
            for rule in self.rules if len(wrong) == before else ():
                value = rule(value)
        except Refusal as refused:
            for below, what, hint in refused.violations:
                at = (*path, *below)
                wrong.append((at, f"{dotted(at)}: {what}", hint))
        return value if len(wrong) == before else BAD

    def read(self, value: Any, path: Path, wrong: list[Violation]) -> Any:
        raise NotImplementedError

    def json(self, value: Any) -> Any:
        """Return the value as plain data, which `check` accepts."""
        return value

    def schema(self) -> dict[str, Any]:
        raise NotImplementedError


class Text(Kind):
    def __init__(self, form: Form | None = None, *rules: Callable[[str], str]) -> None:
        super().__init__(form.check if form else sound, *rules)
        self.form = form

    def read(self, value: Any, path: Path, wrong: list[Violation]) -> str:
        if not isinstance(value, str):
            quoted = f"put it in quotes: {assigned(path, json.dumps(shown(value)))}"
            refuse(f"{shown(value)} is not text", quoted if isinstance(value, (bool, int, float)) else "")
        return value

    def schema(self) -> dict[str, Any]:
        form = {"pattern": f"^(?:{self.form.pattern})$", "maxLength": self.form.longest} if self.form else {}
        return {"type": "string", **form}


class Integer(Kind):
    """A whole number within bounds."""

    def __init__(self, least: int, most: int | None = None, *rules: Callable[[Any], Any]) -> None:
        super().__init__(*rules)
        self.least, self.most = least, most

    def read(self, value: Any, path: Path, wrong: list[Violation]) -> int:
        if not isinstance(value, int) or isinstance(value, bool):
            refuse(f"{shown(value)} is not a whole number")
        if value < self.least:
            refuse(f"{shown(value)} is too few", f"write {self.least} or more")
        if self.most is not None and value > self.most:
            refuse(f"{shown(value)} is too many", f"write {self.most} or less")
        return value

    def schema(self) -> dict[str, Any]:
        return {"type": "integer", "minimum": self.least} | ({} if self.most is None else {"maximum": self.most})


class Flag(Kind):
    def read(self, value: Any, path: Path, wrong: list[Violation]) -> bool:
        if not isinstance(value, bool):
            refuse(f"{shown(value)} is not true or false")
        return value

    def schema(self) -> dict[str, Any]:
        return {"type": "boolean"}


class Choice(Kind):
    def __init__(self, *names: str) -> None:
        super().__init__()
        self.names = names

    def read(self, value: Any, path: Path, wrong: list[Violation]) -> str:
        if not isinstance(value, str) or value not in self.names:
            refuse(f"there is no {shown(value)}", f"write {either(self.names)}")
        return value

    def schema(self) -> dict[str, Any]:
        return {"type": "string", "enum": list(self.names)}


class Items(Kind):
    """A list of bounded length, of one kind."""

    def __init__(self, kind: Kind, most: int, *rules: Callable[[Any], Any], least: int = 0) -> None:
        super().__init__(*rules)
        self.kind, self.least, self.most = kind, least, most
        self.inner = (kind,)

    def read(self, value: Any, path: Path, wrong: list[Violation]) -> tuple[Any, ...]:
        if not isinstance(value, (list, tuple)):
            as_list = (
                f"write {assigned(path, flow(_words(value)))}" if isinstance(value, str) and len(value) < 200 else ""
            )
            refuse(f"{shown(value)} is not a list", as_list)
        if len(value) > self.most:
            refuse(f"the list is longer than {self.most}", "make it shorter")
        return tuple(self.kind.check(item, (*path, index), wrong) for index, item in enumerate(value))

    def json(self, value: Any) -> Any:
        return [self.kind.json(item) for item in value]

    def schema(self) -> dict[str, Any]:
        least = {"minItems": self.least} if self.least else {}
        return {"type": "array", "items": self.kind.schema(), **least, "maxItems": self.most}


class Named(Kind):
    """Values of one kind under names that the user chose."""

    def __init__(self, name: Text, kind: Kind, *rules: Callable[[Any], Any]) -> None:
        super().__init__(*rules)
        self.name, self.kind = name, kind
        self.inner = (kind,)

    def read(self, value: Any, path: Path, wrong: list[Violation]) -> dict[str, Any]:
        if not isinstance(value, Mapping):
            refuse(f"{shown(value)} is not a mapping")
        return {
            self.name.check(key, (*path, key), wrong): self.kind.check(item, (*path, key), wrong)
            for key, item in value.items()
        }

    def json(self, value: Any) -> Any:
        return {key: self.kind.json(item) for key, item in value.items()}

    def schema(self) -> dict[str, Any]:
        return {"type": "object", "propertyNames": self.name.schema(), "additionalProperties": self.kind.schema()}


class Anything(Kind):
    """A mapping with any content, which its rules check."""

    def read(self, value: Any, path: Path, wrong: list[Violation]) -> dict[str, Any]:
        if not isinstance(value, Mapping):
            refuse(f"{shown(value)} is not a mapping")
        return dict(value)

    def schema(self) -> dict[str, Any]:
        return {"type": "object"}


def _words(text: str) -> list[str]:
    import shlex

    try:
        return shlex.split(text)
    except ValueError:
        return text.split()
