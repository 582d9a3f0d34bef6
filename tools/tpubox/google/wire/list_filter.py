"""Filters of lists. Unknown syntax is refused, never ignored.

Comparisons with = != > >= < <= and : (has), as in https://google.aip.dev/160: a list only supports :, * in text matches
any characters, and `labels.x:*` tests for the presence of a label. With another value, : means = in maps at Google, and
here for every plain field. Compute Engine also has regular expressions. Artifact Registry ignores case, according to
its discovery document. Cloud Monitoring also has functions:
https://cloud.google.com/monitoring/api/v3/sorting-and-filtering. Searches without a field are refused.

Guesses: that all of these APIs accept all of this, that a missing label differs from every value, and the error texts.
Those of Compute Engine are known: https://github.com/googleapis/google-api-go-client/issues/815.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from typing import Any

from tpubox.google.wire import filter_fields, filter_grammar, match_filter, paging
from tpubox.google.wire.api import Api, Request, Route
from tpubox.google.wire.common_refusals import unknown_parameters
from tpubox.google.wire.filter_fields import Field
from tpubox.google.wire.filter_grammar import Node, Thing, Word, moment
from tpubox.google.wire.refusal import Refused
from tpubox.google.wire.sources import COMPUTE_FILTER, GUESS
from tpubox.google.wire.state import Doc

_TOKEN = re.compile(
    r"""\s+
    |(?P<sign>!=|>=|<=|[=<>:()])
    |(?P<quoted>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')
    |(?P<text>[^\s"'=<>:!~(),\[\]]+(?:"(?:[^"\\]|\\.)*"[^\s"'=<>:!~(),\[\]]*)*)""",
    re.VERBOSE | re.DOTALL,
)
_FUNCTIONS: Mapping[str, Callable[[str, str], bool]] = {
    "starts_with": str.startswith,
    "ends_with": str.endswith,
    "has_substring": str.__contains__,
    "monitoring.regex.full_match": lambda text, expression: bool(re.fullmatch(expression, text)),
}
_WITH_FUNCTIONS = re.compile(
    rf"""(?P<function>(?:{"|".join(map(re.escape, _FUNCTIONS))})\("(?:[^"\\]|\\.)*"\))|{_TOKEN.pattern}""",
    re.VERBOSE | re.DOTALL,
)
_ORDERS: Mapping[str, Callable[[Any, Any], bool]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
}
_NUMBER = re.compile(r"-?\d+(\.\d+)?([eE][-+]?\d{1,3})?", re.ASCII)


@dataclass(frozen=True, slots=True)
class Comparison:
    field: Field
    sign: str
    value: str
    fold: bool  # ignore case

    def holds(self, thing: Thing) -> bool:
        values = self.field.values(thing)
        if order := _ORDERS.get(self.sign):
            return any(order(*self._sides(value)) for value in values)
        if self.sign == ":" and self.value == "*":
            return any(bool(value) or self.field.keyed for value in values)
        return any(map(self._same, values)) == (self.sign != "!=")

    def _same(self, value: Any) -> bool:
        if isinstance(value, Mapping):
            return self.value in value or filter_fields.in_json(self.value) in value
        left, right = self._sides(value)
        if isinstance(right, str) and "*" in right:
            return bool(re.fullmatch(".*".join(map(re.escape, right.split("*"))), left, re.DOTALL))
        return bool(left == right)

    def _sides(self, value: Any) -> tuple[Any, Any]:
        if isinstance(value, bool):
            return str(value).lower(), self.value
        if self.field.number or (isinstance(value, int | float) and _NUMBER.fullmatch(self.value)):
            return Decimal(str(value)), Decimal(self.value)
        if self.field.time:
            return moment(str(value)), moment(self.value)
        return (str(value).casefold(), self.value.casefold()) if self.fold else (str(value), self.value)


@dataclass(frozen=True, slots=True)
class Calling:
    """A comparison with a function of Cloud Monitoring: `display_name = starts_with("x")`."""

    field: Field
    function: str
    argument: str

    def holds(self, thing: Thing) -> bool:
        return any(_FUNCTIONS[self.function](str(value), self.argument) for value in self.field.values(thing))


def condition(api: Api, route: Route, request: Request) -> Node | None:
    """Return the condition of a list; None without a filter, or if the handler applies it."""
    text = request.query.get("filter", "")
    if not text or route.lists == "":
        return None
    if route.lists is not None:
        return parse(api.document, route.lists, text)
    if api.document and not api.own_front:
        raise unknown_parameters(["filter"])
    return None


def parse(schema: str, message: str, text: str) -> Node:
    """Parse a filter. Refuse with INVALID_ARGUMENT what Google refuses, and what is not supported here."""
    find = partial(filter_fields.find, schema, message)
    comparison = partial(_comparison, find, schema == "artifactregistry")
    if schema != "compute":
        return filter_grammar.parse(text, _WITH_FUNCTIONS if schema == "monitoring" else _TOKEN, comparison)
    try:
        if match_filter.is_one(text):
            return match_filter.parse(text, find)
        return filter_grammar.parse(text, _TOKEN, comparison)
    except Refused as refused:
        said = f"Invalid value for field 'filter': '{text}'. Invalid list filter expression."
        raise COMPUTE_FILTER.invalid(said) from refused


def narrowed(answer: Doc, wanted: Node) -> Doc:
    """Return the list with only the matching items. An aggregated list maps places to their items."""
    kept: Doc = {}
    for name, value in answer.items():
        if isinstance(value, list):
            kept[name] = [one for one in value if wanted.holds(one)]
        elif name == "items":
            places = {place: narrowed(there, wanted) for place, there in value.items()}
            kept[name] = {
                place: there if any(there.values()) else paging.no_results(place) for place, there in places.items()
            }
        else:
            kept[name] = value
    if "totalSize" in kept:
        kept["totalSize"] = sum(len(value) for value in kept.values() if isinstance(value, list))
    return kept


def _comparison(find: Callable[[Word], Field], fold: bool, word: Word, sign: str, given: Word) -> Node:
    field, value = find(word), given.value
    if given.kind == "function":
        return _calling(field, word, sign, value)
    made = Comparison(field, sign, value, fold)
    if sign == ":" and value == "*":
        return made
    if (
        (sign != ":" and (field.many or not field.plain))
        or (sign in _ORDERS and (field.choice or field.kind == "boolean"))
        or (field.choice and value not in field.choice)
        or (field.kind == "boolean" and value not in ("true", "false"))
        or (field.number and not _NUMBER.fullmatch(value))
    ):
        raise GUESS.invalid(f"Invalid filter: {word.text} cannot be compared with {sign} {value!r}.")
    if field.time:
        moment(value)
    return made


def _calling(field: Field, word: Word, sign: str, call: str) -> Node:
    function, _, rest = call.partition("(")
    argument = Word("quoted", rest[:-1]).value
    if sign not in ("=", "!=") or field.number or field.kind == "boolean" or not field.plain:
        raise GUESS.invalid(f"Invalid filter: {word.text} cannot be compared with {sign} {function}.")
    if function.endswith("full_match"):
        filter_grammar.check_expression(argument)
    made = Calling(field, function, argument)
    return made if sign == "=" else filter_grammar.Not(made)
