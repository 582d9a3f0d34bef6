"""Chips in use and chips available: quotas by region, stock by zone, reservations by name.

Pools, TPU VMs and queued resources record the chips that they hold in a field of their own, so usage is a sum. What has
no limit is unlimited. GKE and the Cloud TPU API have separate quotas but share the stock, because the chips are the
same.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import cache

from tpubox.google.wire.cloud import Cloud
from tpubox.google.wire.refusal import Refused
from tpubox.google.wire.sources import GKE_MACHINES_QUOTA, GKE_QUOTA, GKE_STOCKOUT, GUESS
from tpubox.google.wire.state import Doc
from tpukit.catalogue import slices
from tpukit.catalogue.zones import CPU_FAMILIES
from tpukit.core.errors import Invalid

GKE = ("pool",)
TPU_API = ("vm", "queued")
_METRICS = {"v4": "TPU_PODSLICE_V4", "v5e": "TPU_LITE_PODSLICE_V5"}


@dataclass(frozen=True, slots=True)
class Holding:
    """Chips that a resource holds or requests. They are `up` when machines run on them."""

    zone: str
    generation: str
    chips: int
    spot: bool = False
    reservation: str = ""
    up: bool = False

    @property
    def region(self) -> str:
        return self.zone.rpartition("-")[0]

    def doc(self, *, up: bool | None = None) -> Doc:
        return asdict(self) if up is None else {**asdict(self), "up": up}


@cache
def zones(region: str = "") -> tuple[str, ...]:
    """Return the zones of the catalogue. Letters are not guessed: us-east1 has no zone a."""
    known = {*CPU_FAMILIES, *(zone for shape in slices() for zone in shape.zones)}
    return tuple(sorted(zone for zone in known if zone.rpartition("-")[0] == region or not region))


def regions() -> tuple[str, ...]:
    return tuple(sorted({zone.rpartition("-")[0] for zone in zones()}))


def limit_quota(cloud: Cloud, region: str, generation: str, chips: int, *, spot: bool = False) -> None:
    """Limit the chips in a region; the limit applies to each API separately."""
    cloud.state.put("limit", f"quota/{region}/{generation}/{'spot' if spot else 'on-demand'}", {"chips": chips})


def limit_stock(cloud: Cloud, zone: str, generation: str, chips: int) -> None:
    """Limit the chips of a zone outside reservations, for all other capacity types together."""
    if zone not in zones():
        raise Invalid(f"there is no zone {zone!r}")
    cloud.state.put("limit", f"stock/{zone}/{generation}", {"chips": chips})


def reserve(cloud: Cloud, name: str, zone: str, generation: str, chips: int) -> None:
    """Create a reservation: chips available only to requests that name it."""
    cloud.state.put("limit", f"reservation/{name}", {"chips": chips, "zone": zone, "generation": generation})


DISK_METRICS = {
    "pd-standard": "DISKS_TOTAL_GB",
    "pd-balanced": "SSD_TOTAL_GB",
    "pd-ssd": "SSD_TOTAL_GB",
    "hyperdisk-balanced": "HDB_TOTAL_GB",
}


def limit_disks(cloud: Cloud, region: str, metric: str, gb: int) -> None:
    """Limit the boot disks of a region. Without a limit, disks are unlimited, and not listed."""
    cloud.state.put("limit", f"disks/{region}/{metric}", {"gb": gb})


def _disks_used(cloud: Cloud, region: str, metric: str) -> int:
    """Return the GB of boot disks of all pools in a region that count towards a quota."""
    return sum(
        pool["config"]["diskSizeGb"] * pool["_size"] * len(pool["locations"])
        for pool in cloud.state.all("pool").values()
        if pool["locations"][0].startswith(f"{region}-") and DISK_METRICS.get(pool["config"]["diskType"]) == metric
    )


def check_disks(cloud: Cloud, pool: Doc, nodes: int, target: str) -> None:
    """Refuse a pool whose boot disks exceed a quota, in GKE's words."""
    region = pool["locations"][0].rpartition("-")[0]
    name = DISK_METRICS.get(pool["config"]["diskType"], "")
    limit = cloud.state.get("limit", f"disks/{region}/{name}")
    wanted = pool["config"]["diskSizeGb"] * nodes * len(pool["locations"])
    if limit is None or not wanted:
        return
    left = limit["gb"] - _disks_used(cloud, region, name)
    if wanted > left:
        raise _insufficient(name, wanted, wanted - left, limit["gb"], left, target)


def _insufficient(name: str, wanted: int, missing: int, limit: int, left: int, target: str) -> Refused:
    return GKE_QUOTA.refused(
        403,
        f'Insufficient regional quota to satisfy request: resource "{name}": request requires '
        f"'{wanted}.0' and is short '{missing}.0'. project has a quota of '{limit}.0' with "
        f"'{left}.0' available. View and manage quotas at "
        f"https://console.cloud.google.com/iam-admin/quotas?usage=USED&project={target.split('/')[1]}.",
    )


def quotas(cloud: Cloud, region: str) -> list[Doc]:
    """Return the quotas of a region as Compute Engine lists them."""
    found = []
    for full, limit in cloud.state.all("limit", f"disks/{region}/").items():
        name = full.rpartition("/")[2]
        found.append({"metric": name, "limit": limit["gb"], "usage": _disks_used(cloud, region, name)})
    for name, limit in cloud.state.all("limit", f"quota/{region}/").items():
        _, _, generation, kind = name.split("/")
        asked = Holding(f"{region}-a", generation, 0, spot=kind == "spot")
        found.append({"metric": metric(asked), "limit": limit["chips"], "usage": _used(cloud, asked, GKE)})
    return found


def metric(asked: Holding) -> str:
    name = _METRICS.get(asked.generation, f"TPUS_PER_TPU_FAMILY:{asked.generation.upper()}")
    return f"PREEMPTIBLE_{name}" if asked.spot else name


def short_by(cloud: Cloud, asked: Holding, kinds: tuple[str, ...], target: str) -> tuple[int, int] | None:
    """Return the number of chips over the quota, and the quota; None if the quota suffices."""
    if asked.reservation or not asked.chips:
        return None
    used = _used(cloud, asked, kinds)
    if cloud.faults.strike("quota", f"{asked.zone} {target}"):
        return asked.chips, used
    limit = cloud.state.get("limit", f"quota/{asked.region}/{asked.generation}/{'spot' if asked.spot else 'on-demand'}")
    if limit is None or used + asked.chips <= limit["chips"]:
        return None
    return used + asked.chips - limit["chips"], limit["chips"]


def check_gke(cloud: Cloud, asked: Holding, target: str) -> None:
    """Refuse a request over the quota, in GKE's words."""
    if not (short := short_by(cloud, asked, GKE, target)):
        return
    missing, limit = short
    raise _insufficient(metric(asked), asked.chips, missing, limit, asked.chips - missing, target)


def find(cloud: Cloud, asked: Holding, target: str) -> None:
    """Refuse a request whose chips are unavailable now, in the words of a stock-out."""
    if not asked.chips:
        return
    if cloud.faults.strike("stockout", f"{asked.zone} {target}"):
        raise _stockout(asked, target)
    if cloud.faults.strike("gce-quota", f"{asked.zone} {target}"):
        message = f"Quota '{metric(asked)}' exceeded.  Limit: 0.0 in region {asked.region}."
        raise GKE_MACHINES_QUOTA.refused(429, message, reason="GCE_QUOTA_EXCEEDED")
    if asked.reservation:
        limit = cloud.state.get("limit", f"reservation/{asked.reservation}")
        if limit is None or (limit["zone"], limit["generation"]) != (asked.zone, asked.generation):
            raise GUESS.invalid(f"Specified reservation [{asked.reservation}] does not exist in zone {asked.zone}.")
        inside = [each for each in _up(cloud) if each.reservation == asked.reservation]
    else:
        limit = cloud.state.get("limit", f"stock/{asked.zone}/{asked.generation}")
        inside = [
            each
            for each in _up(cloud)
            if not each.reservation and (each.zone, each.generation) == (asked.zone, asked.generation)
        ]
    if limit is not None and sum(each.chips for each in inside) + asked.chips > limit["chips"]:
        raise _stockout(asked, target)


def _stockout(asked: Holding, target: str) -> Refused:
    """Return the stock-out error. The text for a reservation without chips is a guess."""
    zone = f"zone 'projects/{target.split('/')[1]}/zones/{asked.zone}'"
    message = f"The {f'reservation {asked.reservation}' if asked.reservation else zone} does not have enough resources"
    ending = "available to fulfill the request.  '(resource type:compute)'."
    return GKE_STOCKOUT.refused(429, f"{message} {ending}", reason="GCE_STOCKOUT")


def _used(cloud: Cloud, asked: Holding, kinds: tuple[str, ...]) -> int:
    return sum(
        each.chips
        for each in _holdings(cloud, kinds)
        if (each.region, each.generation, each.spot) == (asked.region, asked.generation, asked.spot)
        and not each.reservation
    )


def _up(cloud: Cloud) -> list[Holding]:
    return [each for each in _holdings(cloud, (*GKE, *TPU_API)) if each.up]


def _holdings(cloud: Cloud, kinds: tuple[str, ...]) -> list[Holding]:
    """Return the holdings; equal ones are merged, with the sum of their chips."""
    return [Holding(**held) for kind in kinds for held in cloud.state.held(kind)]
