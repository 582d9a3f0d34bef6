"""Facts shown before the user confirms: cost, unknown costs, and whether quota allows it."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from tpukit.cluster import busy_pools, quota, running_costs
from tpukit.cluster.spec import ClusterSpec
from tpukit.cluster.terraform_events import Planned

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
    wanted = quota.needs(spec, None if planned is None else new_pools(planned))
    if wanted:
        for line in quota.lines(spec.region, wanted, quota.read(spec), quota.read_families(spec, wanted)):
            say(line)


def new_pools(planned: Sequence[Planned]) -> set[str]:
    """Return the names of TPU pools that a plan creates. A replaced pool releases the quota that it takes."""
    return {
        found["name"]
        for change in planned
        if change.kind == busy_pools.POOL and change.action == "create" and (found := _TPU_POOL.search(change.address))
    }
