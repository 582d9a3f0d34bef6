"""Facts shown before the user confirms: cost, unknown costs, and whether quota allows it."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from tpukit.cluster import busy_pools, checks, ip_ranges, quota, running_costs
from tpukit.cluster.spec import ClusterSpec
from tpukit.cluster.terraform_events import Planned
from tpukit.core.quantities import counted

_TPU_POOL = re.compile(r"""\btpu_pools\..*\["(?P<name>[^"]+)"\]$""")


def lines(spec: ClusterSpec) -> list[str]:
    """Return the command lines of `show`."""
    if not (wanted := quota.needs(spec)):
        return []
    asked = (quota.question(spec), *quota.questions(spec, wanted).values())
    return ["# if slices are to be made", *map(str, asked)]


def show(spec: ClusterSpec, planned: Sequence[Planned] | None, say: Callable[[str], None]) -> None:
    """Print cost and quota. `planned` is None if the plan is unavailable here: everything may have to be created."""
    for line in running_costs.lines(running_costs.estimate(spec)):
        say(line)
    say(addresses(spec))
    wanted = quota.needs(spec, None if planned is None else new_pools(planned))
    if wanted:
        for line in quota.lines(spec.region, wanted, quota.read(spec), quota.read_families(spec, wanted)):
            say(line)


def addresses(spec: ClusterSpec) -> str:
    """Return a line about the hosts that the ranges of addresses have room for."""
    if not spec.create_subnet:
        return f"Addresses: how many more hosts subnet {spec.subnet_name} has room for is unknown here"
    ranges = [ip_ranges.parse(text) for text in (spec.pods_ip_range, *spec.additional_pods_ip_ranges)]
    nodes = checks.nodes(spec.to_json(), spec.shapes)
    left = ip_ranges.hosts_left(ip_ranges.parse(spec.subnet_ip_range), ranges, nodes, spec.tpu_max_pods_per_node)
    return f"Addresses: {counted(left, 'more host fits', 'more hosts fit')} into the ranges of {spec.subnet_name}"


def new_pools(planned: Sequence[Planned]) -> set[str]:
    """Return the names of TPU pools that a plan creates. A replaced pool releases the quota that it takes."""
    return {
        found["name"]
        for change in planned
        if change.kind == busy_pools.POOL and change.action == "create" and (found := _TPU_POOL.search(change.address))
    }
