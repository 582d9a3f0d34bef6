"""Documents of Compute Engine resources: the fields that Google adds, and the fields that a change may touch."""

from __future__ import annotations

import ipaddress
import zlib

from tpubox.google.compute import firewall_rules
from tpubox.google.compute.names import ROOT, relative
from tpubox.google.wire.api import merged
from tpubox.google.wire.cloud import Cloud
from tpubox.google.wire.sources import GUESS, SUBNET_FINGERPRINT
from tpubox.google.wire.state import Doc

_GOOGLES = (
    *("creationTimestamp", "fingerprint", "gatewayAddress", "id", "kind", "region"),
    *("selfLink", "selfLinkWithId", "subnetworks"),
)
"""Fields that only Google writes. Values that clients send in them are ignored."""
_DEFAULTS: dict[str, Doc] = {
    "network": {
        "networkFirewallPolicyEnforcementOrder": "AFTER_CLASSIC_FIREWALL",
        "routingConfig": {"routingMode": "REGIONAL", "bgpBestPathSelectionMode": "LEGACY"},
    },
    "subnetwork": {
        "allowSubnetCidrRoutesOverlap": False,
        "privateIpGoogleAccess": False,
        "privateIpv6GoogleAccess": "DISABLE_GOOGLE_ACCESS",
        "purpose": "PRIVATE",
        "stackType": "IPV4_ONLY",
    },
    "router": {"encryptedInterconnectRouter": False},
}
"""Values that Google fills in, as recorded conversations show."""
_FIXED = {
    "network": ("name", "autoCreateSubnetworks"),
    # https://cloud.google.com/firewall/docs/using-firewalls#updating_firewall_rules
    "firewall": ("name", "network", "direction"),
    "subnetwork": ("name", "network", "ipCidrRange"),
    "router": ("name", "network"),
    "resourcePolicy": ("name",),
}
"""Fields that are immutable after creation, by kind. Clients send them along with a change."""


def made(cloud: Cloud, kind: str, full: str, asked: Doc) -> Doc:
    """Return a new resource as Google shows it."""
    sent = {name: value for name, value in asked.items() if value is not None and name not in _GOOGLES}
    parts = full.split("/")
    place = {"region": f"{ROOT}/{'/'.join(parts[:4])}"} if parts[2] == "regions" else {}
    number = str(10**18 + cloud.state.next())
    with_id = {"selfLinkWithId": f"{ROOT}/{full.rpartition('/')[0]}/{number}"} if kind == "network" else {}
    return filled_in(
        kind,
        {
            **sent,
            **place,
            **with_id,
            "kind": f"compute#{kind}",
            "id": number,
            "creationTimestamp": cloud.stamp(),
            "selfLink": f"{ROOT}/{full}",
        },
    )


def filled_in(kind: str, doc: Doc) -> Doc:
    """Return the document with Google's defaults and the fields derived from the others."""
    if kind == "firewall":
        return firewall_rules.filled_in(doc)
    if kind in _DEFAULTS:
        doc = merged(_DEFAULTS[kind], doc)
    if kind == "subnetwork":
        gateway = str(ipaddress.ip_network(doc["ipCidrRange"])[1])
        doc["gatewayAddress"] = gateway
        doc["fingerprint"] = _fingerprint(doc)
    return doc


def changed(kind: str, old: Doc, sent: Doc, project: str, *, replace: bool) -> Doc:
    """Return the document after a change: a patch sends the differences, an update (`replace`) the whole resource.

    Lists are replaced, not joined: removing the last NAT of a router is a patch with an empty list.
    """
    for name in _FIXED[kind]:
        if sent.get(name) is not None and name in old and _plain(sent[name], project) != _plain(old[name], project):
            raise GUESS.invalid(f"Invalid value for field 'resource.{name}': '{sent[name]}'. The field is immutable.")
    stay = (*_GOOGLES, *_FIXED[kind])
    free = {name: value for name, value in sent.items() if name not in stay or name not in (*_GOOGLES, *old)}
    if not replace:
        return merged(old, free)
    kept = {name: value for name, value in old.items() if name in stay}
    return {**kept, **{name: value for name, value in free.items() if value is not None}}


def _plain(value: object, project: str) -> object:
    """Normalize a link for comparison, because a link has several spellings."""
    return relative(value, project) if isinstance(value, str) and "/networks/" in value else value


def check_fingerprint(old: Doc, sent: Doc) -> None:
    """Refuse a change of a subnetwork that does not carry its current fingerprint."""
    if not sent.get("fingerprint"):
        raise SUBNET_FINGERPRINT.refused(400, "Required field 'resource.fingerprint' not specified", reason="required")
    if sent["fingerprint"] != old["fingerprint"]:
        raise GUESS.refused(412, "Invalid fingerprint.", reason="conditionNotMet")


def _fingerprint(body: Doc) -> str:
    counted = sorted((key, value) for key, value in body.items() if key != "fingerprint")
    return f"{zlib.crc32(repr(counted).encode()):08x}"
