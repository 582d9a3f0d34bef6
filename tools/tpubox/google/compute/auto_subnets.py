"""Subnetworks of auto mode networks: Google creates one in each region and deletes them with the network."""

from __future__ import annotations

from tpubox.google.compute import documents as compute_documents
from tpubox.google.compute.names import ROOT, relative
from tpubox.google.wire.cloud import Cloud
from tpubox.google.wire.sources import COMPUTE_EXISTS
from tpubox.google.wire.state import Doc

_RANGES = {
    **{"us-central1": 128, "europe-west1": 132, "us-west1": 138, "asia-east1": 140, "us-east1": 142},
    **{"asia-northeast1": 146, "asia-southeast1": 148, "us-east4": 150, "australia-southeast1": 152},
    **{"europe-west2": 154, "europe-west3": 156, "southamerica-east1": 158, "asia-south1": 160},
    **{"northamerica-northeast1": 162, "europe-west4": 164, "europe-north1": 166, "us-west2": 168},
    **{"asia-east2": 170, "europe-west6": 172, "asia-northeast2": 174, "asia-northeast3": 178, "us-west3": 180},
    **{"us-west4": 182, "asia-southeast2": 184, "europe-central2": 186, "northamerica-northeast2": 188},
    **{"asia-south2": 190, "australia-southeast2": 192, "southamerica-west1": 194, "europe-west8": 198},
    **{"europe-west9": 200, "us-east5": 202, "europe-southwest1": 204, "us-south1": 206, "me-west1": 208},
    **{"europe-west12": 210, "me-central1": 212, "europe-west10": 214, "me-central2": 216, "africa-south1": 218},
    # Guesses.
    **{"northamerica-south1": 224, "europe-north2": 226, "asia-southeast3": 228, "us-central2": 230, "us-west8": 232},
}
"""The N of each region's range 10.N.0.0/20.

Up to asia-southeast2 the ranges follow https://pastebin.com/7PzAL2eK; the others are not verified against a list.
"""


def add(cloud: Cloud, network: str, doc: Doc) -> None:
    """Create the subnetworks of a network in auto mode."""
    if not doc.get("autoCreateSubnetworks"):
        return
    project, name = network.split("/")[1], doc["name"]
    for region, number in _RANGES.items():
        full = f"projects/{project}/regions/{region}/subnetworks/{name}"
        if cloud.state.get("subnetwork", full):
            # The same conflict: https://github.com/abevoelker/Kubernetes-on-Rails-Starter-Files/issues/2
            raise COMPUTE_EXISTS.exists(f"The resource '{full}' already exists")
        asked = {"name": name, "network": f"{ROOT}/{network}", "ipCidrRange": f"10.{number}.0.0/20"}
        cloud.state.put("subnetwork", full, compute_documents.made(cloud, "subnetwork", full, asked))


def links(cloud: Cloud, network: str) -> list[str]:
    """Return the links of all subnetworks of a network, both automatic and custom."""
    project = network.split("/")[1]
    subnets = cloud.state.all("subnetwork", f"projects/{project}/").values()
    return [doc["selfLink"] for doc in subnets if relative(doc["network"], project) == network]


def remove(cloud: Cloud, network: str) -> None:
    for subnet in cloud.state.all("subnetwork", f"projects/{network.split('/')[1]}/"):
        if goes_with(cloud, subnet, network):
            cloud.state.delete("subnetwork", subnet)


def goes_with(cloud: Cloud, subnet: str, network: str = "") -> bool:
    """Return True if Google created this subnetwork with `network`, or with any network if none is given."""
    doc = cloud.state.get("subnetwork", subnet)
    owner = relative(doc["network"], "") if doc else ""
    if not owner or (network and owner != network) or subnet.rpartition("/")[2] != owner.rpartition("/")[2]:
        return False
    return bool((cloud.state.get("network", owner) or {}).get("autoCreateSubnetworks"))
