"""Common grammar of Google's filters: comparisons, joined by AND, OR, NOT (or a minus) and parentheses.

NOT binds first, then OR, then AND, and a comparison after another one means AND: https://google.aip.dev/160. Each
language defines its words and the meaning of a comparison.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Protocol

from tpubox.google.wire.refusal import Refused
from tpubox.google.wire.sources import GUESS

MAX_DEPTH = 50  # a guess
MATCHES = ("=~", "!~")
"""Operators of regular expressions, which take a single value."""
_KEYWORDS = ("AND", "OR", "NOT")
_NOT_RE2 = re.compile(r"\(\?(?:[=!]|<[=!]|P[=>]|#|\()|\\[1-9]")
"""Lookaround, conditions and back references, which RE2 lacks.

https://github.com/google/re2/wiki/Syntax
"""

Thing = Mapping[str, Any]
Truth = bool | None
"""Result of a test; None if it depends on unknown fields."""


class Node(Protocol):
    def holds(self, thing: Thing, /) -> Truth: ...


@dataclass(frozen=True, slots=True)
class Not:
    inner: Node

    def holds(self, thing: Thing) -> Truth:
        truth = self.inner.holds(thing)
        return None if truth is None else not truth


@dataclass(frozen=True, slots=True)
class Either:
    parts: tuple[Node, ...]

    def holds(self, thing: Thing) -> Truth:
        truths = [part.holds(thing) for part in self.parts]
        return True if True in truths else None if None in truths else False


@dataclass(frozen=True, slots=True)
class All:
    parts: tuple[Node, ...]

    def holds(self, thing: Thing) -> Truth:
        truths = [part.holds(thing) for part in self.parts]
        return False if False in truths else None if None in truths else True


@dataclass(frozen=True, slots=True)
class Word:
    kind: str  # sign, quoted, text
    text: str

    @property
    def value(self) -> str:
        return _unquoted(self.text) if self.kind == "quoted" else self.text

    @property
    def path(self) -> tuple[str, ...]:
        """Split a field's name into parts, as in `labels."a.b"`."""
        if self.kind != "text" or self.text in _KEYWORDS:
            raise unparseable(self.text)
        pieces = re.findall(r'"(?:[^"\\]|\\.)*"|[^."]+', self.text)
        return tuple(_unquoted(piece) if piece.startswith('"') else piece for piece in pieces)


Comparison = Callable[[Word, str, Word], Node]
"""Function that returns the node for a field, an operator and a value."""


def parse(text: str, token: re.Pattern[str], comparison: Comparison) -> Node:
    """Parse a filter, or refuse it with INVALID_ARGUMENT.

    `token` has a group for each kind of word; other matches are skipped.
    """
    words, position = [], 0
    while position < len(text):
        match = token.match(text, position)
        if not match:
            raise unparseable(text[position])
        if match.lastgroup:
            words.append(Word(match.lastgroup, match[match.lastgroup]))
        position = match.end()
    return _Parser(words, comparison).everything()


def check_expression(text: str) -> None:
    """Refuse an expression that RE2 does not accept."""
    try:
        re.compile(text)
    except re.error as error:
        raise GUESS.invalid(f"Unparseable filter: regex {text!r}: {error}") from error
    if _NOT_RE2.search(text):
        raise GUESS.invalid(f"Unparseable filter: regex {text!r}: invalid or unsupported Perl syntax")


def moment(text: str) -> str:
    """Normalize a time of RFC 3339, or a date, to a form that sorts as text."""
    match = re.fullmatch(r"(\d{4}-\d\d-\d\d)(?:T(\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(Z|[-+]\d\d:?\d\d))?", text)
    if not match:
        raise GUESS.invalid(f"Unparseable filter: invalid timestamp '{text}'")
    try:
        zone = (match[4] or "Z").replace("Z", "+00:00")
        at = datetime.fromisoformat(f"{match[1]}T{match[2] or '00:00:00'}{zone}").astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise GUESS.invalid(f"Unparseable filter: invalid timestamp '{text}'") from error
    return f"{at:%Y-%m-%dT%H:%M:%S}.{(match[3] or '').ljust(9, '0')}Z"


def unparseable(text: str) -> Refused:
    return GUESS.invalid(f"Unparseable filter: syntax error at {json.dumps(text)}")


def _unquoted(text: str) -> str:
    return re.sub(r"\\(.)", lambda match: {"n": "\n", "t": "\t"}.get(match[1], match[1]), text[1:-1], flags=re.DOTALL)


class _Parser:
    def __init__(self, words: list[Word], comparison: Comparison) -> None:
        self._words = words
        self._comparison = comparison
        self._position = 0
        self._depth = 0

    def everything(self) -> Node:
        if not self._words:
            return All(())
        node = self._all()
        if word := self._next():
            raise unparseable(word.text)
        return node

    def _all(self) -> Node:
        parts = [self._either()]
        while (word := self._next()) and word.text != ")":
            if self._take("AND") and not self._next():
                raise unparseable("AND")
            parts.append(self._either())
        return parts[0] if len(parts) == 1 else All(tuple(parts))

    def _either(self) -> Node:
        parts = [self._one()]
        while self._take("OR"):
            parts.append(self._one())
        return parts[0] if len(parts) == 1 else Either(tuple(parts))

    def _one(self) -> Node:
        if (negated := self._take("NOT") or self._take("-")) or self._take("("):
            self._depth += 1
            if self._depth > MAX_DEPTH:
                raise GUESS.invalid("Unparseable filter: it is nested too deeply")
            node = Not(self._one()) if negated else self._all()
            if not negated:
                self._expect(")")
            self._depth -= 1
            return node
        word = self._pop()
        minus = word.kind == "text" and word.text.startswith("-")
        field = Word(word.kind, word.text[1:]) if minus else word
        sign = self._pop()
        if sign.kind != "sign" or sign.text in "()":
            raise unparseable(sign.text)
        node = self._values(field, sign.text)
        return Not(node) if minus else node

    def _values(self, field: Word, sign: str) -> Node:
        """Parse one value, or several joined by OR or AND: `resource.type = ("a" OR "b")`."""
        if sign in MATCHES or not self._take("("):
            return self._comparison(field, sign, self._value())
        parts = [self._comparison(field, sign, self._value())]
        joint = ""
        while not self._take(")"):
            this = "OR" if self._take("OR") else "AND" if self._take("AND") else ""
            if not this or (joint and this != joint):
                raise unparseable(self._pop().text)
            joint = this
            parts.append(self._comparison(field, sign, self._value()))
        return parts[0] if len(parts) == 1 else (Either if joint == "OR" else All)(tuple(parts))

    def _value(self) -> Word:
        word = self._pop()
        if word.kind == "sign" or (word.kind == "text" and word.text in _KEYWORDS):
            raise unparseable(word.text)
        return word

    def _next(self) -> Word | None:
        return self._words[self._position] if self._position < len(self._words) else None

    def _take(self, text: str) -> bool:
        word = self._next()
        if word and word.kind != "quoted" and word.text == text:
            self._position += 1
            return True
        return False

    def _expect(self, text: str) -> None:
        if not self._take(text):
            raise unparseable(self._pop().text)

    def _pop(self) -> Word:
        word = self._next()
        if word is None:
            raise GUESS.invalid("Unparseable filter: unexpected end of the filter")
        self._position += 1
        return word
