"""Address ranges: parse them, find overlaps, and check that the nodes fit."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import AddressValueError, IPv4Network, NetmaskValueError
from itertools import combinations, islice
from typing import TypeVar

RESERVED_BY_GOOGLE = (
    4  # addresses of every subnet: https://cloud.google.com/vpc/docs/subnets#unusable-ip-addresses-in-every-subnet
)
Name = TypeVar("Name")
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


@dataclass(frozen=True, slots=True)
class Placed:
    """The result of giving each pool a range."""

    rooms: tuple[int, ...]  # addresses left in each range
    without: int  # addresses of the pools that found no range


def place(ranges: Sequence[IPv4Network], pools: list[Nodes]) -> Placed:
    """Give each pool the range with the most room, as GKE does: the first pool, then the largest ones.

    All nodes of a pool take their addresses from one range. The first pool is created with the cluster, and keeps a
    block for the extra node of an upgrade.
    """
    rooms = [one.num_addresses for one in ranges]
    sizes = [pool.count * pod_block(pool.pods) for pool in pools]
    sizes[0] += max(pod_block(pool.pods) for pool in pools)
    without = 0
    for size in (sizes[0], *sorted(sizes[1:], reverse=True)):
        widest = max(range(len(rooms)), key=rooms.__getitem__)
        if rooms[widest] < size:
            without += size
        else:
            rooms[widest] -= size
    return Placed(tuple(rooms), without)


def hosts_left(subnet: IPv4Network, ranges: Sequence[IPv4Network], pools: list[Nodes], pods: int) -> int:
    """Return how many more nodes with this many pods fit beside the given pools."""
    block = pod_block(pods)
    spare = sum(room // block for room in place(ranges, pools).rooms)
    return max(0, min(spare, subnet.num_addresses - RESERVED_BY_GOOGLE - nodes_needed(pools)))


def prefix(addresses: int) -> int:
    """Return the prefix of the smallest range for this many addresses."""
    return 32 - (addresses - 1).bit_length()


def free(prefix: int, taken: Iterable[IPv4Network]) -> IPv4Network | None:
    """Return the first range of this size in 10.0.0.0/8 that overlaps none of `taken`."""
    used = list(taken)
    candidates = IPv4Network("10.0.0.0/8").subnets(new_prefix=prefix) if prefix >= _LARGEST else iter(())
    return next((one for one in islice(candidates, _TRIES) if not any(one.overlaps(other) for other in used)), None)


def overlaps(ranges: Mapping[Name, IPv4Network]) -> list[tuple[Name, Name]]:
    return [(a, b) for a, b in combinations(ranges, 2) if ranges[a].overlaps(ranges[b])]
