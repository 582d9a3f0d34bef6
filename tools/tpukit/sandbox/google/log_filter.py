"""The Logging query language, as far as logs of containers need it. What is not known here is refused, never guessed.

Comparisons with = != > >= < <= : (has) =~ and !~ (regular expressions), joined by AND, OR, NOT and parentheses. NOT
binds first, then OR, then AND, and a comparison after another one means AND. Text is compared without regard to case.
A label or a part of jsonPayload that an entry lacks makes a comparison fail, whichever it is.
https://cloud.google.com/logging/docs/view/logging-query-language
Regular expressions are RE2's, quoted, and regard case; what RE2 lacks is refused.
Functions and searches without a field are not answered.
"""

from __future__ import annotations

import json
import operator
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from tpukit.sandbox.google.refusal import Refused, invalid

MAX_LETTERS = 20_000
MAX_DEPTH = 50  # a guess
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
_MATCHES = ("=~", "!~")
_SIGNS = (*_COMPARE, *_MATCHES, ":")
_NOT_RE2 = re.compile(r"\(\?(?:[=!]|<[=!]|P[=>]|#|\()|\\[1-9]")
"""Looking around, conditions and references back: https://github.com/google/re2/wiki/Syntax"""
_MISSING = object()

Entry = Mapping[str, Any]
Truth = bool | None
"""None: it depends on what is not known yet."""


@dataclass(frozen=True, slots=True)
class Comparison:
    path: tuple[str, ...]
    sign: str
    value: str

    def holds(self, entry: Entry) -> Truth:
        """Whether it does for this entry; None where the entry is only known in part and lacks the field so far."""
        value = _at(entry, self.path)
        if value is _MISSING and self.path[0] in entry.get("unknown", ()):
            return None
        if value is _MISSING and ".".join(self.path) not in _PLAIN:
            return False
        if value is _MISSING:  # a field that all entries have, with its default
            value = "DEFAULT" if self.path == ("severity",) else ""
        if self.sign == ":":
            return bool(value) if self.value == "*" else self.value.casefold() in str(value).casefold()
        if self.sign in _MATCHES:
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


@dataclass(frozen=True, slots=True)
class Not:
    inner: Node

    def holds(self, entry: Entry) -> Truth:
        truth = self.inner.holds(entry)
        return None if truth is None else not truth


@dataclass(frozen=True, slots=True)
class Either:
    parts: tuple[Node, ...]

    def holds(self, entry: Entry) -> Truth:
        truths = [part.holds(entry) for part in self.parts]
        return True if True in truths else None if None in truths else False


@dataclass(frozen=True, slots=True)
class All:
    parts: tuple[Node, ...]

    def holds(self, entry: Entry) -> Truth:
        truths = [part.holds(entry) for part in self.parts]
        return False if False in truths else None if None in truths else True


Node = Comparison | Not | Either | All


def parse(text: str) -> Node:
    """Refuses with INVALID_ARGUMENT what Google refuses, and what is not answered here."""
    if len(text) > MAX_LETTERS:
        raise invalid(f"Filter must not be longer than {MAX_LETTERS} characters.")
    return _Parser(_tokens(text)).everything()


def bounds(node: Node) -> tuple[str, str]:
    """A first and a last moment outside of which nothing matches; empty where there is none."""
    if isinstance(node, All):
        pairs = [bounds(part) for part in node.parts]
        firsts, lasts = [first for first, _ in pairs if first], [last for _, last in pairs if last]
        return max(firsts, default=""), min(lasts, default="")
    if isinstance(node, Comparison) and node.path == ("timestamp",):
        first = node.value if node.sign in (">", ">=", "=") else ""
        last = node.value if node.sign in ("<", "<=", "=") else ""
        return first, last
    return "", ""


def moment(text: str) -> str:
    """A time of RFC 3339, or a date, in the one form in which times can be compared as text."""
    match = re.fullmatch(r"(\d{4}-\d\d-\d\d)(?:T(\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(Z|[-+]\d\d:?\d\d))?", text)
    if not match:
        raise invalid(f"Unparseable filter: invalid timestamp '{text}'")
    try:
        zone = (match[4] or "Z").replace("Z", "+00:00")
        at = datetime.fromisoformat(f"{match[1]}T{match[2] or '00:00:00'}{zone}").astimezone(UTC)
    except ValueError as error:
        raise invalid(f"Unparseable filter: invalid timestamp '{text}'") from error
    return f"{at:%Y-%m-%dT%H:%M:%S}.{(match[3] or '').ljust(9, '0')}Z"


@dataclass(frozen=True, slots=True)
class _Word:
    kind: str  # sign, quoted, text
    text: str


def _tokens(text: str) -> list[_Word]:
    words, position = [], 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if not match:
            raise _unparseable(text[position])
        if match.lastgroup:
            words.append(_Word(match.lastgroup, match[match.lastgroup]))
        position = match.end()
    return words


class _Parser:
    def __init__(self, words: list[_Word]) -> None:
        self._words = words
        self._position = 0
        self._depth = 0

    def everything(self) -> Node:
        if not self._words:
            return All(())
        node = self._all()
        if word := self._next():
            raise _unparseable(word.text)
        return node

    def _all(self) -> Node:
        parts = [self._either()]
        while (word := self._next()) and word.text != ")":
            if self._take("AND") and not self._next():
                raise _unparseable("AND")
            parts.append(self._either())
        return parts[0] if len(parts) == 1 else All(tuple(parts))

    def _either(self) -> Node:
        parts = [self._one()]
        while self._take("OR"):
            parts.append(self._one())
        return parts[0] if len(parts) == 1 else Either(tuple(parts))

    def _one(self) -> Node:
        if (negated := self._take("NOT")) or self._take("("):
            self._depth += 1
            if self._depth > MAX_DEPTH:
                raise invalid("Unparseable filter: it is nested too deeply")
            node = Not(self._one()) if negated else self._all()
            if not negated:
                self._expect(")")
            self._depth -= 1
            return node
        word = self._pop()
        minus = word.kind == "text" and word.text.startswith("-")
        path = _path(word.text[1:] if minus else word.text, word.kind)
        sign = self._pop()
        if sign.kind != "sign" or sign.text not in _SIGNS:
            raise _unparseable(sign.text)
        node = self._values(path, sign.text)
        return Not(node) if minus else node

    def _values(self, path: tuple[str, ...], sign: str) -> Node:
        """One value, or several of which any or each is meant: `resource.type = ("a" OR "b")`."""
        if sign in _MATCHES:
            word = self._pop()
            if word.kind != "quoted":
                raise _unparseable(word.text)
            return _expression(path, sign, word.text[1:-1].replace('\\"', '"'))
        if not self._take("("):
            return _comparison(path, sign, self._value())
        parts = [_comparison(path, sign, self._value())]
        joint = ""
        while not self._take(")"):
            this = "OR" if self._take("OR") else "AND" if self._take("AND") else ""
            if not this or (joint and this != joint):
                raise _unparseable(self._pop().text)
            joint = this
            parts.append(_comparison(path, sign, self._value()))
        return parts[0] if len(parts) == 1 else (Either if joint == "OR" else All)(tuple(parts))

    def _value(self) -> str:
        word = self._pop()
        if word.kind == "sign" or word.text in ("AND", "OR", "NOT"):
            raise _unparseable(word.text)
        return _unquoted(word.text) if word.kind == "quoted" else word.text

    def _next(self) -> _Word | None:
        return self._words[self._position] if self._position < len(self._words) else None

    def _take(self, text: str) -> bool:
        word = self._next()
        if word and word.kind != "quoted" and word.text == text:
            self._position += 1
            return True
        return False

    def _expect(self, text: str) -> None:
        if not self._take(text):
            raise _unparseable(self._pop().text)

    def _pop(self) -> _Word:
        word = self._next()
        if word is None:
            raise invalid("Unparseable filter: unexpected end of the filter")
        self._position += 1
        return word


def _path(text: str, kind: str) -> tuple[str, ...]:
    if kind != "text" or text in ("AND", "OR", "NOT"):
        raise _unparseable(text)
    pieces = re.findall(r'"(?:[^"\\]|\\.)*"|[^."]+', text)
    parts = tuple(_unquoted(piece) if piece.startswith('"') else piece for piece in pieces)
    if ".".join(parts) in _PLAIN:
        return tuple(".".join(parts).split("."))
    for known in _MAPS:
        if parts[: len(known)] == known and len(parts) > len(known):
            inner = parts[len(known) :]
            return (*known, *inner) if known == ("jsonPayload",) else (*known, ".".join(inner))
    raise invalid(f"Field not found: '{text}'.")


def _comparison(path: tuple[str, ...], sign: str, value: str) -> Node:
    if path == ("severity",):
        if sign == ":" or value.upper() not in SEVERITIES:
            raise invalid(f"Unparseable filter: severity cannot be compared with {sign} '{value}'")
        value = value.upper()
    if path[0] in _TIMES:
        if sign == ":":
            raise invalid("Unparseable filter: a timestamp cannot be compared with ':'")
        value = moment(value)
    return Comparison(path, sign, value)


def _expression(path: tuple[str, ...], sign: str, value: str) -> Node:
    if path == ("severity",) or path[0] in _TIMES:
        raise invalid(f"Unparseable filter: {path[0]} cannot be compared with a regular expression")
    try:
        re.compile(value)
    except re.error as error:
        raise invalid(f"Unparseable filter: regex {value!r}: {error}") from error
    if _NOT_RE2.search(value):
        raise invalid(f"Unparseable filter: regex {value!r}: invalid or unsupported Perl syntax")
    return Comparison(path, sign, value)


def _at(entry: Entry, path: Iterable[str]) -> Any:
    value: Any = entry
    for name in path:
        if not isinstance(value, Mapping) or name not in value:
            return _MISSING
        value = value[name]
    return value


def _unquoted(text: str) -> str:
    return re.sub(r"\\(.)", lambda match: {"n": "\n", "t": "\t"}.get(match[1], match[1]), text[1:-1], flags=re.DOTALL)


def _unparseable(text: str) -> Refused:
    return invalid(f"Unparseable filter: syntax error at {json.dumps(text)}")
