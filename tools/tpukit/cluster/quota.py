"""Check whether the project's quota allows the slices to be created, and report what is unknown.

Compute Engine lists the quotas of some generations for each region, with their usage. Cloud Quotas has those
of the others: https://cloud.google.com/kubernetes-engine/docs/how-to/tpus#ensure-quota
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tpukit.cluster import checks, family_quota, gcloud
from tpukit.cluster.family_quota import Family
from tpukit.cluster.machine_quota import ASK, NOT_ENOUGH, judged
from tpukit.cluster.programs import Command
from tpukit.cluster.spec import ClusterSpec
from tpukit.core.errors import TpukitError
from tpukit.core.quantities import counted

_METRICS = {"v4": "TPU_PODSLICE_V4", "v5e": "TPU_LITE_PODSLICE_V5"}
"""Metrics by generation: https://cloud.google.com/compute/docs/reference/rest/v1/regions"""
_PREEMPTIBLE = ("spot", "flex-start")


@dataclass(frozen=True, slots=True)
class Need:
    """Chips of one generation and capacity. Reserved chips take no quota."""

    generation: str
    preemptible: bool
    chips: int

    @property
    def metric(self) -> str:
        """The name in Compute Engine's list, or "" if it lists none."""
        name = _METRICS.get(self.generation, "")
        return f"PREEMPTIBLE_{name}" if name and self.preemptible else name

    @property
    def family(self) -> Family | None:
        """The quota's place in Cloud Quotas, if it has one."""
        return family_quota.of(self.generation, preemptible=self.preemptible)


def needs(spec: ClusterSpec, pools: Collection[str] | None = None) -> list[Need]:
    """Return the needs of the given pools, or of all."""
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


def questions(spec: ClusterSpec, wanted: Sequence[Need]) -> dict[str, Command]:
    """Return the commands that read from Cloud Quotas what the region's list lacks, by id."""
    ids = dict.fromkeys(need.family.id for need in wanted if need.family)
    return {
        one: gcloud.command(
            *("beta", "quotas", "info", "describe", one, "--service=compute.googleapis.com"),
            *(f"--project={spec.project_id}", "--format=json"),
        )
        for one in ids
    }


def read_families(spec: ClusterSpec, wanted: Sequence[Need]) -> dict[str, Mapping[str, Any] | str]:
    """Return what Cloud Quotas reports for each id, or why it cannot be read."""
    found: dict[str, Mapping[str, Any] | str] = {}
    for one, command in questions(spec, wanted).items():
        try:
            found[one] = gcloud.read_json(command, "reading quotas") or {}
        except TpukitError as error:
            found[one] = error.message
    return found


def read(spec: ClusterSpec) -> list[Mapping[str, Any]] | str:
    """Return the quotas of the region, or why they cannot be read."""
    try:
        answer = gcloud.read_json(question(spec), "reading quotas")
    except TpukitError as error:
        return error.message
    return list((answer or {}).get("quotas") or [])


def lines(
    region: str,
    wanted: Sequence[Need],
    quotas: Sequence[Mapping[str, Any]] | str,
    families: Mapping[str, Mapping[str, Any] | str] | None = None,
) -> Iterator[str]:
    """Yield lines for the user to read before confirming."""
    for need in wanted:
        if need.family and families is not None:
            yield _of_family(region, need, need.family, families.get(need.family.id, {}))
            continue
        what = f"{counted(need.chips, 'more chip')} of {need.generation}{' (preemptible)' if need.preemptible else ''}"
        if isinstance(quotas, str):
            yield f"Quota for {what} in {region}: unknown ({quotas.splitlines()[0]})"
            continue
        found = next((one for one in quotas if need.metric and one.get("metric") == need.metric), None)
        if found is None:
            yield f"Quota for {what} in {region}: unknown here; {ASK} shows it"
            continue
        yield judged(what, region, need.metric, need.chips, found)


def _of_family(region: str, need: Need, family: Family, info: Mapping[str, Any] | str) -> str:
    """Return the line for a quota without known usage, where a sufficient limit is no guarantee."""
    what = f"{counted(need.chips, 'more chip')} of {need.generation}{' (preemptible)' if need.preemptible else ''}"
    if isinstance(info, str):
        return f"Quota for {what} in {region}: unknown ({info.splitlines()[0]})"
    limit = family_quota.limit(info, region, family.dimensions)
    if limit is None:
        return f"Quota for {what} in {region}: none is set ({family.id}), which may mean 0; {ASK} shows it"
    if limit < need.chips:
        return f"Quota for {what} in {region}: the limit is {limit} ({family.id}): {NOT_ENOUGH}: request more at {ASK}"
    return f"Quota for {what} in {region}: the limit is {limit} ({family.id}); its present use is unknown here"
