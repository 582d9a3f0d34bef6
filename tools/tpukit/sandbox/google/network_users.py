"""What uses a network, a subnetwork or a workload policy: while it does, they cannot be deleted."""

from __future__ import annotations

from tpukit.sandbox.google import auto_subnets, tpu_networks
from tpukit.sandbox.google.cloud import Cloud
from tpukit.sandbox.google.compute_names import relative
from tpukit.sandbox.google.network_rules import nat_subnets


def user_of(cloud: Cloud, full: str, project: str) -> str | None:
    """The name of something that would break if this went away."""
    for kind in ("firewall", "subnetwork", "router"):
        for name, doc in cloud.state.all(kind, f"projects/{project}/").items():
            if kind == "subnetwork" and auto_subnets.goes_with(cloud, name, full):
                continue
            # https://github.com/hashicorp/terraform-provider-google/issues/26776
            served = nat_subnets(doc, project) if kind == "router" else ()
            if relative(doc.get("network", ""), project) == full or full in served:
                return name
    # A network may be shared: clusters and TPU VMs of other projects hold it too.
    for name, doc in cloud.state.all("cluster").items():
        if full in (doc["networkConfig"]["network"], doc["networkConfig"]["subnetwork"]):
            return name
    for name, doc in cloud.state.all("vm").items():
        if full in tpu_networks.held_by(cloud, doc):
            return name
    for name, doc in cloud.state.all("pool", f"projects/{project}/").items():
        policy = doc.get("placementPolicy", {}).get("policyName")
        if policy and full.endswith(f"/resourcePolicies/{policy}"):
            return name
    return None
