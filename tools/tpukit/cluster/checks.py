"""Rules between the fields of a cluster file. Each ignores values that it cannot read.

The rules run even if single fields are wrong, so that all problems are reported at once.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from ipaddress import IPv4Network
from typing import Any, TypeGuard

from tpukit.catalogue import Slice, zones
from tpukit.cluster import ip_ranges
from tpukit.cluster.ip_ranges import Nodes
from tpukit.cluster.pool_shapes import FIELDS, Wrong, resolve, says_nothing
from tpukit.jobs.spec.forms import Violation

_ZONE = re.compile(r"([a-z]+-[a-z]+[0-9]+)-[a-z0-9]+")
_RANGES = ("subnet_ip_range", "pods_ip_range", "services_ip_range")
_MORE = "additional_pods_ip_ranges"
_NO_FLEX_START = ("v3", "v4")  # https://cloud.google.com/kubernetes-engine/docs/concepts/dws
_QUEUED = ("v6e", "tpu7x")
"""Google refuses queued provisioning for others: https://github.com/AI-Hypercomputer/xpk/pull/900 (all, December 2025)
and https://github.com/GoogleCloudPlatform/cluster-toolkit/pull/5218 (these two since February 2026).
"""
_LONGEST_POOL = 40
MOST_POOLS = 200
"""Limit on pools: GKE's autoscaling becomes slow beyond it."""

Values = Mapping[str, Any]


def problems(values: Values) -> list[Violation]:
    """Return all violations between the fields of one file."""
    shapes, found = _shapes(values)
    for rule in _RULES:
        found += rule(values, shapes)
    return found


def pools(values: Values) -> dict[str, Values]:
    """Return the settings of each pool by its name: its own, or the common ones."""
    named = values.get("tpu_pools")
    if not isinstance(named, Mapping):
        count, prefix = values.get("num_tpu_pools"), values.get("tpu_node_pool_name_prefix")
        readable = _count(count) and count <= MOST_POOLS and isinstance(prefix, str)
        named = {f"{prefix}-{index}": {} for index in range(count or 0)} if readable else {}
    return {str(name): _pool(values, pool) for name, pool in named.items() if pool is None or isinstance(pool, Mapping)}


def _pool(values: Values, pool: Values | None) -> Values:
    own = pool or {}
    shape = values if says_nothing(own) else own
    common = own.get("capacity") is None
    return {field: shape.get(field) for field in FIELDS} | {
        "capacity": (values if common else own).get("capacity"),
        # A pool with its own reservation needs no capacity of its own if all pools are reserved.
        "reservation_name": (values if common and own.get("reservation_name") is None else own).get("reservation_name"),
    }


def _shapes(values: Values) -> tuple[dict[str, Slice], list[Violation]]:
    """Return every pool's slice, and the violations of pools without one."""
    shapes: dict[str, Slice] = {}
    found: list[Violation] = []
    own = values.get("tpu_pools") if isinstance(values.get("tpu_pools"), Mapping) else {}
    # The common shape is checked even if no pool uses it.
    for name, pool in {"": _pool(values, None), **pools(values)}.items():
        if not _readable(pool):
            continue
        try:
            shapes[name] = resolve(pool)
        except Wrong as wrong:
            common = not isinstance(own, Mapping) or says_nothing(own.get(name) or {})
            path = (wrong.field,) if common else ("tpu_pools", name, wrong.field)
            found.append((path, wrong.what, wrong.hint))
    shapes.pop("", None)
    return shapes, list(dict.fromkeys(found))


def _readable(pool: Values) -> bool:
    *texts, nodes = (pool[field] for field in FIELDS)
    return all(text is None or isinstance(text, str) for text in texts) and (nodes is None or _count(nodes))


def _zone(values: Values, shapes: Mapping[str, Slice]) -> Iterator[Violation]:
    region, zone = values.get("region"), values.get("zone")
    match = _ZONE.fullmatch(zone) if isinstance(zone, str) else None
    if not match:
        return
    wanted = dict.fromkeys(shapes.values())
    if isinstance(region, str) and match[1] != region:
        there = tuple(known for shape in wanted for known in shape.zones if known.startswith(f"{region}-"))
        right = _either(there) if there else f"a zone of {region}"
        yield ("zone",), f"{zone} is not in {region}", f"write {right}, or region: {match[1]}"
        return
    for shape in wanted:
        if shape.zones and zone not in shape.zones and values.get("any_zone") is not True:
            hint = f"write {_either(shape.zones)}, or any_zone: true to use it anyway"
            yield ("zone",), f"{zone} is not known to have {shape.name}", hint
            return


def _cpu_zone(values: Values, shapes: Mapping[str, Slice]) -> Iterator[Violation]:
    """Check the CPU pool's zone and machine type, as Terraform's plan does too."""
    zone, own, machine_type = values.get("zone"), values.get("cpu_zone"), values.get("cpu_pool_machine_type")
    if not (isinstance(zone, str) and (own is None or isinstance(own, str)) and isinstance(machine_type, str)):
        return
    region, place = zone.rpartition("-")[0], own or zones.beside(zone)
    if place.rpartition("-")[0] != region:
        yield ("cpu_zone",), f"{place} is not in {region}, the region of the slices", f"write a zone of {region}"
    elif zones.offers(place, machine_type) is False:
        what = f"{place} has no {machine_type.partition('-')[0]} machines"
        elsewhere = zones.offering(region, machine_type)
        hint = f"write n2-standard-4, or another of {', '.join(zones.families(place))}"
        yield ("cpu_pool_machine_type",), what, f"{hint}; or cpu_zone: {_either(elsewhere)}" if elsewhere else hint


def _capacity(values: Values, shapes: Mapping[str, Slice]) -> Iterator[Violation]:
    named = values.get("tpu_pools")
    pools_said = named if isinstance(named, Mapping) else {"": None}
    yield from dict.fromkeys(
        found
        for name, own in pools_said.items()
        if own is None or isinstance(own, Mapping)
        for found in _reservation(name, own or {}, _pool(values, own))
    )
    for pool, words in pools(values).items():
        generation = shapes[pool].generation if pool in shapes else ""
        if words.get("capacity") == "flex-start" and generation in _NO_FLEX_START:
            yield ("capacity",), f"{generation} is not sold as flex-start", "write on-demand, spot or reservation"
            return
        queued = words.get("capacity") == "flex-start" and values.get("flex_start_queued") is True
        if queued and generation and generation not in _QUEUED:
            what = f"Google serves no {generation} by queued provisioning"
            yield ("flex_start_queued",), what, "leave it out: slices are then created by autoscaling, one by one"
            return


def _reservation(name: str, own: Values, pool: Values) -> Iterator[Violation]:
    """Yield violations in how a pool is bought, at its own fields or the common ones."""
    capacity, reservation = pool["capacity"], pool["reservation_name"]
    if capacity == "reservation" and reservation is None:
        path = ("capacity",) if own.get("capacity") is None else ("tpu_pools", name, "capacity")
        yield path, "the reservation has no name", "add reservation_name: NAME"
    if capacity in ("on-demand", "spot", "flex-start") and reservation is not None:
        path = ("reservation_name",) if own.get("reservation_name") is None else ("tpu_pools", name, "reservation_name")
        hint = "write capacity: reservation, or leave this out"
        yield path, f"a reservation is not used with capacity {capacity}", hint


def _ranges(values: Values, shapes: Mapping[str, Slice]) -> Iterator[Violation]:
    if values.get("create_subnet") is False:
        return  # Terraform reads the ranges of an existing subnet
    ranges: dict[tuple[str | int, ...], IPv4Network] = {
        (name,): network for name in _RANGES if (network := _range(values.get(name)))
    }
    more = values.get(_MORE)
    for index, text in enumerate(more if isinstance(more, (list, tuple)) else ()):
        if network := _range(text):
            ranges[_MORE, index] = network
    for first, second in ip_ranges.overlaps(ranges):
        room = ip_ranges.free(ranges[second].prefixlen, [one for name, one in ranges.items() if name != second])
        hint = f"give each a separate range: {room} is free" if room else "give each a separate range"
        yield second, f"it shares addresses with {first[0]} {ranges[first]}", hint
    found = _nodes(values, shapes)
    if found is None:
        return
    if ("subnet_ip_range",) in ranges:
        own, kept = ranges["subnet_ip_range",], ip_ranges.RESERVED_BY_GOOGLE
        if own.num_addresses - kept < (needed := ip_ranges.nodes_needed(found)):
            what = f"{own} holds {own.num_addresses - kept} addresses, and {needed} are needed"
            yield ("subnet_ip_range",), what, _wider(ranges, "subnet_ip_range", needed + kept)
    if ("pods_ip_range",) in ranges:
        held = [one for name, one in ranges.items() if name[0] in ("pods_ip_range", _MORE)]
        needed, without = ip_ranges.pods_needed(found), ip_ranges.place(held, found).without
        if without:
            own = ranges["pods_ip_range",]
            what = f"{own} holds {own.num_addresses} addresses, and {needed} are needed"
            if len(held) > 1:
                what = f"{needed} addresses are needed, and pools with {without} of them find no range with room"
            added = ip_ranges.free(ip_ranges.prefix(without), ranges.values())
            hint = _wider(ranges, "pods_ip_range", needed)
            yield ("pods_ip_range",), what, hint + (f"; if the cluster exists, add {added} to {_MORE}" if added else "")


def _wider(ranges: Mapping[tuple[str | int, ...], IPv4Network], name: str, addresses: int) -> str:
    wanted = ip_ranges.prefix(addresses)
    room = ip_ranges.free(wanted, [one for other, one in ranges.items() if other != (name,)])
    return f"write a /{wanted} or wider one" + (f", such as {room}" if room else "")


def nodes(values: Values, shapes: Mapping[str, Slice]) -> list[Nodes]:
    """Return the pools of a valid file: the nodes without TPUs first, then each slice."""
    return [
        Nodes(values["cpu_pool_node_count"], values["cpu_pool_max_pods_per_node"]),
        *(Nodes(shape.hosts, values["tpu_max_pods_per_node"]) for shape in shapes.values()),
    ]


def _nodes(values: Values, shapes: Mapping[str, Slice]) -> list[Nodes] | None:
    """Return the pools; None if the file does not say how many nodes they have."""
    fields = ("cpu_pool_node_count", "cpu_pool_max_pods_per_node", "tpu_max_pods_per_node")
    if not all(_count(values.get(name)) for name in fields) or len(shapes) != len(pools(values)):
        return None
    return nodes(values, shapes)


def _chips(values: Values, shapes: Mapping[str, Slice]) -> Iterator[Violation]:
    said, chips = values.get("num_of_chips"), sum(shape.chips for shape in shapes.values())
    if _count(said) and said != chips and len(shapes) == len(pools(values)):
        yield ("num_of_chips",), f"the pools have {chips} chips", f"write {chips}, or leave it out"


def _names(values: Values, shapes: Mapping[str, Slice]) -> Iterator[Violation]:
    if values.get("tpu_sa_name") == values.get("gke_sa_name") is not None:
        what = "workloads and nodes must use different accounts"
        yield ("tpu_sa_name",), what, "use another name than that of gke_sa_name"
    if not isinstance(values.get("tpu_pools"), Mapping) and any(len(pool) > _LONGEST_POOL for pool in pools(values)):
        hint = f"names of pools have at most {_LONGEST_POOL} characters"
        yield ("tpu_node_pool_name_prefix",), "the pool names would be too long", f"write a shorter one: {hint}"


_RULES: tuple[Callable[[Values, Mapping[str, Slice]], Iterator[Violation]], ...] = (
    _zone,
    _cpu_zone,
    _capacity,
    _ranges,
    _chips,
    _names,
)


def _range(value: object) -> IPv4Network | None:
    try:
        return ip_ranges.parse(value) if isinstance(value, str) else None
    except ValueError:
        return None


def _count(value: object) -> TypeGuard[int]:
    """Return whether a value is an integer small enough to count up to; the field itself refuses more."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= 1_000_000


def _either(words: tuple[str, ...]) -> str:
    return " or ".join(filter(None, (", ".join(words[:-1]), words[-1])))
