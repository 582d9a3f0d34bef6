"""Send recorded requests to the sandbox's Google, in this process and with a stopped clock."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from replay.comparing import Compared, compare
from replay.recordings import Exchange
from support.google_world import PROJECT, World
from tpubox.google import APIS
from tpubox.google.wire.settings import number_of

_NAME = re.compile(r"\$\{(\w+)\}")
_PROJECT = re.compile(r"(?:^|/)projects/([a-z][-a-z0-9]{4,28})(?=[/:]|$)")
_OPERATION = re.compile(r"(^|/)operations/")
_NUMBERS = {"selfLinkWithId", "targetId"}
"""Fields that contain a number, recorded under the same placeholder as the name."""
_LASTING = ("projectId", "projectNumber", "uniqueId")
_LONG = 3600.0
"""Seconds after which every operation of the sandbox has ended."""
_CHECKED = ("etag", "fingerprint", "labelFingerprint")
"""Fields that a change must repeat from the answer read before it."""


@dataclass(frozen=True, slots=True)
class Played:
    exchange: Exchange
    api: str
    path: str  # as it was sent
    served: bool
    given: int  # the status
    answer: Any
    compared: Compared


def api_name(exchange: Exchange) -> str | None:
    """Return the sandbox's name of the API that a host serves, or None if it has none."""
    for api in APIS:
        if api.document and exchange.host in (api.service, f"us-central1-{api.service}"):
            return api.name
    return None


def play(exchanges: list[Exchange], folder: Path) -> Iterator[Played]:
    """Yield the exchanges of one conversation with APIs that the sandbox has, in a separate cloud."""
    names = {"projectId": PROJECT, "projectNumber": number_of(PROJECT), "uniqueId": "u1d2"}
    others = {found[1] for one in exchanges if (found := _PROJECT.search(one.path))} - {PROJECT}
    with World(folder, seconds={"": 1.0}, projects=(PROJECT, *sorted(others))) as world:
        player = _Player(world, names)
        for exchange in exchanges:
            if name := api_name(exchange):
                yield player.play(exchange, name)


class _Player:
    def __init__(self, world: World, names: dict[str, str]) -> None:
        self._world, self._names = world, names
        self._last: dict[str, Any] = {}  # answers by path
        self._unserved = False  # the latest request that changes something
        self._groups: dict[str, str] = {}  # instance groups of node pools: recorded name to name here

    def play(self, exchange: Exchange, name: str) -> Played:
        path = self._filled(exchange.path)
        path = path if path.startswith(f"{name}/") or f"/{name}/" in f"/{path}" else f"{name}/{path}"
        if _has_ended(exchange.answer):
            self._world.pass_time(_LONG)
        query = {key: self._filled(value) for key, value in exchange.query.items()}
        body = self._body(exchange, path)
        recorded = json.loads(self._known(json.dumps(exchange.answer)))
        status, answer = self._world.send(exchange.method, path, body, **query)
        self._learn(exchange.answer, answer)
        if status < 300:
            self._last[path.partition(":")[0]] = answer
        served = status != 501 and not (self._unserved and _OPERATION.search(exchange.path))
        if exchange.method != "GET" and not _OPERATION.search(exchange.path):
            self._unserved = not served
        return Played(exchange, name, path, served, status, answer, compare(exchange.status, recorded, status, answer))

    def _body(self, exchange: Exchange, path: str) -> Any:
        if exchange.body is None:
            return None
        body = self._filled_in(exchange.body)
        last = self._last.get(path.partition(":")[0])
        return _renewed(body, last) if isinstance(last, dict) else body

    def _filled(self, text: str) -> str:
        for recorded, given in self._groups.items():
            text = text.replace(recorded, given)
        return _NAME.sub(lambda found: self._names.get(found[1]) or f"{found[1].lower()}-u1d2", text)

    def _filled_in(self, value: Any) -> Any:
        return None if value is None else json.loads(self._filled(json.dumps(value)))

    def _learn(self, recorded: Any, given: Any) -> None:
        """Take from an answer the identifiers that later requests repeat, such as that of an operation."""
        if isinstance(recorded, dict) and isinstance(given, dict):
            for name in (recorded.keys() & given.keys()) - _NUMBERS:
                if name == "instanceGroupUrls":
                    self._learn_groups(recorded[name], given[name])
                self._learn(recorded[name], given[name])
        elif isinstance(recorded, list) and isinstance(given, list):
            for one, other in zip(recorded, given, strict=False):
                self._learn(one, other)
        elif isinstance(recorded, str) and isinstance(given, str):
            text = self._known(recorded)
            unknown = _NAME.findall(text)
            if len(unknown) == 1 and (found := re.fullmatch(_pattern(text), given)):
                self._names[unknown[0]] = found[1]

    def _learn_groups(self, recorded: list[str], given: list[str]) -> None:
        if len(recorded) == len(given):
            groups = [one.rpartition("/")[2] for one in recorded], [one.rpartition("/")[2] for one in given]
            self._groups |= {old: new for old, new in zip(*groups, strict=True) if old.endswith("-grp")}

    def _known(self, text: str) -> str:
        """Fill in the names that have the same meaning throughout a conversation."""
        return _NAME.sub(lambda found: self._names[found[1]] if found[1] in _LASTING else found[0], text)


def _pattern(text: str) -> str:
    before, _, after = _NAME.sub("\0", text).partition("\0")
    return f"{re.escape(before)}([^/]+){re.escape(after)}"


def _has_ended(answer: Any) -> bool:
    """Recognize answers that show a result: an ended operation, or anything but an operation."""
    if not isinstance(answer, dict):
        return True
    return answer.get("done") is True or answer.get("status") == "DONE" or not _is_operation(answer)


def _is_operation(answer: dict[str, Any]) -> bool:
    return "operationType" in answer or "operations/" in str(answer.get("name", ""))


def _renewed(body: Any, last: dict[str, Any]) -> Any:
    if not isinstance(body, dict):
        return body
    result = dict(body)
    for name, value in body.items():
        if name in _CHECKED and name in last:
            result[name] = last[name]
        elif isinstance(value, dict):
            result[name] = _renewed(value, last)
    return result
