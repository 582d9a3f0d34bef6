"""Refuses places that Google does not have, as its common front does for every API before the API itself is asked."""

from __future__ import annotations

import re

from tpubox.google.wire.refusal import Refused
from tpubox.google.wire.regions import REGIONS
from tpubox.google.wire.sources import LOCATION_DENIED

ANY = "-"
"""Stands for all locations in lists of many APIs."""
_TYPE = "type.googleapis.com/google.rpc"


def is_region(location: str) -> bool:
    return location in REGIONS or location == ANY


def is_zone(location: str) -> bool:
    """Which letters a region has is not said here: of zones without TPUs the API itself knows more."""
    region, _, letter = location.rpartition("-")
    return location == ANY or (region in REGIONS and re.fullmatch("[a-z]", letter) is not None)


def is_region_or_multi_region(location: str) -> bool:
    """https://cloud.google.com/artifact-registry/docs/repositories/repo-locations"""
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
