"""The Google Cloud cluster to manage: from the options, else from the ConfigMap."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from tpukit.core.errors import Invalid, Problem

NAMESPACE = "tpu-provisioner-system"
NAME = "tpu-provisioner"
"""Name of the ConfigMap, the Lease and the service account."""


@dataclass(frozen=True, slots=True)
class Identity:
    project: str
    location: str
    cluster: str
    given_zones: tuple[str, ...] = ()

    @property
    def zones(self) -> tuple[str, ...]:
        """Zones for JobSets if neither they nor the ConfigMap name any: those given, or that of a zonal cluster."""
        if self.given_zones:
            return self.given_zones
        return (self.location,) if re.fullmatch(r"[a-z]+-[a-z]+\d+-[a-z]", self.location) else ()


def identity(given: Mapping[str, str | None], data: Mapping[str, str], zones: tuple[str, ...] = ()) -> Identity:
    values = {name: given.get(name) or data.get(name, "") for name in ("project", "location", "cluster")}
    if missing := [name for name, value in values.items() if not value]:
        where = f"ConfigMap {NAMESPACE}/{NAME}"
        raise Invalid(
            [
                Problem("", f"the {name} of the cluster is unknown", f"--{name}, or {name} in {where}")
                for name in missing
            ]
        )
    return Identity(**values, given_zones=zones)
