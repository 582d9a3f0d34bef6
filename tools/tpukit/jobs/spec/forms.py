"""Forms of texts in a spec, and errors that suggest a valid text.

A form is checked here and printed in the JSON Schema, so that editors and `tpu` refuse the same things.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NoReturn

Path = tuple[str | int, ...]
Violation = tuple[Path, str, str]
"""A path below the checked value, what is wrong there, and what to write instead.

Without a hint, the message offers an example of the field.
"""


class Refusal(Exception):
    """The problems of a value that was checked."""

    def __init__(self, violations: Sequence[Violation]) -> None:
        super().__init__("; ".join(what for _, what, _ in violations))
        self.violations = tuple(violations)


def refuse(what: str, hint: str = "") -> NoReturn:
    raise Refusal([((), what, hint)])


def shown(value: object) -> str:
    """Return a wrong value as messages show it: short, and on one line."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, (list, tuple)):
        return "a list"
    text = value if isinstance(value, str) else str(value)
    text = text if len(text) <= 60 else text[:60] + "…"
    return repr(text) if isinstance(value, str) else text


def sound(text: str) -> str:
    """Check that text can be a program argument, an environment value and JSON."""
    if "\0" in text:
        refuse("the text has a NUL character", "remove it: no program can receive one")
    try:
        text.encode()
    except UnicodeEncodeError:
        refuse("the text is not UTF-8", "write it in UTF-8")
    return text


def dashed(text: str) -> str:
    """Turn text into a label, for a suggestion."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


@dataclass(frozen=True, slots=True)
class Form:
    """A pattern that the whole text has to match, with its description."""

    pattern: str
    words: str
    longest: int
    mend: Callable[[str], str] | None = None  # turns an invalid text into a valid one, where one is obvious

    def fits(self, text: str) -> bool:
        return len(text) <= self.longest and re.fullmatch(self.pattern, text, re.ASCII) is not None

    def check(self, text: str) -> str:
        sound(text)
        if len(text) > self.longest:
            refuse(f"{shown(text)} is longer than {self.longest} characters", self.words)
        if not self.fits(text):
            mended = self.mend(text)[: self.longest] if self.mend else ""
            refuse(f"{shown(text)} is not allowed", f"write {mended}" if self.fits(mended) else self.words)
        return text
