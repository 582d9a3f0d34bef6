"""Delay the removal of things without an owner, because the record of the owner may be on the way."""

from __future__ import annotations

from collections.abc import Iterable

MINIMUM_AGE = 60.0
"""Seconds between the first and the second time that something is seen without an owner."""


class Suspects:
    """The suspects of one process. A new process starts over."""

    def __init__(self) -> None:
        self._since: dict[str, float] = {}

    def confirmed(self, names: Iterable[str], now: float) -> set[str]:
        """Return those of `names` that were first seen long enough ago. `now` is on the monotonic clock."""
        self._since = {name: self._since.get(name, now) for name in names}
        return {name for name, since in self._since.items() if now - since >= MINIMUM_AGE}
