"""The network `default` of a new project, with a subnetwork in each region and four firewall rules.

https://cloud.google.com/vpc/docs/vpc#default-network
https://cloud.google.com/firewall/docs/firewalls#more_rules_default_vpc
"""

from __future__ import annotations

from tpubox.google.compute import auto_subnets
from tpubox.google.compute import documents as compute_documents
from tpubox.google.compute.names import ROOT
from tpubox.google.wire.cloud import Cloud
from tpubox.google.wire.state import Doc

_INSIDE, _ANYWHERE = "10.128.0.0/9", "0.0.0.0/0"
_RULES: dict[str, tuple[str, list[Doc]]] = {
    "internal": (
        _INSIDE,
        [
            {"IPProtocol": "tcp", "ports": ["0-65535"]},
            {"IPProtocol": "udp", "ports": ["0-65535"]},
            {"IPProtocol": "icmp"},
        ],
    ),
    "ssh": (_ANYWHERE, [{"IPProtocol": "tcp", "ports": ["22"]}]),
    "rdp": (_ANYWHERE, [{"IPProtocol": "tcp", "ports": ["3389"]}]),
    "icmp": (_ANYWHERE, [{"IPProtocol": "icmp"}]),
}
_LAST_PRIORITY = 65534


def make(cloud: Cloud, project: str) -> None:
    """Create the default network in a project, as Google does when Compute Engine is enabled."""
    if not cloud.settings.default_network:
        return
    full = f"projects/{project}/global/networks/default"
    asked = {"name": "default", "description": "Default network for the project", "autoCreateSubnetworks": True}
    network = compute_documents.made(cloud, "network", full, asked)
    _put(cloud, "network", full, network)
    auto_subnets.add(cloud, full, network)
    for name in cloud.state.all("subnetwork", f"projects/{project}/"):
        cloud.state.put("of_new_project", f"subnetwork {name}", {"project": project})
    for word, (source, allowed) in _RULES.items():
        rule = f"projects/{project}/global/firewalls/default-allow-{word}"
        body = {
            "name": f"default-allow-{word}",
            "network": f"{ROOT}/{full}",
            "priority": _LAST_PRIORITY,
            "sourceRanges": [source],
            "allowed": allowed,
        }
        _put(cloud, "firewall", rule, compute_documents.made(cloud, "firewall", rule, body))


def _put(cloud: Cloud, kind: str, full: str, doc: Doc) -> None:
    cloud.state.put(kind, full, doc)
    cloud.state.put("of_new_project", f"{kind} {full}", {"project": full.split("/")[1]})
