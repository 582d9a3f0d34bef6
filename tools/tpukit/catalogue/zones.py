"""Zones of regions that have TPUs, and the CPU machine families that each offers for nodes without TPUs.

A zone that is not in the table is unknown here, even if Google has it. A family is the first word of a machine type
(`n2` of n2-standard-4). Only general-purpose and compute-optimised families are tracked.

AI zones (us-central1-ai1a) hold accelerators and few CPU-only machines; Google advises to run everything but machine
learning in a standard zone. Each has a parent, the standard zone with the same last letter:
https://docs.cloud.google.com/compute/docs/regions-zones/ai-zones

CPU families, unless a row has its own source: https://github.com/skypilot-org/skypilot-catalog (GCP, 2026-08-21), which
reads Google's APIs. `python -m tpukit.catalogue.shapes --write` writes the table into `tpus.json` for Terraform.
"""

from __future__ import annotations

import re
from typing import Final

__all__ = ["CPU_FAMILIES", "beside", "families", "is_ai_zone", "offering", "offers"]

CPU_FAMILIES: Final[dict[str, str | None]] = {
    "asia-east1-a": "c2 c2d c3 c3d c4 c4d e2 n1 n2 n2d n4 t2d",
    "asia-east1-b": "c2 c2d c3 c3d c4 e2 n1 n2 n2d n4 t2d",
    "asia-east1-c": "c2 c2d c3 c3d c4 e2 n1 n2 n2d n4 t2d",
    "asia-northeast1-b": "c2 c2d c3 c4 c4d e2 n1 n2 n2d n4 t2d",
    "asia-south1-b": "c2 c2d c3 c3d c4 c4d e2 n1 n2 n2d n4 n4d t2d",
    "asia-south1-c": "c2 c2d c3 c3d c4 c4d e2 n1 n2 n2d n4 n4d t2d",
    "asia-southeast1-b": "c2 c2d c3 c3d c4 c4d e2 n1 n2 n2d n4 n4a n4d t2a t2d",
    "europe-north1-a": "c2 c3d c4 e2 n1 n2 n2d n4 t2d",
    "europe-north1-c": "c2 c3 c3d c4 e2 n1 n2 n2d n4 t2d",
    "europe-west1-b": "c2 c2d c3 c3d c4 c4d e2 n1 n2 n2d n4 n4a n4d t2d",
    "europe-west1-c": "c2 c2d c3 c3d c4 c4d e2 n1 n2 n2d n4 n4a n4d t2d",
    "europe-west1-d": "c2 c2d c3 c3d c4 c4d e2 n1 n2 n2d n4 n4d t2d",
    "europe-west3-c": "c2 c2d c3 c3d c4 c4d e2 n1 n2 n2d n4 n4a t2d",
    "europe-west4-a": "c2 c2d c3 c3d c4 c4d e2 n1 n2 n2d n4 n4a n4d t2a t2d",
    "europe-west4-b": "c2 c2d c3 c3d c4 c4d e2 n1 n2 n2d n4 n4a n4d t2a t2d",
    "northamerica-northeast1-b": "c2 c3 c4 c4d e2 n1 n2 n2d n4 t2d",
    "southamerica-east1-c": "c2 c2d c3 c4 e2 n1 n2 n2d n4 t2d",
    "southamerica-west1-a": "c2 c4 e2 n2 n2d n4 t2d",
    "southamerica-west1-b": "c2 c4 e2 n2 n2d n4 t2d",
    "southamerica-west1-c": "c2 c4 e2 n2 n2d n4 t2d",
    "us-central1-a": "c2 c2d c3 c3d c4 c4d e2 n1 n2 n2d n4 n4a n4d t2a t2d",
    "us-central1-ai1a": None,
    "us-central1-b": "c2 c2d c3 c3d c4 c4d e2 n1 n2 n2d n4 n4a n4d t2a t2d",
    "us-central1-c": "c2 c2d c3 c3d c4 c4d e2 n1 n2 n2d n4 n4a n4d t2d",
    "us-central1-f": "c2 c2d c3 c3d c4 c4d e2 n1 n2 n2d n4 n4a n4d t2a t2d",
    "us-central2-b": "f1 g1 n1 n2 n2d n4 t2d",  # https://github.com/keras-team/kinetic/issues/305
    "us-east1-b": "c2 c2d c3 c3d c4 c4d e2 n1 n2 n2d n4 n4a n4d t2d",
    "us-east1-c": "c2 c2d c3 c3d c4 c4d e2 n1 n2 n2d n4 n4a n4d t2d",
    "us-east1-d": "c2 c2d c3 c3d c4 c4d e2 n1 n2 n2d n4 n4a n4d t2d",
    "us-east4-a": "c2 c2d c3 c3d c4 c4d e2 n1 n2 n2d n4 n4a n4d t2d",
    "us-east4-b": "c2 c2d c3 c3d c4 c4d e2 n1 n2 n2d n4 n4a n4d t2d",
    "us-east5-a": "c2 c3 c3d c4 c4d e2 n2 n2d n4 n4d t2d",
    "us-east5-b": "c2 c3 c3d c4 c4d e2 n2 n2d n4 n4d t2d",
    "us-east5-c": "c2 c3 c3d c4 c4d e2 n2 n2d n4 n4d t2d",
    "us-south1-a": "c3 c4 e2 n2 n2d n4 t2d",
    "us-south1-ai1b": None,
    "us-south1-b": "c3 c4 e2 n2 n2d n4 t2d",
    "us-south1-c": "c3 e2 n2 n2d t2d",
    "us-west1-c": "c2 c2d c3 c3d c4 c4d e2 n1 n2 n2d n4 n4a n4d t2d",
    "us-west4-a": "c2 c2d c3 c3d c4 c4d e2 n1 n2 n2d n4 n4d t2d",
    "us-west4-b": "c2 c2d c3 c3d c4 c4d e2 n1 n2 n2d n4 n4d t2d",
}
"""CPU families by zone; None for AI zones, which the source does not cover."""

_AI_ZONE = re.compile(r"(?P<region>[a-z]+-[a-z]+[0-9]+)-ai[0-9]+(?P<letter>[a-z])")
_TRACKED = frozenset(family for row in CPU_FAMILIES.values() if row for family in row.split())


def is_ai_zone(zone: str) -> bool:
    return _AI_ZONE.fullmatch(zone) is not None


def beside(zone: str) -> str:
    """Return the zone for nodes without TPUs: the parent of an AI zone, else the same zone."""
    match = _AI_ZONE.fullmatch(zone)
    return f"{match['region']}-{match['letter']}" if match else zone


def families(zone: str) -> tuple[str, ...]:
    """Return the CPU families that a zone is known to have, or () if the zone is unknown."""
    return tuple((CPU_FAMILIES.get(zone) or "").split())


def offers(zone: str, machine_type: str) -> bool | None:
    """Return True if a zone has CPU machines of this type, None if unknown."""
    family = machine_type.partition("-")[0]
    known = families(zone)
    return family in known if known and family in _TRACKED else None


def offering(region: str, machine_type: str) -> tuple[str, ...]:
    """Return the zones of a region that are known to have machines of this type."""
    return tuple(zone for zone in CPU_FAMILIES if zone.rpartition("-")[0] == region and offers(zone, machine_type))
