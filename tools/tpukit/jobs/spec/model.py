"""Base of all specs: frozen, strict, checked completely, and converted to JSON and back without loss."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, ClassVar, NoReturn, Self, dataclass_transform

from tpukit.core.errors import Invalid, Problem
from tpukit.jobs.spec import problems
from tpukit.jobs.spec.field_kinds import BAD, Kind
from tpukit.jobs.spec.forms import Path, Violation, refuse, shown
from tpukit.jobs.spec.located_yaml import Node
from tpukit.jobs.spec.words import assigned, dotted, either, flow

_REQUIRED: Any = object()


class Field:
    """One field of a spec: what it may be, and what people are told about it."""

    __slots__ = ("default", "description", "examples", "kind")

    def __init__(self, kind: Kind, description: str, examples: tuple[Any, ...], default: Any) -> None:
        self.kind, self.description, self.examples, self.default = kind, description, examples, default

    @property
    def required(self) -> bool:
        return self.default is _REQUIRED

    def fallback(self) -> Any:
        return dict(self.default) if isinstance(self.default, dict) else self.default

    def schema(self) -> dict[str, Any]:
        kind = self.kind.schema()
        notes = {"description": self.description, "examples": list(self.examples)}
        if self.required:
            return kind | notes
        if self.default is None:
            return {"anyOf": [kind, {"type": "null"}]} | notes
        return kind | notes | {"default": self.kind.json(self.default)}


def field(kind: Kind, description: str, *examples: Any, default: Any = _REQUIRED) -> Any:
    """Define a field of a spec. Its default is not checked; the first example is shown in error messages."""
    return Field(kind, description, examples, default)


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(field,))
class Model:
    __slots__ = ("__dict__", "given")

    fields: ClassVar[Mapping[str, Field]] = {}
    given: frozenset[str]  # names of the fields that were written, as opposed to defaults

    def __init_subclass__(cls) -> None:
        own = {name: value for name, value in vars(cls).items() if isinstance(value, Field)}
        for name in own:
            delattr(cls, name)
        cls.fields = {**cls.fields, **own}

    def __init__(self, **values: Any) -> None:
        checked = type(self).from_json(values)
        self._fill(vars(checked), checked.given)

    def _fill(self, values: Mapping[str, Any], given: frozenset[str]) -> None:
        vars(self).update(values)
        object.__setattr__(self, "given", given)

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"{type(self).__name__} is frozen: make another with replace({name}=…)")

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and vars(other) == vars(self)

    __hash__ = None  # type: ignore[assignment]  # specs contain mappings

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in vars(self).items())})"

    @classmethod
    def unchecked(cls, **values: Any) -> Self:
        """Return a spec with these values unchecked, and defaults for the rest."""
        made = cls.__new__(cls)
        defaults = {name: item.fallback() for name, item in cls.fields.items() if not item.required}
        made._fill({**defaults, **values}, frozenset(values))
        return made

    def replace(self, **values: Any) -> Self:
        """Return a copy with these values replaced, unchecked."""
        made = type(self).__new__(type(self))
        made._fill({**vars(self), **values}, self.given | frozenset(values))
        return made

    def written(self, names: Iterable[str]) -> Self:
        """Return a copy in which these fields count as written."""
        made = type(self).__new__(type(self))
        made._fill(vars(self), frozenset(names))
        return made

    def to_json(self, *, given: bool = False) -> Any:
        """Return plain data that `from_json` accepts, without absent values. `given`: without defaults too."""
        return {
            name: item.kind.json(value)
            for name, item in type(self).fields.items()
            if (value := getattr(self, name)) is not None and (name in self.given or not given)
        }

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Self:
        """Return the spec in plain data.

        Raises:
            Invalid: With every problem found.
        """
        wrong: list[Violation] = []
        spec: Self = cls.check(document, (), wrong)
        if wrong:
            raise Invalid([Problem("", what, hint or f"write {cls.example(path)}") for path, what, hint in wrong])
        return spec

    @classmethod
    def stored(cls, document: Mapping[str, Any]) -> Self:
        """Return the spec in stored plain data, which was valid when stored.

        Nothing is refused: values that today's rules would refuse stay as they are, and unknown fields are left out.
        """
        values = {}
        for name, item in cls.fields.items():
            if (given := document.get(name)) is None:
                continue
            value = item.kind.check(given, (name,), [])
            if value is BAD and isinstance(item.kind, Sub) and isinstance(given, Mapping):
                value = item.kind.model.stored(given)
            values[name] = given if value is BAD else value
        return cls.unchecked(**values)

    @classmethod
    def from_node(cls, root: Node, earlier: Iterable[Problem] = (), aliases: Collection[str] = ()) -> Self:
        """Return the spec that was written in `root`.

        Raises:
            Invalid: With every problem found, and with `earlier` problems.
        """
        wrong: list[Violation] = []
        spec: Self = cls.check(root.plain(), (), wrong, aliases)
        placed = (problems.placed(root, path, what, hint or f"write {cls.example(path)}") for path, what, hint in wrong)
        if everything := [*earlier, *placed]:
            raise Invalid(problems.from_the_top(everything))
        return spec

    @classmethod
    def check(cls, value: Any, path: Path, wrong: list[Violation], aliases: Collection[str] = ()) -> Any:
        """Return the spec in plain data; or BAD, with the problems added to `wrong`."""
        return Sub(cls, aliases).check(value, path, wrong)

    @classmethod
    def raw_fields(cls, value: Any) -> Mapping[str, Any]:
        """Return the fields in what was written."""
        if not isinstance(value, Mapping):
            refuse(f"{shown(value)} is not a mapping")
        return value

    @classmethod
    def between(cls, good: Mapping[str, Any], raw: Mapping[str, Any]) -> Iterator[Violation]:
        """Yield problems between fields. `good` are the fields that are valid by themselves, `raw` all as written."""
        yield from ()

    def validate(self) -> None:
        """Refuse an invalid combination, once every field is valid."""

    @classmethod
    def example(cls, path: Path) -> str:
        """Return an example of a value at `path`."""
        *around, last = path or ("",)
        if isinstance(last, int):
            *around, last = around
        found = _at(cls, around).fields.get(str(last))
        if found is None or not found.examples:
            return "another value"
        example = found.examples[0]
        return flow(example[0]) if isinstance(path[-1], int) else assigned(path, flow(example))

    @classmethod
    def schema(cls) -> dict[str, Any]:
        return {
            "title": cls.__name__,
            "description": cls.__doc__,
            "type": "object",
            "properties": {name: item.schema() for name, item in cls.fields.items()},
            "required": [name for name, item in cls.fields.items() if item.required],
            "additionalProperties": False,
        }


class Sub(Kind):
    """A spec inside another."""

    def __init__(self, model: type[Model], aliases: Collection[str] = ()) -> None:
        super().__init__()
        self.model, self.aliases = model, aliases

    def read(self, value: Any, path: Path, wrong: list[Violation]) -> Any:
        if isinstance(value, self.model):
            return value
        before = len(wrong)
        raw = self.model.raw_fields(value)
        values = {}
        for name, item in self.model.fields.items():
            # A key without a value counts as absent: its lines may be commented out.
            if (given := raw.get(name)) is not None:
                values[name] = item.kind.check(given, (*path, name), wrong)
            elif item.required:
                missing = (*path, name)
                wrong.append((missing, f"{dotted(missing)} is missing", f"add {self.model.example((name,))}"))
        wrong += [((*path, key), *self._unknown(path, key)) for key in raw if key not in self.model.fields]
        good = {name: item for name, item in values.items() if item is not BAD}
        for below, what, hint in self.model.between(good, raw):
            wrong.append(((*path, *below), f"{dotted((*path, *below))}: {what}", hint))
        if len(wrong) > before:
            return BAD
        made = self.model.unchecked(**values)
        made.validate()
        return made

    def _unknown(self, path: Path, key: str) -> tuple[str, str]:
        what = f"there is no key {shown(key)}" + (f" in {dotted(path)}" if path else "")
        if key in self.aliases:
            return what, f"put it under config: write config: {{{key}: …}}"
        import difflib

        keys = list(self.model.fields)
        near = difflib.get_close_matches(str(key)[:64].lower(), keys, n=1)
        return what, f"write {either(near or keys)}"

    def json(self, value: Any) -> Any:
        return value.to_json()

    def schema(self) -> dict[str, Any]:
        return {"$ref": f"#/$defs/{self.model.__name__}"}


def models(kind: Kind) -> Iterator[type[Model]]:
    """Yield the specs inside a kind."""
    if isinstance(kind, Sub):
        yield kind.model
    for inner in kind.inner:
        yield from models(inner)


def digest(document: Mapping[str, Any]) -> str:
    """Return the same digest for the same content, whatever the order of its keys."""
    return hashlib.sha256(json.dumps(document, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def _at(model: type[Model], path: Iterable[str | int]) -> type[Model]:
    """Return the model of the value at `path`, or the last one on the way there."""
    for step in path:
        found = model.fields.get(str(step))
        model = next(models(found.kind), model) if found else model
    return model
