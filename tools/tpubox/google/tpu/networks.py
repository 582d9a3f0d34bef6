"""Networks of TPU VMs: they must exist when a VM is created, and stay as long as it exists."""

from __future__ import annotations

from collections.abc import Iterator

from tpubox.google.compute.names import network_name, relative, subnet_name, usable
from tpubox.google.wire.cloud import Cloud
from tpubox.google.wire.sources import GUESS
from tpubox.google.wire.state import Doc

_GONE = ("PREEMPTED", "TERMINATED")
"""States of VMs without machines. That these leave their network is a guess."""


def check(cloud: Cloud, full: str, node: Doc) -> None:
    """Refuse a TPU VM in a missing network or subnetwork.

    At Google the operation fails, with code 3 and these first words for a network that does not fit:
    https://github.com/hashicorp/terraform-provider-google/issues/11895. The rest is a guess.
    """
    project = full.split("/")[1]
    for network, subnet in _named(full, node):
        for kind, name in (("network", network), ("subnetwork", subnet)):
            if name and not usable(cloud, kind, name):
                raise GUESS.invalid(f"Cloud TPU received an invalid argument. The resource '{name}' was not found")
        found = cloud.state.get("subnetwork", subnet)
        if network and found and relative(found["network"], project) != network:
            raise GUESS.invalid(
                f"Cloud TPU received an invalid argument. Subnetwork '{subnet}' is not in network '{network}'"
            )


def held_by(cloud: Cloud, vm: Doc) -> set[str]:
    """Return the networks and subnetworks of a TPU VM."""
    if vm["state"] in _GONE:
        return set()
    held = {name for pair in _named(vm["name"], vm) for name in pair}
    subnets = [doc for name in held if (doc := cloud.state.get("subnetwork", name))]
    return {*held, *(relative(doc["network"], "") for doc in subnets)} - {""}


def _named(full: str, node: Doc) -> Iterator[tuple[str, str]]:
    """Yield the full names of network and subnetwork of each interface; "" for an unspecified one."""
    _, project, _, zone = full.split("/")[:4]
    region = zone.rpartition("-")[0]
    for config in node.get("networkConfigs") or [node.get("networkConfig") or {}]:
        network, subnet = config.get("network") or "", config.get("subnetwork") or ""
        yield (
            network_name(network, project) if network else "",
            subnet_name(subnet, project, region) if subnet else "",
        )
