"""Names of clusters and node pools, as GKE writes them in links and refusals."""

from __future__ import annotations

from tpubox.google.wire.settings import number_of


def place(full: str) -> str:
    """Return a name with `zones` for a zonal cluster and `locations` for a regional one."""
    parts = full.split("/")
    return "/".join([*parts[:2], "zones" if parts[3].count("-") > 1 else "locations", *parts[3:]])


def numbered(full: str) -> str:
    """Return a name with the project number, as links of operations contain it."""
    _, project, rest = place(full).split("/", 2)
    return f"projects/{number_of(project)}/{rest}"
