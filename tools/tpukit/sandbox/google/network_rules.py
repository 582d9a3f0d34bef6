"""What Google refuses of shared networks: a second NAT for a subnet, a cluster without rights in the host project."""

from __future__ import annotations

from collections.abc import Iterator

from tpukit.sandbox.google import policy
from tpukit.sandbox.google.cloud import Cloud
from tpukit.sandbox.google.emulator_settings import number_of
from tpukit.sandbox.google.sources import GUESS, SHARED_NETWORK
from tpukit.sandbox.google.state import Doc

_NETWORK_USER = "roles/compute.networkUser"
_HOST_AGENT_USER = "roles/container.hostServiceAgentUser"


def check_nats(cloud: Cloud, router: str, wanted: Doc) -> None:
    """A subnet has one NAT at most, and one for all subnets of a region leaves none for others.

    https://cloud.google.com/nat/docs/overview#specs-subnets; the words are a guess.
    """
    others = [
        nat
        for name, doc in cloud.state.all("router", f"{router.rpartition('/')[0]}/").items()
        if name != router and doc.get("network") == wanted.get("network")
        for nat in doc.get("nats") or ()
    ]
    for nat in wanted.get("nats") or ():
        for other in others:
            mine, theirs = set(_subnets(nat)), set(_subnets(other))
            if "*" in mine | theirs or mine & theirs:
                raise GUESS.invalid(
                    f"Invalid value for field 'resource.nats': the subnetworks of NAT '{nat.get('name')}' "
                    f"are already served by NAT '{other.get('name')}'."
                )


def _subnets(nat: Doc) -> Iterator[str]:
    """The subnets that a NAT serves; a star stands for all."""
    if str(nat.get("sourceSubnetworkIpRangesToNat", "")).startswith("ALL_SUBNETWORKS"):
        yield "*"
    for one in nat.get("subnetworks") or ():
        yield "/".join(one["name"].split("/")[-6:])


def check_shared(cloud: Cloud, project: str, subnet: str) -> None:
    """A cluster on a subnet of another project needs that project's leave, for two of Google's own accounts.

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
