"""Rules of shared networks: one NAT per subnet, and permissions of clusters in the host project."""

from __future__ import annotations

from tpubox.google.compute.names import find_ready, relative
from tpubox.google.iam import policy
from tpubox.google.wire.cloud import Cloud
from tpubox.google.wire.settings import number_of
from tpubox.google.wire.sources import GUESS, NAT_FOR_ALL, NAT_SUBNET, SHARED_NETWORK
from tpubox.google.wire.state import Doc

_NETWORK_USER = "roles/compute.networkUser"
_HOST_AGENT_USER = "roles/container.hostServiceAgentUser"


def check_nats(cloud: Cloud, router: str, wanted: Doc) -> None:
    """Refuse a second NAT for a subnet, or any NAT next to one that serves all subnets of the region.

    https://cloud.google.com/nat/docs/overview#specs-subnets
    """
    project = router.split("/")[1]
    for name in nat_subnets(wanted, project):
        find_ready(cloud, "subnetwork", name)
    others = [
        nat
        for name, doc in cloud.state.all("router", f"{router.rpartition('/')[0]}/").items()
        if name != router and doc.get("network") == wanted.get("network")
        for nat in doc.get("nats") or ()
    ]
    for index, nat in enumerate(wanted.get("nats") or ()):
        for other in others:
            if nat.get("type", "PUBLIC") == other.get("type", "PUBLIC"):
                _check_beside(index, nat, other, project)
        others.append(nat)


def _check_beside(index: int, nat: Doc, other: Doc, project: str) -> None:
    """Refuse a NAT that serves a subnet of another NAT."""
    mine, theirs = nat.get("sourceSubnetworkIpRangesToNat"), other.get("sourceSubnetworkIpRangesToNat")
    option = f"Invalid value for field 'resource.nats[{index}].sourceSubnetworkIpRangesToNat': '{mine}'."
    if _for_all(other):
        raise NAT_FOR_ALL.invalid(f"{option} Can not create new Nats since a Nat with option {theirs} exists.")
    if _for_all(nat):
        raise GUESS.invalid(f"{option} Can not create a Nat with option {mine} since other Nats exist.")
    served = set(_listed(other, project))
    for place, name in enumerate(_listed(nat, project)):
        if name in served:
            raise NAT_SUBNET.invalid(
                f"Invalid value for field 'resource.nats[{index}].subnetworks[{place}].sourceIpRangesToNat': ''. "
                "The subnetwork is already configured with ALL_IP_RANGES for Nat which conflicts with the specified "
                "IpRangeToNatOption options in this Nat."
            )


def _for_all(nat: Doc) -> bool:
    return str(nat.get("sourceSubnetworkIpRangesToNat", "")).startswith("ALL_SUBNETWORKS")


def _listed(nat: Doc, project: str) -> list[str]:
    return [relative(one.get("name", ""), project) for one in nat.get("subnetworks") or ()]


def nat_subnets(router: Doc, project: str) -> list[str]:
    """Return the subnetworks that the NATs of a router name."""
    return [name for nat in router.get("nats") or () for name in _listed(nat, project)]


def check_shared(cloud: Cloud, project: str, subnet: str) -> None:
    """Refuse a cluster on another project's subnet unless two of Google's own accounts have roles in that project.

    https://cloud.google.com/kubernetes-engine/docs/how-to/cluster-shared-vpc
    """
    host = subnet.split("/")[1]
    if host == project:
        return
    number = number_of(project)
    gke = f"serviceAccount:service-{number}@container-engine-robot.iam.gserviceaccount.com"
    apis = f"serviceAccount:{number}@cloudservices.gserviceaccount.com"
    if not _has(cloud, _HOST_AGENT_USER, gke, f"projects/{host}"):
        raise GUESS.refused(
            403,
            "Kubernetes Engine Service Agent is missing required permissions on this project: "
            f"{gke} needs container.hostServiceAgent.use on {host}.",
        )
    for member in (gke, apis):
        if not _has(cloud, _NETWORK_USER, member, f"projects/{host}", subnet):
            raise SHARED_NETWORK.refused(
                403, f"Google Compute Engine: Required 'compute.subnetworks.use' permission for '{subnet}'."
            )


def _has(cloud: Cloud, role: str, member: str, *resources: str) -> bool:
    return any(
        binding["role"] == role and member in binding["members"]
        for resource in resources
        for binding in policy.get(cloud, resource).get("bindings", ())
    )
