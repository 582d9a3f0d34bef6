"""Whether the project's quota allows the slices that are to be made. What cannot be known beforehand is said to be so.

Compute Engine lists the quotas of some generations for each region. Those of the others have a dimension that this list
does not show: https://cloud.google.com/kubernetes-engine/docs/how-to/tpus#ensure-quota
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tpukit.errors import TpukitError
from tpukit.infra import checks, gcloud
from tpukit.infra.programs import Command
from tpukit.infra.spec import ClusterSpec
from tpukit.quantities import counted

_METRICS = {"v4": "TPU_PODSLICE_V4", "v5e": "TPU_LITE_PODSLICE_V5"}
"""https://cloud.google.com/compute/docs/reference/rest/v1/regions"""
_PREEMPTIBLE = ("spot", "flex-start")
_ASK = "https://console.cloud.google.com/iam-admin/quotas"


@dataclass(frozen=True, slots=True)
class Need:
    """Chips of one generation, paid for in one way. Reserved ones take no quota."""

    generation: str
    preemptible: bool
    chips: int

    @property
    def metric(self) -> str:
        """Empty where Compute Engine lists none."""
        name = _METRICS.get(self.generation, "")
        return f"PREEMPTIBLE_{name}" if name and self.preemptible else name


def needs(spec: ClusterSpec, pools: Collection[str] | None = None) -> list[Need]:
    """Of the pools named, or of all."""
    chips: dict[tuple[str, bool], int] = {}
    said = checks.pools(spec.to_json())
    for name, shape in spec.shapes.items():
        capacity = said[name]["capacity"]
        if capacity != "reservation" and (pools is None or name in pools):
            key = shape.generation, capacity in _PREEMPTIBLE
            chips[key] = chips.get(key, 0) + shape.chips
    return [Need(generation, preemptible, count) for (generation, preemptible), count in chips.items()]


def question(spec: ClusterSpec) -> Command:
    return gcloud.command(
        "compute", "regions", "describe", spec.region, f"--project={spec.project_id}", "--format=json(quotas)"
    )


def read(spec: ClusterSpec) -> list[Mapping[str, Any]] | str:
    """The quotas of the region, or why they cannot be read."""
    try:
        answer = gcloud.read_json(question(spec), "reading quotas")
    except TpukitError as error:
        return error.message
    return list((answer or {}).get("quotas") or [])


def lines(region: str, wanted: Sequence[Need], quotas: Sequence[Mapping[str, Any]] | str) -> Iterator[str]:
    """For a person, before the question."""
    for need in wanted:
        what = f"{counted(need.chips, 'more chip')} of {need.generation}{' (preemptible)' if need.preemptible else ''}"
        if isinstance(quotas, str):
            yield f"Quota for {what} in {region}: unknown ({quotas.splitlines()[0]})"
            continue
        found = next((one for one in quotas if need.metric and one.get("metric") == need.metric), None)
        if found is None:
            yield f"Quota for {what} in {region}: unknown here; {_ASK} shows it"
            continue
        limit, used = int(found["limit"]), int(found["usage"])
        enough = "enough" if used + need.chips <= limit else f"NOT ENOUGH: ask for more at {_ASK}"
        yield f"Quota for {what} in {region}: {limit - used} of {limit} are free ({need.metric}): {enough}"
