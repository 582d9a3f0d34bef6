"""What all specs have in common: frozen, strict, and to JSON and back without loss."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from tpukit.errors import Invalid, Problem
from tpukit.spec.document import Node
from tpukit.spec.problems import problems

MOST = 100
"""Problems worth reading at once: a file with more of them is not a spec."""


class Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    @model_validator(mode="before")
    @classmethod
    def _without_nothing(cls, value: object) -> object:
        """A key with nothing behind it was not given: its lines may be commented out."""
        if not isinstance(value, Mapping):
            return value
        return {key: item for key, item in value.items() if item is not None or key not in cls.model_fields}

    def to_json(self) -> dict[str, Any]:
        """Plain data that `from_json` takes back; what was left out stays out."""
        return self.model_dump(mode="json", exclude_none=True)

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Self:
        try:
            return cls.model_validate(dict(document))
        except ValidationError as error:
            raise Invalid(problems(error, cls)) from error

    @classmethod
    def from_node(cls, root: Node, found: Iterable[Problem] = (), aliases: Collection[str] = ()) -> Self:
        """The spec that was written there. Raises Invalid with all that is wrong in it or was `found` wrong before."""
        wrong = list(found)
        try:
            spec = cls.model_validate(root.plain())
        except ValidationError as error:
            wrong += problems(error, cls, root, aliases)
        if wrong:
            wrong.sort(key=_line)
            more = [Problem("", f"and {len(wrong) - MOST} more problems")] if len(wrong) > MOST else []
            raise Invalid(wrong[:MOST] + more)
        return spec


def _line(problem: Problem) -> float:
    """For reading from the top of the file down; what has no line comes after it."""
    match = re.search(r":([0-9]+)$", problem.where)
    return int(match[1]) if match else float("inf")


def digest(document: Mapping[str, Any]) -> str:
    """The same for the same content, whatever the order of its keys."""
    return hashlib.sha256(json.dumps(document, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
