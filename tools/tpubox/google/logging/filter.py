"""The Logging query language, as far as logs of containers need it. Unknown syntax is refused, never guessed.

Comparisons with = != > >= < <= : (has) =~ and !~ (regular expressions). Text is compared without regard to case. A
comparison with a label or a part of jsonPayload that the entry lacks is false.
https://cloud.google.com/logging/docs/view/logging-query-language

Regular expressions are RE2's, quoted and case-sensitive; syntax that RE2 lacks is refused. Functions and searches
without a field are not supported.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tpubox.google.wire import filter_grammar
from tpubox.google.wire.filter_grammar import (
    MATCHES,
    All,
    Node,
    Thing,
    Truth,
    Word,
    check_expression,
    moment,
    unparseable,
)
from tpubox.google.wire.sources import GUESS

MAX_LETTERS = 20_000
SEVERITIES = {
    name: 100 * number
    for number, name in enumerate(
        ("DEFAULT", "DEBUG", "INFO", "NOTICE", "WARNING", "ERROR", "CRITICAL", "ALERT", "EMERGENCY")
    )
}
_PLAIN = ("insertId", "logName", "receiveTimestamp", "resource.type", "severity", "textPayload", "timestamp")
_MAPS = (("resource", "labels"), ("labels",), ("jsonPayload",))
_TIMES = ("timestamp", "receiveTimestamp")
_TOKEN = re.compile(
    r"""\s+|--[^\n]*
    |(?P<sign>!=|>=|<=|=~|!~|[=<>:()])
    |(?P<quoted>"(?:[^"\\]|\\.)*")
    |(?P<text>[^\s"=<>:!~(),]+(?:"(?:[^"\\]|\\.)*"[^\s"=<>:!~(),]*)*)""",
    re.VERBOSE | re.DOTALL,
)
_COMPARE: Mapping[str, Callable[[Any, Any], Any]] = {
    "=": operator.eq,
    "!=": operator.ne,
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
}
_MISSING = object()


@dataclass(frozen=True, slots=True)
class Comparison:
    path: tuple[str, ...]
    sign: str
    value: str

    def holds(self, entry: Thing) -> Truth:
        """Return the result for an entry; None if a partially known entry lacks the field so far."""
        value = _at(entry, self.path)
        if value is _MISSING and self.path[0] in entry.get("unknown", ()):
            return None
        if value is _MISSING and ".".join(self.path) not in _PLAIN:
            return False
        if value is _MISSING:  # a field of every entry, with its default
            value = "DEFAULT" if self.path == ("severity",) else ""
        if self.sign == ":":
            return bool(value) if self.value == "*" else self.value.casefold() in str(value).casefold()
        if self.sign in MATCHES:
            return bool(re.search(self.value, str(value))) == (self.sign == "=~")
        left, right = self._sides(value)
        return bool(_COMPARE[self.sign](left, right))

    def _sides(self, value: Any) -> tuple[Any, Any]:
        if self.path == ("severity",):
            return SEVERITIES[str(value)], SEVERITIES[self.value]
        if self.path[0] in _TIMES:
            return str(value), self.value
        if isinstance(value, bool):
            return str(value).casefold(), self.value.casefold()
        if isinstance(value, int | float) and re.fullmatch(r"-?\d+(\.\d+)?([eE][-+]?\d+)?", self.value):
            return float(value), float(self.value)
        return str(value).casefold(), self.value.casefold()


def parse(text: str) -> Node:
    """Parse a filter. Refuse with INVALID_ARGUMENT what Google refuses, and what is not supported here."""
    if len(text) > MAX_LETTERS:
        raise GUESS.invalid(f"Filter must not be longer than {MAX_LETTERS} characters.")
    return filter_grammar.parse(text, _TOKEN, _comparison)


def bounds(node: Node) -> tuple[str, str]:
    """Return the first and last time that can match; an empty string means unbounded."""
    if isinstance(node, All):
        pairs = [bounds(part) for part in node.parts]
        firsts, lasts = [first for first, _ in pairs if first], [last for _, last in pairs if last]
        return max(firsts, default=""), min(lasts, default="")
    if isinstance(node, Comparison) and node.path == ("timestamp",):
        first = node.value if node.sign in (">", ">=", "=") else ""
        last = node.value if node.sign in ("<", "<=", "=") else ""
        return first, last
    return "", ""


def _comparison(field: Word, sign: str, word: Word) -> Node:
    path = _path(field)
    if sign in MATCHES:
        if word.kind != "quoted":
            raise unparseable(word.text)
        if path == ("severity",) or path[0] in _TIMES:
            raise GUESS.invalid(f"Unparseable filter: {path[0]} cannot be compared with a regular expression")
        expression = word.text[1:-1].replace('\\"', '"')
        check_expression(expression)
        return Comparison(path, sign, expression)
    value = word.value
    if path == ("severity",):
        if sign == ":" or value.upper() not in SEVERITIES:
            raise GUESS.invalid(f"Unparseable filter: severity cannot be compared with {sign} '{value}'")
        value = value.upper()
    if path[0] in _TIMES:
        if sign == ":":
            raise GUESS.invalid("Unparseable filter: a timestamp cannot be compared with ':'")
        value = moment(value)
    return Comparison(path, sign, value)


def _path(field: Word) -> tuple[str, ...]:
    parts = field.path
    if ".".join(parts) in _PLAIN:
        return tuple(".".join(parts).split("."))
    for known in _MAPS:
        if parts[: len(known)] == known and len(parts) > len(known):
            inner = parts[len(known) :]
            return (*known, *inner) if known == ("jsonPayload",) else (*known, ".".join(inner))
    raise GUESS.invalid(f"Field not found: '{field.text}'.")


def _at(entry: Thing, path: Iterable[str]) -> Any:
    value: Any = entry
    for name in path:
        if not isinstance(value, Mapping) or name not in value:
            return _MISSING
        value = value[name]
    return value
