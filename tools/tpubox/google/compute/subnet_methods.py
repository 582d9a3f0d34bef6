"""Compute Engine: methods of subnetworks beyond create, change and delete."""

from __future__ import annotations

import ipaddress

from tpubox.google.compute import documents as compute_documents
from tpubox.google.compute import subnet_ranges
from tpubox.google.compute.names import find, find_ready
from tpubox.google.compute.networks import api, scope_of
from tpubox.google.iam import held_permissions, policy
from tpubox.google.wire.api import Call, Started
from tpubox.google.wire.cloud import Cloud
from tpubox.google.wire.sources import GUESS
from tpubox.google.wire.state import Doc

_SUBNET = "projects/{project}/regions/{region}/subnetworks/{name}"


@api.on("POST", _SUBNET + "/expandIpCidrRange", body="SubnetworksExpandIpCidrRangeRequest")
def _expand(cloud: Cloud, call: Call) -> Started:
    """Expand the primary range. The error text is a guess.

    https://cloud.google.com/vpc/docs/create-modify-vpc-networks#expand-subnet
    """
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
    """Set private Google access.

    Sent by `gcloud compute networks subnets update --enable-private-ip-google-access` and by Terraform.
    """
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
