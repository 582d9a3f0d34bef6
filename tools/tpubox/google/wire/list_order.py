"""Orders of lists: `orderBy`. Unknown syntax is refused, never ignored.

Compute Engine has two orders, according to its discovery document. Others take comma-separated fields, each with an
optional `desc` for descending order (https://google.aip.dev/132#ordering), Cloud Monitoring with a minus before it
(https://cloud.google.com/monitoring/api/v3/sorting-and-filtering). Lists without a filter cannot be ordered here,
although Google can order Artifact Registry's images.

Guesses: that items without the field come first, and the error texts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from tpubox.google.wire import filter_fields
from tpubox.google.wire.api import Api, Request, Route
from tpubox.google.wire.common_refusals import unknown_parameters
from tpubox.google.wire.filter_fields import Field
from tpubox.google.wire.filter_grammar import Thing, Word, moment
from tpubox.google.wire.sources import GUESS
from tpubox.google.wire.state import Doc

_OF_COMPUTE = ("name", "creationTimestamp desc")


@dataclass(frozen=True, slots=True)
class Key:
    field: Field
    falling: bool

    def of(self, thing: Thing) -> tuple[bool, Any]:
        values = self.field.values(thing)
        return bool(values), self._comparable(values[0]) if values else ""

    def _comparable(self, value: Any) -> Any:
        if self.field.number:
            return Decimal(str(value))
        return moment(str(value)) if self.field.time else str(value)


def keys(api: Api, route: Route, request: Request) -> list[Key]:
    """Return the sort keys of a list, most significant first; empty to keep its order."""
    text = request.query.get("orderBy", "")
    if not text:
        return []
    if not route.lists:
        if api.document and not api.own_front:
            raise unknown_parameters(["orderBy"])
        return []
    if api.document == "compute" and text not in _OF_COMPUTE:
        raise GUESS.invalid(f"Invalid value for field 'orderBy': '{text}'. Unsupported order.")
    return list(_keys(api.document, route.lists, text))


def ordered(answer: Doc, by: list[Key]) -> Doc:
    """Return the list in this order. An aggregated list maps places to their items."""
    made: Doc = {}
    for name, value in answer.items():
        if isinstance(value, list):
            things = list(value)
            for key in reversed(by):
                things.sort(key=key.of, reverse=key.falling)
            made[name] = things
        else:
            places = value.items() if name == "items" else ()
            made[name] = {place: ordered(there, by) for place, there in places} if places else value
    return made


def _keys(schema: str, message: str, text: str) -> Iterator[Key]:
    pattern = (
        r"\s*(?P<down>-?)(?P<name>[\w.]+)\s*"
        if schema == "monitoring"
        else r"\s*(?P<name>[\w.]+)(?P<down>\s+desc|\s+asc|)\s*"
    )
    for part in text.split(","):
        match = re.fullmatch(pattern, part, re.ASCII)
        if not match:
            raise GUESS.invalid(f"Invalid order: {part.strip()!r} is no field to sort by.")
        field = filter_fields.find(schema, message, Word("text", match["name"]))
        if field.many or not field.plain:
            raise GUESS.invalid(f"Invalid order: {match['name']!r} is no field to sort by.")
        yield Key(field, match["down"].strip() in ("-", "desc"))
