"""Address ranges: parse them, find overlaps, and check that the nodes fit."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from ipaddress import AddressValueError, IPv4Network, NetmaskValueError
from itertools import combinations, islice

RESERVED_BY_GOOGLE = (
    4  # addresses of every subnet: https://cloud.google.com/vpc/docs/subnets#unusable-ip-addresses-in-every-subnet
)
_TRIES = 4096  # ranges of a /20 in 10.0.0.0/8
_SMALLEST, _LARGEST = 29, 8  # prefixes that a subnet may have


@dataclass(frozen=True, slots=True)
class Nodes:
    """A number of nodes, each with room for a number of pods."""

    count: int
    pods: int


def parse(text: str) -> IPv4Network:
    """Parse a range. Raise ValueError with a sentence and, after a line break, what to write instead."""
    try:
        network = IPv4Network(text, strict=False)
    except (AddressValueError, NetmaskValueError, ValueError):
        raise ValueError(f"{text!r} is not a range of addresses\nwrite one like 10.129.0.0/20") from None
    if "/" not in text or not _LARGEST <= network.prefixlen <= _SMALLEST:
        raise ValueError(f"{text!r} is not a range for a subnet\nwrite a prefix from /{_LARGEST} to /{_SMALLEST}")
    if str(network) != text:
        raise ValueError(f"{text!r} is not the first address of such a range\nwrite {network}")
    if network.is_loopback or network.is_multicast or network.is_link_local or network.is_unspecified:
        raise ValueError(f"{text!r} cannot be used in a network\nwrite a private range such as 10.129.0.0/20")
    return network


def pod_block(pods: int) -> int:
    """Return the addresses that GKE gives a node: twice its pods, rounded up to a power of two, at least 16.

    https://cloud.google.com/kubernetes-engine/docs/how-to/flexible-pod-cidr
    """
    return max(16, 1 << (2 * pods - 1).bit_length())


def pods_needed(pools: list[Nodes]) -> int:
    """Return the addresses for the pods of all nodes, plus one block for the extra node of an upgrade."""
    blocks = [pod_block(pool.pods) for pool in pools]
    return sum(pool.count * block for pool, block in zip(pools, blocks, strict=True)) + max(blocks)


def nodes_needed(pools: list[Nodes]) -> int:
    return sum(pool.count for pool in pools) + 1


def prefix(addresses: int) -> int:
    """Return the prefix of the smallest range for this many addresses."""
    return 32 - (addresses - 1).bit_length()


def free(prefix: int, taken: Iterable[IPv4Network]) -> IPv4Network | None:
    """Return the first range of this size in 10.0.0.0/8 that overlaps none of `taken`."""
    used = list(taken)
    candidates = IPv4Network("10.0.0.0/8").subnets(new_prefix=prefix) if prefix >= _LARGEST else iter(())
    return next((one for one in islice(candidates, _TRIES) if not any(one.overlaps(other) for other in used)), None)


def overlaps(ranges: Mapping[str, IPv4Network]) -> list[tuple[str, str]]:
    return [(a, b) for a, b in combinations(ranges, 2) if ranges[a].overlaps(ranges[b])]
