"""Checks of locations, which Google's common front makes for every API before the API sees the request."""

from __future__ import annotations

import re

from tpubox.google.wire.refusal import Refused
from tpubox.google.wire.regions import REGIONS
from tpubox.google.wire.sources import LOCATION_DENIED

ANY = "-"
"""Wildcard for all locations in lists of many APIs."""
_TYPE = "type.googleapis.com/google.rpc"


def is_region(location: str) -> bool:
    return location in REGIONS or location == ANY


def is_zone(location: str) -> bool:
    """Return True for any letter in a known region: the API itself knows which zones exist."""
    region, _, letter = location.rpartition("-")
    return location == ANY or (region in REGIONS and re.fullmatch("[a-z]", letter) is not None)


def is_region_or_multi_region(location: str) -> bool:
    """Return True for a region or a multi-region of Artifact Registry.

    https://cloud.google.com/artifact-registry/docs/repositories/repo-locations
    """
    return is_region(location) or location in ("asia", "europe", "us")


def denied(location: str, service: str, project: str) -> Refused:
    text = f"Permission denied on 'locations/{location}' (or it may not exist)."
    metadata = {"consumer": f"projects/{project}", "location": location, "service": service}
    return LOCATION_DENIED.refused(
        403,
        text,
        details=[
            {
                "@type": f"{_TYPE}.ErrorInfo",
                "reason": "LOCATION_POLICY_VIOLATED",
                "domain": "googleapis.com",
                "metadata": metadata,
            },
            {"@type": f"{_TYPE}.LocalizedMessage", "locale": "en-US", "message": text},
        ],
    )
