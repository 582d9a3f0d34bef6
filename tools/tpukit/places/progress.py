"""How far a host is, as it last said itself. Any program may write that file, so nothing in it is taken for granted."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Progress:
    step: int | None = None
    loss: float | None = None
    steps_per_s: float | None = None
    saved: int = -1
    moved: float = 0.0


def read(file: Path) -> Progress:
    try:
        value = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return Progress()
    if not isinstance(value, dict):
        return Progress()
    saved = _whole(value.get("saved"))
    return Progress(
        step=_whole(value.get("step")),
        loss=_number(value.get("loss")),
        steps_per_s=_number(value.get("steps_per_s")),
        saved=-1 if saved is None else saved,
        moved=_number(value.get("time")) or 0.0,
    )


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, (int, float)) and math.isfinite(value) else None


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) else None
