"""What belongs to nobody may be removed only when it was so for a while: its record may be on the way."""

from __future__ import annotations

from collections.abc import Iterable

MINIMUM_AGE = 60.0
"""Seconds between the first and the second time that something is seen without an owner."""


class Suspects:
    """Of one process: who starts anew begins to count anew."""

    def __init__(self) -> None:
        self._since: dict[str, float] = {}

    def confirmed(self, names: Iterable[str], now: float) -> set[str]:
        """Those of `names` that were seen before, long enough ago. `now` is on the monotonic clock."""
        self._since = {name: self._since.get(name, now) for name in names}
        return {name for name, since in self._since.items() if now - since >= MINIMUM_AGE}
