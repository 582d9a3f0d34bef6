"""Conditions of IAM bindings, in the forms of the Common Expression Language that environments use.

    resource.name == "…"   resource.name.startsWith("…")   resource.type == "…"
    api.getAttribute('iam.googleapis.com/modifiedGrantsByRole', []).hasOnly(['roles/…', …])
    true   false

joined by && or by ||. A condition that cannot be parsed is refused when the policy is set, as by Google.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Facts:
    """Properties of a request that a condition can test."""

    resource: str  # full name as in conditions: projects/_/buckets/B/objects/O
    kind: str = ""  # storage.googleapis.com/Object
    granted: tuple[str, ...] = ()  # roles whose grants a policy change touches


_TEXT = r"""(?:"([^"]*)"|'([^']*)')"""
_Test = Callable[[re.Match[str], Facts], bool]
_FORMS: tuple[tuple[re.Pattern[str], _Test], ...] = (
    (re.compile("true|false"), lambda found, facts: found[0] == "true"),
    (re.compile(rf"resource\.name\s*==\s*{_TEXT}"), lambda found, facts: facts.resource == _text(found)),
    (
        re.compile(rf"resource\.name\.startsWith\({_TEXT}\)"),
        lambda found, facts: facts.resource.startswith(_text(found)),
    ),
    (re.compile(rf"resource\.type\s*==\s*{_TEXT}"), lambda found, facts: facts.kind == _text(found)),
    (re.compile(rf"resource\.type\s*!=\s*{_TEXT}"), lambda found, facts: facts.kind != _text(found)),
    (
        re.compile(r"api\.getAttribute\('iam\.googleapis\.com/modifiedGrantsByRole', \[\]\)\.hasOnly\(\[(.*)\]\)"),
        lambda found, facts: set(facts.granted) <= set(re.findall(r"'([^']*)'", found[1])),
    ),
)


def parses(expression: str) -> bool:
    return all(_form(part) is not None for part in _parts(expression))


def holds(expression: str, facts: Facts) -> bool:
    tests = [found for part in _parts(expression) if (found := _form(part))]
    outcomes = [test(found, facts) for found, test in tests]
    return any(outcomes) if "||" in expression else all(outcomes)


def _parts(expression: str) -> list[str]:
    return [part.strip() for part in re.split(r"&&|\|\|", expression)]


def _form(part: str) -> tuple[re.Match[str], _Test] | None:
    return next(((found, test) for pattern, test in _FORMS if (found := pattern.fullmatch(part))), None)


def _text(found: re.Match[str]) -> str:
    return found[1] if found[1] is not None else found[2]
