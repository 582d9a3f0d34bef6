"""Compare an answer with the recorded one, field by field."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

_ANY = re.compile(
    r".*\$\{.*"  # a replaced identifier
    r"|\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d.*"  # a time
    r"|abcdef0123A?=?|abcd1234|1234567890abcdefghijkl?mn|0{12,}"  # fingerprints, etags, identifiers
    r"|\d+\.\d+\.\d+(-gke\.\d+)?"  # a version
    r"|(\d{1,3}\.){3}\d{1,3}(/\d{1,2})?"  # an address
    r"|.*/instanceGroupManagers/gke-.*"  # names with a part that Google generates
    r"|gke-[0-9a-f]{20,}-.*|LS0tLS1CRUdJTiB.*"  # endpoints and certificates
    r"|.*(12345trewq|containercluster-abcdef|-pods-12345678).*"
)
"""Recorded values of which only the presence counts."""
_BETA = re.compile(r"(?<=googleapis\.com)/v1beta1/|(?<=/compute)/(beta|v1beta1)/")
_VOLATILE = frozenset(
    (
        *("creationTimestamp", "etag", "fingerprint", "generation", "id", "insertTime", "labelFingerprint"),
        *(
            "metageneration",
            "numericId",
            "oauth2ClientId",
            "progress",
            "projectNumber",
            "startTime",
            "targetId",
            "uniqueId",
            "user",
        ),
    )
)
"""Fields whose value the cloud chooses."""


@dataclass(frozen=True, slots=True)
class Difference:
    path: str  # nodePools[].management.autoRepair
    recorded: Any
    given: Any = None
    missing: bool = False


@dataclass(frozen=True, slots=True)
class Compared:
    fields: int
    missing: int
    differences: tuple[Difference, ...]
    status: bool  # the status matches

    @property
    def agrees(self) -> bool:
        return self.status and not self.differences


def compare(status: int, recorded: Any, given_status: int, given: Any) -> Compared:
    """Compare two answers: fields that Google gave and that the sandbox left out or gave differently.

    Where the status differs, every field is missing.
    """
    if _is_policy(recorded):
        recorded = {name: value for name, value in recorded.items() if name != "bindings"}
    found = len(list(_leaves("", recorded)))
    if status != given_status:
        return Compared(found, found, (), False)
    differences = tuple(_differences("", recorded, given))
    return Compared(found, sum(one.missing for one in differences), differences, True)


def _is_policy(answer: Any) -> bool:
    """Recognize a policy. Its bindings are those of the project it was recorded in."""
    return isinstance(answer, dict) and "bindings" in answer and "etag" in answer


def _leaves(path: str, value: Any) -> Iterator[str]:
    if isinstance(value, dict) and value:
        for name, inner in value.items():
            yield from _leaves(f"{path}.{name}".lstrip("."), inner)
    elif isinstance(value, list) and value:
        for inner in value:
            yield from _leaves(f"{path}[]", inner)
    elif value is not None:
        yield path


def _differences(path: str, recorded: Any, given: Any) -> Iterator[Difference]:
    if isinstance(recorded, dict) and recorded:
        there = given if isinstance(given, dict) else {}
        for name, inner in recorded.items():
            below = f"{path}.{name}".lstrip(".")
            if name not in there:
                yield from (Difference(leaf, _at(inner), missing=True) for leaf in _leaves(below, inner))
            else:
                yield from _differences(below, inner, there[name])
    elif isinstance(recorded, list) and recorded:
        yield from _of_lists(path, recorded, given if isinstance(given, list) else [])
    elif recorded is not None and not _same(path, recorded, given):
        yield Difference(path, recorded, given)


def _of_lists(path: str, recorded: list[Any], given: list[Any]) -> Iterator[Difference]:
    """Compare lists item by item, matching items by name where they have one."""
    named = {item["name"]: item for item in given if isinstance(item, dict) and isinstance(item.get("name"), str)}
    for number, inner in enumerate(recorded):
        there = named.get(inner.get("name")) if isinstance(inner, dict) else None
        if there is None and number < len(given):
            there = given[number]
        if isinstance(inner, str) and inner in given:
            continue
        if there is None:
            yield from (Difference(leaf, _at(inner), missing=True) for leaf in _leaves(f"{path}[]", inner))
        else:
            yield from _differences(f"{path}[]", inner, there)


def _at(value: Any) -> Any:
    return value if not isinstance(value, dict | list) else "..."


def _same(path: str, recorded: Any, given: Any) -> bool:
    if recorded in ({}, []):
        return given in ({}, []) or isinstance(given, type(recorded))
    if isinstance(recorded, str):
        recorded = _BETA.sub("/v1/", recorded)  # links name the version that was called
    if recorded == given:
        return True
    if given is None:
        return False
    if path.rpartition(".")[2].removesuffix("[]") in _VOLATILE:
        return True
    return isinstance(recorded, str) and bool(_ANY.fullmatch(recorded)) and isinstance(given, str)
