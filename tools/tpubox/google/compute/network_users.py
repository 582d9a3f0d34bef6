"""Users of a network, a subnetwork or a workload policy, which prevent its deletion."""

from __future__ import annotations

from tpubox.google.compute import auto_subnets
from tpubox.google.compute.names import relative
from tpubox.google.compute.network_rules import nat_subnets
from tpubox.google.tpu import networks as tpu_networks
from tpubox.google.wire.cloud import Cloud


def user_of(cloud: Cloud, full: str, project: str) -> str | None:
    """Return the name of a resource that depends on this one."""
    for kind in ("firewall", "subnetwork", "router"):
        for name, doc in cloud.state.all(kind, f"projects/{project}/").items():
            if kind == "subnetwork" and auto_subnets.goes_with(cloud, name, full):
                continue
            # https://github.com/hashicorp/terraform-provider-google/issues/26776
            served = nat_subnets(doc, project) if kind == "router" else ()
            if relative(doc.get("network", ""), project) == full or full in served:
                return name
    # Clusters and TPU VMs of other projects may use a shared network.
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
