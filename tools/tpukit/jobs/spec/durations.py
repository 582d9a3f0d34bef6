"""Durations as people write them (90s, 30m, 12h, 7d), kept as seconds."""

from __future__ import annotations

import re

SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
PATTERN = r"^[0-9]{1,8}[smhd]$"


def parse(text: str) -> int:
    """Seconds in a duration. Raises ValueError for anything else."""
    if not re.fullmatch(PATTERN, text):
        raise ValueError(f"not a duration: {text!r}")
    return int(text[:-1]) * SECONDS[text[-1]]


def write(seconds: int) -> str:
    """The shortest way to write so many seconds: 90 is 90s, 7200 is 2h."""
    unit = max((unit for unit in SECONDS if seconds % SECONDS[unit] == 0), key=SECONDS.__getitem__)
    return f"{seconds // SECONDS[unit]}{unit}"
