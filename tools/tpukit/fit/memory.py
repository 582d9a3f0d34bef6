"""Memory of a chip by use, from the arguments of a compiled function and the compiler's totals. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

_OPTIMIZER = re.compile(r"opt|momentum|velocity|adam|\b(mu|nu|trace|ema)\b|moment", re.IGNORECASE)
_PARAMETERS = re.compile(r"param|weight|model|kernel|embed", re.IGNORECASE)
_REQUIRED = re.compile(r"\((\d+(?:\.\d+)?)([KMGT]?)\) exceeds available (?:HBM|memory) \((\d+(?:\.\d+)?)([KMGT]?)\)")
_USED = re.compile(r"Used (\d+(?:\.\d+)?)([KMGT]?) of (\d+(?:\.\d+)?)([KMGT]?) hbm", re.IGNORECASE)
_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes of one chip. `peak` is the highest need of the step; `available` is the limit for the compiler."""

    parameters: float
    optimizer: float
    other_arguments: float
    temporaries: float
    peak: float
    available: float

    @property
    def over(self) -> float:
        return self.peak - self.available


def of(record: Mapping[str, Any], hbm_bytes: float) -> Memory:
    """Return the memory of a function that compiled or did not fit."""
    groups = {"parameters": 0.0, "optimizer": 0.0, "other": 0.0}
    for one in record["arguments"]:
        groups[holder(one["name"])] += one["bytes"]
    beside = sum(one["bytes"] for one in record.get("others", ()))
    held = sum(groups.values())
    stats = record.get("memory")
    if stats:
        # The compiler's total pads arrays to whole tiles, which argument sizes do not show.
        padding = max(0.0, stats["argument"] - held)
        results = max(0.0, stats["output"] - stats["alias"])
        total = max(stats["peak"], stats["argument"] + stats["temp"] + results) + beside
        temporaries = total - beside - held - padding
        return Memory(*groups_of(groups, padding + beside), temporaries, total, hbm_bytes)
    required, available = limits(record.get("error", {}).get("text", ""))
    temporaries = required or 0.0
    peak = (
        temporaries
        if temporaries > held + beside and "temporaries" not in record["error"]["text"]
        else temporaries + held + beside
    )
    return Memory(*groups_of(groups, beside), max(0.0, peak - held - beside), peak, available or hbm_bytes)


def groups_of(groups: Mapping[str, float], more: float) -> tuple[float, float, float]:
    return groups["parameters"], groups["optimizer"], groups["other"] + more


def holder(name: str) -> str:
    """Return the most likely use of an argument with this name: parameters, optimizer or other."""
    if _OPTIMIZER.search(name):
        return "optimizer"
    return "parameters" if _PARAMETERS.search(name) else "other"


def limits(text: str) -> tuple[float | None, float | None]:
    """Return bytes required and bytes available from the compiler's error, if it states them."""
    found = _REQUIRED.search(text) or _USED.search(text)
    if not found:
        return None, None
    return float(found[1]) * _UNITS[found[2]], float(found[3]) * _UNITS[found[4]]


def largest(arguments: Iterable[Mapping[str, Any]], count: int) -> list[Mapping[str, Any]]:
    return sorted(arguments, key=lambda one: -float(one["bytes"]))[:count]
