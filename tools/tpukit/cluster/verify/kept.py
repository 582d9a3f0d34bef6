"""The last verification of each cluster, in a file of this machine."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from tpukit.cluster.verify.checks import Result


class Kept:
    """The results of the last verification of one cluster. `identity` is the same after every change of its address."""

    def __init__(self, folder: Path, identity: str) -> None:
        self._path = folder / "verify" / f"{hashlib.sha256(identity.encode()).hexdigest()[:16]}.json"

    def read(self) -> tuple[float, list[Result]]:
        """Return when the last verification ended and its results; 0 and none if there is none that can be read."""
        with suppress(OSError, ValueError, KeyError, TypeError):
            document = json.loads(self._path.read_text(encoding="utf-8"))
            return float(document["at"]), [Result.from_json(one) for one in document["results"]]
        return 0.0, []

    def write(self, at: float, results: Iterable[Result]) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        text = json.dumps({"at": at, "results": [one.to_json() for one in results]})
        draft = self._path.with_suffix(".new")
        draft.write_text(text, encoding="utf-8")
        draft.replace(self._path)


def merged(before: Sequence[Result], now: Sequence[Result], *, partial: bool) -> list[Result]:
    """Return what to keep. A partial verification leaves the results of the other targets."""
    targets = {one.target for one in now}
    return [*(one for one in before if partial and one.target not in targets), *now]


def comparable(before: Sequence[Result], now: Sequence[Result], *, partial: bool) -> list[Result]:
    """Return the earlier results to compare with: a partial verification says nothing about other targets."""
    targets = {one.target for one in now}
    return [one for one in before if not partial or one.target in targets]
