"""The document of a TPU VM: the fields that Google accepts, and those that it adds."""

from __future__ import annotations

import re
from collections.abc import Iterable

from tpubox.google.compute.names import network_name, subnet_name
from tpubox.google.iam.permissions import default_account
from tpubox.google.tpu import node_marks as tpu_node_marks
from tpubox.google.tpu.service import shape_of
from tpubox.google.wire.cloud import Cloud
from tpubox.google.wire.sources import GUESS
from tpubox.google.wire.state import Doc

_SCOPES = [
    f"https://www.googleapis.com/auth/{scope}"
    for scope in (
        *("devstorage.read_write", "logging.write", "service.management", "servicecontrol", "cloud-platform"),
        "pubsub",
    )
]
"""Default scopes, as recorded for a TPU VM without any."""
_DISK = re.compile(r"(?:https://(?:www|compute)\.googleapis\.com/compute/v1/)?projects/[^/]+/zones/([^/]+)/disks/[^/]+")
_OUTPUT = ("healthDescription", "multisliceNode", "queuedResource", "symptoms", "upcomingMaintenance")
"""Output fields of a node that are present only at times; the others are always overwritten."""


def check(full: str, node: Doc, zone: str) -> None:
    """Refuse a TPU VM that is invalid regardless of capacity.

    Where no page is named, the rules are from the descriptions of the fields in Google's discovery document. The error
    texts are guesses.
    """
    name = full.rpartition("/")[2]
    if not re.fullmatch(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?", name):
        raise GUESS.invalid(f"Invalid node id {name!r}.")
    if shape_of(node, zone).hosts > 1 and any(disk.get("mode") != "READ_ONLY" for disk in node.get("dataDisks", [])):
        # https://cloud.google.com/tpu/docs/attach-durable-block-storage
        raise GUESS.invalid("Disks of a TPU with several hosts must be attached in READ_ONLY mode.")
    for disk in node.get("dataDisks") or []:
        _check_disk(disk.get("sourceDisk", ""), zone)
    tpu_node_marks.check(node)
    if node.get("networkConfig") and node.get("networkConfigs"):
        raise GUESS.invalid("Only one of network_config and network_configs can be specified.")
    if len(node.get("description", "")) > 512:
        raise GUESS.invalid("The description of a node must not be longer than 512 characters.")
    if node.get("cidrBlock") and not re.fullmatch(r"(\d{1,3}\.){3}\d{1,3}/29", node["cidrBlock"]):
        raise GUESS.invalid(f"Invalid CIDR block {node['cidrBlock']!r}: it must be a /29 block.")


def _check_disk(name: str, zone: str) -> None:
    """Refuse a malformed disk name or a foreign zone. The emulator has no disks, so existence is not checked."""
    found = _DISK.fullmatch(name)
    if found is None:
        raise GUESS.invalid(f"Invalid source disk {name!r}: projects/PROJECT/zones/ZONE/disks/DISK is wanted.")
    if found[1] != zone:
        raise GUESS.invalid(f"Source disk {name!r} is not in zone {zone}.")


def filled_in(full: str, node: Doc) -> Doc:
    """Return the requested node with Google's defaults."""
    _, project, _, zone = full.split("/")[:4]
    account = node.get("serviceAccount") or {}
    filled = {
        "schedulingConfig": {},
        "shieldedInstanceConfig": {},
        **{field: value for field, value in node.items() if field not in _OUTPUT},
        "serviceAccount": {
            "email": account.get("email") or default_account(project),
            "scope": account.get("scope") or _SCOPES,
        },
    }
    if node.get("networkConfigs"):
        filled["networkConfigs"] = [_network(one, project, zone) for one in node["networkConfigs"]]
    else:
        filled["networkConfig"] = _network(node.get("networkConfig") or {}, project, zone)
    if node.get("dataDisks"):
        filled["dataDisks"] = [{"mode": "READ_WRITE", **disk} for disk in node["dataDisks"]]
    return filled


def _network(config: Doc, project: str, zone: str) -> Doc:
    """Return the configuration with full names of network and subnetwork: recorded for `default`, otherwise a guess.

    An unspecified one is left out, except for `default`, whose subnetworks have its name.
    """
    network, subnet = config.get("network") or "", config.get("subnetwork") or ""
    if not network and not subnet:
        network = "default"
    if not subnet and network_name(network, project).endswith("/global/networks/default"):
        subnet = "default"
    names = {
        "network": network_name(network, project) if network else "",
        "subnetwork": subnet_name(subnet, project, zone.rpartition("-")[0]) if subnet else "",
    }
    return {**config, **{name: value for name, value in names.items() if value}}


def addressed(cloud: Cloud, vm: Doc) -> Doc:
    """Return a TPU VM with its addresses.

    External addresses are in the upper half of the network, and assigned only on request.
    """
    configs = vm.get("networkConfigs") or [vm.get("networkConfig") or {}]
    endpoints: list[Doc] = []
    for number in vm["_numbers"]:
        block, place = divmod(number, 250)
        endpoint: Doc = {"ipAddress": f"{cloud.network}.{block}.{place + 2}", "port": 8470}
        if configs[0].get("enableExternalIps"):
            endpoint["accessConfig"] = {"externalIp": f"{cloud.network}.{block + 128}.{place + 2}"}
        endpoints.append(endpoint)
    return {**vm, "cidrBlock": vm.get("_cidr") or f"{cloud.network}.0.0/17", "networkEndpoints": endpoints}


def free_numbers(cloud: Cloud, count: int) -> list[int]:
    """Allocate address numbers, unique among all hosts of the cloud."""
    free, fresh = _numbers(cloud)
    given = [*free, *range(fresh, fresh + count)][:count]
    cloud.state.put("vm_numbers", "", {"free": free[count:], "fresh": max(fresh, given[-1] + 1)})
    return given


def give_back(cloud: Cloud, numbers: Iterable[int]) -> None:
    free, fresh = _numbers(cloud)
    cloud.state.put("vm_numbers", "", {"free": sorted([*free, *numbers]), "fresh": fresh})


def _numbers(cloud: Cloud) -> tuple[list[int], int]:
    """Return the released numbers and the first unused one. They are stored, to avoid a scan of all TPU VMs."""
    if kept := cloud.state.get("vm_numbers", ""):
        return kept["free"], kept["fresh"]
    taken = {number for vm in cloud.state.each("vm") for number in vm["_numbers"]}
    fresh = max(taken, default=-1) + 1
    return [number for number in range(fresh) if number not in taken], fresh
