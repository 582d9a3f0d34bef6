"""Compute Engine: what can be done with a subnetwork besides making, changing and deleting it."""

from __future__ import annotations

import ipaddress

from tpukit.sandbox.google import compute_documents, held_permissions, policy, subnet_ranges
from tpukit.sandbox.google.api import Call, Started
from tpukit.sandbox.google.cloud import Cloud
from tpukit.sandbox.google.compute import api, scope_of
from tpukit.sandbox.google.compute_names import find, find_ready
from tpukit.sandbox.google.sources import GUESS
from tpukit.sandbox.google.state import Doc

_SUBNET = "projects/{project}/regions/{region}/subnetworks/{name}"


@api.on("POST", _SUBNET + "/expandIpCidrRange", body="SubnetworksExpandIpCidrRangeRequest")
def _expand(cloud: Cloud, call: Call) -> Started:
    """https://cloud.google.com/vpc/docs/create-modify-vpc-networks#expand-subnet; the words are a guess."""
    full = _SUBNET.format(**call.names)
    old = find_ready(cloud, "subnetwork", full)
    new = {**old, "ipCidrRange": call.body.get("ipCidrRange", "")}
    subnet_ranges.check(cloud, new, call["project"], besides=full)
    before, after = ipaddress.IPv4Network(old["ipCidrRange"]), ipaddress.IPv4Network(new["ipCidrRange"])
    if after == before or not before.subnet_of(after):
        raise GUESS.invalid(
            f"Invalid value for field 'ipCidrRange': '{after}'. New IP range must contain the old one, {before}."
        )
    return _change(cloud, "expandIpCidrRange", full, new)


@api.on("POST", _SUBNET + "/setPrivateIpGoogleAccess", body="SubnetworksSetPrivateIpGoogleAccessRequest")
def _set_access(cloud: Cloud, call: Call) -> Started:
    """What `gcloud compute networks subnets update --enable-private-ip-google-access` and Terraform ask for."""
    full = _SUBNET.format(**call.names)
    old = find_ready(cloud, "subnetwork", full)
    wanted = bool(call.body.get("privateIpGoogleAccess"))
    return _change(cloud, "setPrivateIpGoogleAccess", full, {**old, "privateIpGoogleAccess": wanted})


def _change(cloud: Cloud, kind: str, full: str, new: Doc) -> Started:
    after = compute_documents.filled_in("subnetwork", new)
    return cloud.change(api, kind, scope_of(full), full, store="subnetwork", after=after)


@api.on("GET", _SUBNET + "/getIamPolicy")
def _get_policy(cloud: Cloud, call: Call) -> Doc:
    full = _SUBNET.format(**call.names)
    find(cloud, "subnetwork", full)
    return policy.answer(cloud, full, call)


@api.on("POST", _SUBNET + "/setIamPolicy", body="RegionSetPolicyRequest")
def _set_policy(cloud: Cloud, call: Call) -> Doc:
    full = _SUBNET.format(**call.names)
    find(cloud, "subnetwork", full)
    return policy.put(cloud, full, call.body.get("policy", {}))


held_permissions.register(api, _SUBNET, "subnetwork", body="TestPermissionsRequest", separator="/")
