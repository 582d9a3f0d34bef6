"""Quotas of a region that machines take besides chips: disks, CPUs, machines and addresses. Pure.

Compute Engine lists them with their usage: https://cloud.google.com/compute/docs/reference/rest/v1/regions
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tpukit.cluster import boot_disks
from tpukit.cluster.boot_disks import Disk
from tpukit.cluster.spec import ClusterSpec
from tpukit.core.quantities import counted

ASK = "https://console.cloud.google.com/iam-admin/quotas"
NOT_ENOUGH = "NOT ENOUGH"
_DISKS = {
    "pd-standard": "DISKS_TOTAL_GB",
    "pd-balanced": "SSD_TOTAL_GB",
    "pd-ssd": "SSD_TOTAL_GB",
    "hyperdisk-balanced": "HDB_TOTAL_GB",
}
_CPUS = {"e2": "CPUS", "n1": "CPUS"}
_CPUS |= {family: f"{family.upper()}_CPUS" for family in ("c2", "c2d", "c3", "n2", "n2d", "t2a", "t2d")}
_FIRST_DISK = Disk("pd-balanced", 100)
"""Boot disk of the node that GKE creates with a cluster, and that is removed after."""


@dataclass(frozen=True, slots=True)
class Amount:
    what: str
    metric: str  # in Compute Engine's list, or "" if it lists none
    count: int


def needs(
    spec: ClusterSpec, pools: Collection[str] | None, *, cluster: bool, cpu_pool: bool, nat: bool
) -> list[Amount]:
    """Return what creating these pools takes; with None, all pools. Slices that come with jobs take it later."""
    capacities = {name: kind.capacity for name, kind in zip(spec.shapes, spec.kinds, strict=True)}
    at_once = {
        name
        for name in spec.shapes
        if (pools is None or name in pools) and not spec.enable_tpu_autoscaling and capacities[name] != "flex-start"
    }
    disks = boot_disks.of_hosts(spec, at_once)
    nodes = (spec.cpu_pool_node_count if cpu_pool else 0) + cluster
    if cpu_pool:
        disks[boot_disks.of_cpu_nodes(spec)] += spec.cpu_pool_node_count
    if cluster:
        disks[_FIRST_DISK] += 1
    sizes: Counter[str] = Counter()
    for disk, count in disks.items():
        sizes[disk.type] += count * disk.gb
    hosts = sum(spec.shapes[name].hosts for name in at_once)
    family, _, size = spec.cpu_pool_machine_type.partition("-")
    cpus = int(size.rpartition("-")[2]) * nodes if size.rpartition("-")[2].isdecimal() else 0
    wanted = [Amount(f"{gb} GB of {kind}", _DISKS.get(kind, ""), gb) for kind, gb in sizes.items()]
    wanted.append(Amount(f"{counted(cpus, 'CPU')} of {family}", _CPUS.get(family, ""), cpus))
    wanted.append(Amount(counted(nodes + hosts, "machine"), "INSTANCES", nodes + hosts))
    if nat:
        wanted.append(Amount("1 external address", "IN_USE_ADDRESSES", 1))
    return [one for one in wanted if one.count]


def lines(region: str, wanted: Sequence[Amount], quotas: Sequence[Mapping[str, Any]] | str) -> Iterator[str]:
    """Yield a line for each quota that is known, and one for all others."""
    listed = {} if isinstance(quotas, str) else {str(one.get("metric")): one for one in quotas}
    for one in wanted:
        if found := listed.get(one.metric):
            yield judged(one.what, region, one.metric, one.count, found)
    if unknown := [one.what for one in wanted if one.metric not in listed]:
        yield f"Quota for {', '.join(unknown)} in {region}: unknown here; {ASK} shows it"


def judged(what: str, region: str, metric: str, count: int, found: Mapping[str, Any]) -> str:
    """Return the line for a quota with its limit and usage."""
    limit, used = int(found["limit"]), int(found["usage"])
    enough = "enough" if used + count <= limit else f"{NOT_ENOUGH}: request more at {ASK}"
    return f"Quota for {what} in {region}: {limit - used} of {limit} are free ({metric}): {enough}"
