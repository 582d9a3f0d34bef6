"""Older filters of Compute Engine's lists: RE2 regular expressions that match a whole field.

`name eq literal`, `name ne "literal"`, or several in parentheses, which all must hold: `(name eq a.*) (status eq UP)`.
AND and OR are refused in them (https://github.com/googleapis/nodejs-compute/issues/48), and so are lists
(https://github.com/googleapis/google-api-ruby-client/issues/500). gcloud converts --filter to such filters, with nested
parentheses. Comparing a missing field as empty text, or as its default, is a guess.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from tpubox.google.wire.filter_fields import Field
from tpubox.google.wire.filter_grammar import MAX_DEPTH, All, Node, Thing, Word, check_expression, unparseable

_BEGINNING = re.compile(r"[(\s]*[\w.-]+\s+(eq|ne)\s")
_TERM = re.compile(r"""([\w.-]+)\s+(eq|ne)\s+("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|[^\s"']\S*)""", re.DOTALL)
_GROUP_PART = re.compile(r""""(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|.""", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Match:
    field: Field
    expression: str
    equal: bool

    def holds(self, thing: Thing) -> bool:
        texts = [str(value).lower() if isinstance(value, bool) else str(value) for value in self.field.values(thing)]
        return any(re.fullmatch(self.expression, text) for text in texts or [""]) == self.equal


def is_one(text: str) -> bool:
    return _BEGINNING.match(text) is not None


def parse(text: str, find: Callable[[Word], Field], depth: int = 0) -> Node:
    text = text.strip()
    if not text.startswith("("):
        return _match(text, find)
    if depth > MAX_DEPTH:
        raise unparseable("(")
    parts = []
    while text:
        end = _end_of_group(text)
        parts.append(parse(text[1 : end - 1], find, depth + 1))
        text = text[end:].lstrip()
    return All(tuple(parts))


def _match(text: str, find: Callable[[Word], Field]) -> Node:
    found = _TERM.fullmatch(text)
    if not found:
        raise unparseable(text)
    field = find(Word("text", found[1]))
    if field.many or not field.plain:
        raise unparseable(found[1])
    # A backslash before a quote has no meaning in an expression.
    expression = found[3][1:-1] if found[3][0] in "\"'" else found[3]
    check_expression(expression)
    return Match(field, expression, found[2] == "eq")


def _end_of_group(text: str) -> int:
    depth = 0
    for part in _GROUP_PART.finditer(text):
        depth += {"(": 1, ")": -1}.get(part[0], 0)
        if depth == 0:
            if part[0] != ")":
                break
            return part.end()
    raise unparseable(text)
