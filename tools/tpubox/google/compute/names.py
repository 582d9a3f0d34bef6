"""Names of Compute Engine resources: their spellings, and the lookup by name."""

from __future__ import annotations

import re

from tpubox.google.wire.cloud import Cloud
from tpubox.google.wire.refusal import Refused
from tpubox.google.wire.sources import COMPUTE_NOT_FOUND, COMPUTE_NOT_READY
from tpubox.google.wire.state import Doc

ROOT = "https://www.googleapis.com/compute/v1"
NAME = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")


def relative(link: str, project: str) -> str:
    """Return the name of a resource without the host, from any of its spellings."""
    text = re.sub(r"^https?://.*?/(?=projects/)", "", link)
    return text if text.startswith("projects/") or not text else f"projects/{project}/{text}"


def network_name(link: str, project: str) -> str:
    """Return the full name of a network. APIs other than Compute Engine also accept the last part alone."""
    return relative(link if "/" in link else f"global/networks/{link}", project)


def subnet_name(link: str, project: str, region: str) -> str:
    return relative(link if "/" in link else f"regions/{region}/subnetworks/{link}", project)


def not_found(name: str) -> Refused:
    return COMPUTE_NOT_FOUND.not_found(f"The resource '{name}' was not found")


def find(cloud: Cloud, kind: str, name: str) -> Doc:
    doc = cloud.state.get(kind, name)
    if doc is None:
        raise not_found(name)
    return doc


def usable(cloud: Cloud, kind: str, name: str) -> Doc | None:
    """Return a resource unless it is being deleted: it stays visible until the end, but accepts no new users."""
    return None if _leaves(cloud, name) else cloud.state.get(kind, name)


def find_ready(cloud: Cloud, kind: str, name: str) -> Doc:
    doc = find(cloud, kind, name)
    if _leaves(cloud, name):
        raise COMPUTE_NOT_READY.refused(400, f"The resource '{name}' is not ready", reason="resourceNotReady")
    return doc


def _leaves(cloud: Cloud, name: str) -> bool:
    return any(operation["type"] == "delete" for operation in cloud.running(name))
