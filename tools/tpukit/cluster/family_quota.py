"""Quotas of TPU chips that Compute Engine's list of a region does not show: those of v5p, v6e and tpu7x.

Cloud Quotas has them by id and dimensions, as a QuotaInfo: https://cloud.google.com/docs/quotas/reference/rest.
On-demand chips of the newest generations share one id, set apart by the dimension `tpu_family`; preemptible ones have
an id for each generation (https://cloud.google.com/compute/resource-usage#tpu_quota). It has limits, but no usage.
Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

_FAMILIES = "TPUS-PER-TPU-FAMILY-per-project-region"


@dataclass(frozen=True, slots=True)
class Family:
    id: str
    dimensions: Mapping[str, str] = field(default_factory=dict)


_ON_DEMAND = {
    "v5p": Family("TPU-V5P-per-project-region"),
    "v6e": Family(_FAMILIES, {"tpu_family": "CT6E"}),
    "tpu7x": Family(_FAMILIES, {"tpu_family": "tpu7x"}),
}
_PREEMPTIBLE = {
    "v5p": Family("PREEMPTIBLE-TPU-V5P-per-project-region"),
    "v6e": Family("PREEMPTIBLE-TPU-V6E-per-project-region"),
    "tpu7x": Family("PREEMPTIBLE-TPU7X-per-project-region"),
}


def of(generation: str, *, preemptible: bool) -> Family | None:
    """Return the quota of a generation; None if the region's own list has it, or no source names it."""
    return (_PREEMPTIBLE if preemptible else _ON_DEMAND).get(generation)


def limit(info: Mapping[str, Any], region: str, dimensions: Mapping[str, str]) -> int | None:
    """Return the limit for a region from the QuotaInfo; None if it names none.

    The entry with the most dimensions applies: one without a region covers all regions without their own.
    """
    wanted = {key.lower(): value.lower() for key, value in {"region": region, **dimensions}.items()}
    held = [(len(of_entry), value) for of_entry, value in _entries(info) if of_entry.items() <= wanted.items()]
    return max(held)[1] if held else None


def _entries(info: Mapping[str, Any]) -> Iterator[tuple[dict[str, str], int]]:
    for one in info.get("dimensionsInfos") or []:
        value = (one.get("details") or {}).get("value")
        if value is not None:
            yield {key.lower(): str(of).lower() for key, of in (one.get("dimensions") or {}).items()}, int(value)
