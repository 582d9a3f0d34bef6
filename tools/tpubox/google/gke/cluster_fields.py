"""Cluster fields whose form GKE checks: labels, zones, addresses, the identity pool, maintenance."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence
from datetime import datetime

from tpubox.google.compute.stock_and_quota import zones as known_zones
from tpubox.google.gke.pool_fields import check_max_pods
from tpubox.google.wire.label_rules import check_resource_labels
from tpubox.google.wire.sources import GKE_MASTER_RANGE, GUESS
from tpubox.google.wire.state import Doc

_TIME_OF_DAY = re.compile(r"([01]?[0-9]|2[0-3]):[0-5][0-9]")
_FREQUENCY = re.compile(r"(RRULE:)?(.*;)?FREQ=(DAILY|WEEKLY|MONTHLY|YEARLY)(;.*)?", re.IGNORECASE)


def check(cluster: Doc) -> None:
    """Refuse invalid fields of a complete cluster document, on creation and on change."""
    check_resource_labels(cluster.get("resourceLabels") or {}, "cluster.resource_labels")
    check_max_pods(cluster.get("defaultMaxPodsConstraint") or {}, "cluster.default_max_pods_constraint")
    _check_locations(cluster)
    _check_identity_pool(cluster)
    _check_master_range((cluster.get("privateClusterConfig") or {}).get("masterIpv4CidrBlock", ""))
    endpoints = (cluster.get("controlPlaneEndpointsConfig") or {}).get("ipEndpointsConfig") or {}
    for networks in (cluster.get("masterAuthorizedNetworksConfig"), endpoints.get("authorizedNetworksConfig")):
        _check_networks((networks or {}).get("cidrBlocks") or ())
    _check_maintenance((cluster.get("maintenancePolicy") or {}).get("window") or {})


def check_zones(zones: Sequence[str], region: str) -> None:
    """Refuse unknown zones and zones outside the region, for a cluster or its pools."""
    for zone in zones:
        if zone not in known_zones():
            raise GUESS.invalid(f'Location "{zone}" does not exist.')
        if zone.rpartition("-")[0] != region:
            raise GUESS.invalid(f"Zone {zone} is not in region {region} of the cluster.")


def _check_locations(cluster: Doc) -> None:
    check_zones(cluster["locations"], cluster["_region"])
    own = cluster["location"]
    if own != cluster["_region"] and own not in cluster["locations"]:
        raise GUESS.invalid(f"Cluster.locations must contain the primary zone {own}.")


def _check_identity_pool(cluster: Doc) -> None:
    """Refuse a foreign identity pool.

    Pool names of projects within a domain (example.com:name) and of numeric projects are unknown, so they are not
    checked.
    """
    pool, project = (cluster.get("workloadIdentityConfig") or {}).get("workloadPool", ""), cluster["_project"]
    if not pool or ":" in project or project.isdecimal():
        return
    if pool != f"{project}.svc.id.goog":
        raise GUESS.invalid(f'Workload pool "{pool}" is not supported: it must be "{project}.svc.id.goog".')


def _check_master_range(block: str) -> None:
    """Refuse a control plane range that is malformed or not a /28.

    https://cloud.google.com/kubernetes-engine/docs/how-to/legacy/network-isolation
    """
    if not block:
        return
    try:
        length = ipaddress.IPv4Network(block, strict=False).prefixlen
    except ValueError:
        raise GKE_MASTER_RANGE.invalid(
            f'Unable to parse cluster.master_ipv4_cidr "{block}" into a valid IP address and mask.'
        ) from None
    if length != 28:
        raise GUESS.invalid(f'Invalid cluster.master_ipv4_cidr "{block}": the mask must be /28.')


def _check_networks(blocks: Sequence[Doc]) -> None:
    for block in blocks:
        text = block.get("cidrBlock", "")
        try:
            ipaddress.ip_network(text, strict=False)
        except ValueError:
            raise GUESS.invalid(f'Invalid master authorized network: "{text}" is not a valid CIDR block.') from None


def _check_maintenance(window: Doc) -> None:
    """Refuse an invalid maintenance window.

    https://cloud.google.com/kubernetes-engine/docs/reference/rest/v1/projects.locations.clusters#MaintenanceWindow
    """
    daily, recurring = window.get("dailyMaintenanceWindow"), window.get("recurringWindow")
    if daily and recurring:
        raise GUESS.invalid("A maintenance window is daily or recurring, not both.")
    if daily and not _TIME_OF_DAY.fullmatch(daily.get("startTime", "")):
        raise GUESS.invalid(
            f'Invalid daily maintenance window: start_time "{daily.get("startTime", "")}" is not HH:MM.'
        )
    if recurring:
        _check_span(recurring.get("window") or {}, "recurring window")
        rule = recurring.get("recurrence", "")
        if not _FREQUENCY.fullmatch(rule):
            raise GUESS.invalid(f'Invalid recurring window: recurrence "{rule}" is not an RRULE with a FREQ.')
    for name, span in (window.get("maintenanceExclusions") or {}).items():
        _check_span(span, f'maintenance exclusion "{name}"')


def _check_span(span: Doc, what: str) -> None:
    """Refuse an invalid time span. A span that lasts until a version's end of support has no end time."""
    end = span.get("endTime")
    if _moment(span.get("startTime", ""), what) >= (_moment(end, what) if end else float("inf")):
        raise GUESS.invalid(f"Invalid {what}: end_time must be after start_time.")


def _moment(text: str, what: str) -> float:
    try:
        moment = datetime.fromisoformat(re.sub(r"(\.[0-9]{6})[0-9]+", r"\1", text))
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise GUESS.invalid(f'Invalid {what}: "{text}" is not a time of RFC 3339.')
    return moment.timestamp()
