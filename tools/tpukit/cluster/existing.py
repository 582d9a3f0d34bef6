"""Rules about resources that existed before the environment, and about regions that lack a service.

Each ignores values that it cannot read. Terraform checks while planning that a network, bucket or repository declared
as existing does exist.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from tpukit.core import resources
from tpukit.jobs.spec.forms import Violation

_NEW_SUBNET = ("subnet_ip_range", "pods_ip_range", "services_ip_range", "additional_pods_ip_ranges")
_OLD_SUBNET = ("pods_range_name", "services_range_name")
_OLD_SUBNET_MORE = "additional_pods_range_names"

Values = Mapping[str, Any]


def problems(values: Values, given: Values) -> Iterator[Violation]:
    """Yield fields that contradict each other; `given` has the fields that the user wrote."""
    yield from _network(values)
    yield from _subnet(values, given)
    if values.get("create_bucket") is False and values.get("force_destroy") is True:
        yield ("force_destroy",), "an existing bucket is never emptied", "leave it out"
    if values.get("enable_tensorboard") is not False:
        yield from _tensorboard(values)


def _network(values: Values) -> Iterator[Violation]:
    host, own = values.get("network_project_id"), values.get("project_id")
    if isinstance(host, str) and host != own:
        for field in ("create_network", "create_subnet"):
            if values.get(field) is True:
                yield (field,), f"no network resource is created in {host}, the host project", "write false"
        if values.get("create_nat") is True:
            yield ("create_nat",), f"no network resource is created in {host}, the host project", "leave it out"
    elif values.get("create_subnet") is False and values.get("create_network") is True:
        hint = "write create_network: false beside it"
        yield ("create_subnet",), "an existing subnet is part of an existing network", hint


def _subnet(values: Values, given: Values) -> Iterator[Violation]:
    if values.get("create_subnet") is False:
        for field in _OLD_SUBNET:
            if field not in given:
                hint = f"add {field}: NAME, a secondary range of that subnet"
                yield ("create_subnet",), f"{field} is missing for the existing subnet", hint
        for field in _NEW_SUBNET:
            if field in given:
                yield (field,), "an existing subnet has its own ranges", "leave it out"
    else:
        for field in (*_OLD_SUBNET, _OLD_SUBNET_MORE):
            if field in given:
                hint = "leave it out, or write create_subnet: false"
                yield (field,), "the ranges of a new subnet are named after it", hint
    if given.get("pods_range_name") == given.get("services_range_name") is not None:
        yield ("services_range_name",), "the pods use that range", "write another one"


def _tensorboard(values: Values) -> Iterator[Violation]:
    asked = values.get("tensorboard_region")
    near = values.get("services_region") or values.get("region")
    if isinstance(asked, str) and asked not in _known()["regions"]:
        hint = f"write {_near(near) or 'us-central1'}, or enable_tensorboard: false"
        yield ("tensorboard_region",), f"{asked} has no Vertex AI TensorBoard", hint
    elif asked is None and isinstance(near, str) and not _near(near):
        hint = "add tensorboard_region: REGION, or enable_tensorboard: false"
        yield ("region",), f"no region near {near} has Vertex AI TensorBoard", hint


def _near(region: object) -> str:
    """Return the region whose TensorBoard serves this region; "" if none is near."""
    if not isinstance(region, str):
        return ""
    known = _known()
    return region if region in known["regions"] else str(known["nearest"].get(region.partition("-")[0], ""))


@cache
def _known() -> Mapping[str, Any]:
    file = resources.folder("terraform") / "modules" / "tensorboard" / "regions.json"
    known: Mapping[str, Any] = json.loads(file.read_text())
    return known
