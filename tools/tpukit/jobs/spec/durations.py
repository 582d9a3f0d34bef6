"""Durations as users write them (90s, 30m, 12h, 7d), stored in seconds."""

from __future__ import annotations

import re

SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
PATTERN = r"^[0-9]{1,8}[smhd]$"


def parse(text: str) -> int:
    """Return the seconds of a duration. Raise ValueError for anything else."""
    if not re.fullmatch(PATTERN, text):
        raise ValueError(f"not a duration: {text!r}")
    return int(text[:-1]) * SECONDS[text[-1]]


def write(seconds: int) -> str:
    """Return the shortest spelling of a number of seconds: 90s for 90, 2h for 7200."""
    unit = max((unit for unit in SECONDS if seconds % SECONDS[unit] == 0), key=SECONDS.__getitem__)
    return f"{seconds // SECONDS[unit]}{unit}"
