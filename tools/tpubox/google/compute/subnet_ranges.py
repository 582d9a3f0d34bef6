"""Address ranges of subnetworks: the ranges that Google accepts, and the ranges in use."""

from __future__ import annotations

import ipaddress

from tpubox.google.compute.names import NAME, relative
from tpubox.google.wire.cloud import Cloud
from tpubox.google.wire.refusal import Refused
from tpubox.google.wire.sources import COMPUTE_RANGES, GUESS, RANGE_NAME
from tpubox.google.wire.state import Doc

_LONGEST = 29
_SHORTEST = 4
_PROHIBITED = tuple(
    map(
        ipaddress.IPv4Network,
        ("0.0.0.0/8", "127.0.0.0/8", "169.254.0.0/16", "224.0.0.0/4", "199.36.153.4/30", "199.36.153.8/30"),
    )
)
"""Ranges that Google refuses.

https://cloud.google.com/vpc/docs/subnets#prohibited-ranges
"""


def check(cloud: Cloud, subnet: Doc, project: str, besides: str = "") -> None:
    """Refuse prohibited ranges, and ranges that overlap another of the same network."""
    _check_names(subnet.get("secondaryIpRanges") or [])
    network = relative(subnet.get("network", ""), project)
    taken = [
        (name, text)
        for name, doc in cloud.state.all("subnetwork", f"projects/{project}/").items()
        if relative(doc["network"], project) == network and name != besides
        for text in _ranges(doc)
    ]
    mine = _ranges(subnet)
    for index, text in enumerate(mine):
        range_ = _network(index, text)
        for name, other in [*taken, *((besides, each) for each in mine[:index])]:
            if range_.overlaps(ipaddress.IPv4Network(other)):
                raise _overlap(index, text, name)


def _check_names(secondary: list[Doc]) -> None:
    for index, one in enumerate(secondary):
        field, name = f"resource.secondaryIpRanges[{index}].rangeName", one.get("rangeName") or ""
        if not name:
            raise RANGE_NAME.refused(400, f"Required field '{field}' not specified", reason="required")
        if not NAME.fullmatch(name):
            raise GUESS.invalid(
                f"Invalid value for field '{field}': '{name}'. Must be a match of regex '{NAME.pattern}'"
            )
        if name in {other.get("rangeName") for other in secondary[:index]}:
            raise GUESS.invalid(f"Invalid value for field '{field}': '{name}'. Duplicate secondary range name.")


def _network(index: int, text: str) -> ipaddress.IPv4Network:
    """Parse a range. The error texts are guesses.

    https://cloud.google.com/vpc/docs/subnets#ipv4-ranges
    """
    try:
        range_ = ipaddress.IPv4Network(text)
    except ValueError as error:
        raise _invalid(index, text, "Must be a valid IPV4 CIDR address range.") from error
    if "/" not in text or not _SHORTEST <= range_.prefixlen <= _LONGEST:
        raise _invalid(
            index, text, f"Invalid IPCidrRange: the prefix must be between /{_SHORTEST} and /{_LONGEST}, inclusive."
        )
    if any(range_.overlaps(one) for one in _PROHIBITED):
        raise _invalid(index, text, f"Invalid IPCidrRange: {text} is a prohibited range.")
    return range_


def _ranges(subnet: Doc) -> list[str]:
    secondary = [each.get("ipCidrRange", "") for each in subnet.get("secondaryIpRanges") or ()]
    return [subnet.get("ipCidrRange", ""), *secondary]


def _field(index: int) -> str:
    """Return the field of a range by its index: 0 is the primary range, the others are secondary."""
    return f"resource.secondaryIpRanges[{index - 1}].ipCidrRange" if index else "resource.ipCidrRange"


def _invalid(index: int, text: str, why: str) -> Refused:
    return GUESS.invalid(f"Invalid value for field '{_field(index)}': '{text}'. {why}")


def _overlap(index: int, text: str, taken_by: str) -> Refused:
    *_, region, _, name = taken_by.split("/")
    return COMPUTE_RANGES.invalid(
        f"Invalid value for field '{_field(index)}': '{text}'. Invalid IPCidrRange: {text} conflicts with existing "
        f"subnetwork '{name}' in region '{region}'."
    )


def check_kept(cloud: Cloud, full: str, old: Doc, new: Doc) -> None:
    """Refuse to remove a secondary range that a cluster takes Pod addresses from. The error text is a guess."""
    stay = {(one["rangeName"], one["ipCidrRange"]) for one in new.get("secondaryIpRanges") or ()}
    for one in old.get("secondaryIpRanges") or ():
        name = one["rangeName"]
        if (name, one["ipCidrRange"]) not in stay and (user := _user_of_range(cloud, full, name)):
            raise GUESS.refused(
                400,
                f"The secondary range '{name}' of the subnetwork resource '{full}' is already being used by '{user}'",
                reason="resourceInUseByAnotherResource",
            )


def _user_of_range(cloud: Cloud, full: str, name: str) -> str | None:
    for cluster, doc in cloud.state.all("cluster").items():
        if doc["networkConfig"]["subnetwork"] != full:
            continue
        policy = doc.get("ipAllocationPolicy") or {}
        more = (policy.get("additionalPodRangesConfig") or {}).get("podRangeNames") or ()
        pools = cloud.state.all("pool", f"{cluster}/").values()
        of_pools = {(pool.get("networkConfig") or {}).get("podRange") for pool in pools}
        if name in {policy.get("clusterSecondaryRangeName"), *more, *of_pools}:
            return cluster
    return None
