"""From what pydantic found to sentences that a stranger can act on: where, what, and what to write instead."""

from __future__ import annotations

import difflib
import json
import re
import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from tpukit.errors import Problem
from tpukit.spec.document import Node, scalar
from tpukit.spec.forms import Found, shown

Path = tuple[str | int, ...]

_EMPTY = '""'
_KINDS = {
    "string_type": "text",
    "int_type": "a whole number",
    "bool_type": "true or false",
    "tuple_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping",
}


def problems(
    error: ValidationError, model: type[BaseModel], root: Node | None = None, aliases: Collection[str] = ()
) -> list[Problem]:
    """Everything that is wrong, in the order of the fields. `root` knows the places, `aliases` the short names."""
    found: list[Problem] = []
    for detail in error.errors(include_url=False):
        path = tuple(step for step in detail["loc"] if step != "[key]")
        for below, what, hint in _explain(detail, path, model, aliases):
            found.append(_problem(root.place((*path, *below)) if root else "", (*path, *below), what, hint))
    return found


def _problem(place: str, path: Path, what: str, hint: str) -> Problem:
    if place != f"--set {dotted(path)}":
        return Problem(place, what, hint)
    # The place says the name already, and is what the person has to write again.
    return Problem(place, what.removeprefix(f"{dotted(path)}: "), hint.replace(f" {path[-1]}: ", f" {place}=", 1))


def flow(value: object) -> str:
    """A value as one would write it on one line of YAML."""
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


def dotted(path: Sequence[str | int]) -> str:
    """A path as people write it: max.runtime, command[2]."""
    return brief("".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path).removeprefix("."))


def brief(text: str) -> str:
    """A name that a person wrote, kept short and on one line."""
    safe = text if text.isprintable() else repr(text)
    return safe if len(safe) <= 80 else safe[:80] + "…"


def either(choices: Sequence[str]) -> str:
    return f"{', '.join(choices[:-1])} or {choices[-1]}" if len(choices) > 1 else choices[0]


def _explain(detail: ErrorDetails, path: Path, model: type[BaseModel], aliases: Collection[str]) -> list[Found]:
    if detail["type"] == "refused":
        found = detail["ctx"]["found"]
        return [(below, f"{dotted((*path, *below))}: {what}", hint) for below, what, hint in found]
    if detail["type"] == "extra_forbidden":
        return [((), *_unknown(path, model, aliases))]
    example = _example(model, path)
    if detail["type"] == "missing":
        return [((), f"{dotted(path)} is missing", f"add {example}")]
    if detail["input"] is None:
        return [((), f"{dotted(path)} has no value", f"write {_assign(path, _EMPTY)} for an empty text")]
    what, hint = _wrong(detail, detail["input"], path, f"write {example}")
    return [((), f"{dotted(path)}: {what}", hint)]


def _wrong(detail: ErrorDetails, value: Any, path: Path, hint: str) -> tuple[str, str]:
    kind, bounds = detail["type"], detail.get("ctx", {})
    what = f"{shown(value)} is not {_KINDS[kind]}" if kind in _KINDS else detail["msg"]
    match kind:
        case "string_type" if isinstance(value, (bool, int, float)):
            hint = f"put it in quotes: {_assign(path, json.dumps(shown(value)))}"
        case "tuple_type" if isinstance(value, str) and len(value) < 200:
            hint = f"write {_assign(path, flow(_words(value)))}"
        case "less_than_equal":
            what, hint = f"{shown(value)} is too many", f"write {bounds['le']} or less"
        case "greater_than_equal":
            what, hint = f"{shown(value)} is too few", f"write {bounds['ge']} or more"
        case "literal_error":
            choices = re.findall(r"'([^']*)'", bounds["expected"])
            what, hint = f"there is no {shown(value)}", f"write {either(choices)}"
        case "too_short":
            what = "the list is empty"
        case "too_long":
            what, hint = f"the list is longer than {bounds['max_length']}", "make it shorter"
    return what, hint


def _unknown(path: Path, model: type[BaseModel], aliases: Collection[str]) -> tuple[str, str]:
    *around, key = path
    what = f"there is no key {shown(key)}" + (f" in {dotted(around)}" if around else "")
    if not around and key in aliases:
        return what, f"put it under config: write config: {{{key}: …}}"
    keys = list(_model(model, around).model_fields)
    near = difflib.get_close_matches(str(key)[:64].lower(), keys, n=1)
    return what, f"write {either(near or keys)}"


def _words(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:
        return text.split()


def _assign(path: Path, value: str) -> str:
    return f"{brief(path[-1])}: {value}" if path and isinstance(path[-1], str) else value


def _example(model: type[BaseModel], path: Path) -> str:
    """The example of the field at `path`, or of an item of that field."""
    *around, last = path or ("",)
    if isinstance(last, int):
        *around, last = around
    field = _model(model, around).model_fields.get(str(last))
    if field is None or not field.examples:
        return "another value"
    example = field.examples[0]
    return flow(example[0]) if isinstance(path[-1], int) else _assign(path, flow(example))


def _model(model: type[BaseModel], path: Sequence[str | int]) -> type[BaseModel]:
    """The model that describes what lies at `path`, or the last one on the way there."""
    for step in path:
        field = model.model_fields.get(str(step))
        if field is not None:
            model = next(_models(field.annotation), model)
    return model


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from _models(argument)
