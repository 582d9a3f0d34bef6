"""Facts shown before the user confirms: cost, unknown costs, and whether quota allows it."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from tpukit.cluster import busy_pools, checks, ip_ranges, machine_quota, quota, running_costs
from tpukit.cluster.machine_quota import ASK, NOT_ENOUGH
from tpukit.cluster.spec import ClusterSpec
from tpukit.cluster.terraform_events import Planned
from tpukit.core.errors import NoCapacity
from tpukit.core.quantities import counted

_TPU_POOL = re.compile(r"""\btpu_pools\..*\["(?P<name>[^"]+)"\]$""")


def lines(spec: ClusterSpec) -> list[str]:
    """Return the command lines of `show`."""
    families = quota.questions(spec, quota.needs(spec)).values()
    return ["# if machines are to be made", *map(str, (quota.question(spec), *families))]


def show(spec: ClusterSpec, planned: Sequence[Planned] | None, say: Callable[[str], None]) -> None:
    """Print cost and quota, and refuse a plan that is known to exceed a quota.

    `planned` is None if the plan is unavailable here: everything may have to be created, or may exist already.
    """
    found = running_costs.estimate(spec)
    for line in running_costs.lines(found):
        say(line)
    say(addresses(spec))
    pools = None if planned is None else new_pools(planned)
    chips, machines = quota.needs(spec, pools), machine_quota.needs(spec, pools, **_made(planned))
    if not chips and not machines:
        return
    quotas = quota.read(spec)
    said = [
        *quota.lines(spec.region, chips, quotas, quota.read_families(spec, chips)),
        *machine_quota.lines(spec.region, machines, quotas),
    ]
    for line in said:
        say(line)
    if planned is not None and not found.comes_and_goes and any(NOT_ENOUGH in line for line in said):
        raise NoCapacity(
            f"the quota of {spec.project_id} in {spec.region} does not allow this, so nothing was changed",
            hint=f"request more at {ASK}, or ask for less",
        )


def _made(planned: Sequence[Planned] | None) -> dict[str, bool]:
    """Return which resources that take quota a plan creates, besides slices."""
    kinds = {"cluster": "google_container_cluster", "nat": "google_compute_router_nat"}
    made = {change.address for change in planned or () if change.action == "create"}
    by_kind = {change.kind for change in planned or () if change.action == "create"}
    found = {name: planned is None or kind in by_kind for name, kind in kinds.items()}
    return {**found, "cpu_pool": planned is None or any("cpu_pool." in address for address in made)}


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
