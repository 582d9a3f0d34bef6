"""Log-based metrics, as Terraform manages them. Nothing is counted here.

https://cloud.google.com/logging/docs/reference/v2/rest/v2/projects.metrics
"""

from __future__ import annotations

import re

from tpubox.google.logging import filter as log_filter
from tpubox.google.logging.entries import api
from tpubox.google.wire.api import Call, merged, public
from tpubox.google.wire.cloud import Cloud
from tpubox.google.wire.sources import GUESS
from tpubox.google.wire.state import Doc

METRICS = "projects/{project}/metrics"
_NAME = re.compile(r"(?!/)[A-Za-z0-9_\-.,+!*',()%/]{1,100}")


@api.on("POST", METRICS, body="LogMetric")
def _create(cloud: Cloud, call: Call) -> Doc:
    full = f"projects/{call['project']}/metrics/{call.body.get('name', '')}"
    if cloud.state.get("log_metric", full):
        raise GUESS.exists(f"Metric {call.body['name']} already exists.")
    return _put(cloud, full, call.body, {"createTime": cloud.stamp(), "_made": cloud.clock.now()})


@api.on("GET", METRICS)
def _listed(cloud: Cloud, call: Call) -> Doc:
    found = [public(one) for one in cloud.state.all("log_metric", f"projects/{call['project']}/").values()]
    return {"metrics": found} if found else {}


@api.on("GET", METRICS + "/{metric}")
def _show(cloud: Cloud, call: Call) -> Doc:
    return public(_find(cloud, call))


@api.on("PUT", METRICS + "/{metric}", body="LogMetric")
def _replace(cloud: Cloud, call: Call) -> Doc:
    """Replace a metric, or create a missing one."""
    full = f"projects/{call['project']}/metrics/{call['metric']}"
    old = cloud.state.get("log_metric", full) or {"createTime": cloud.stamp(), "_made": cloud.clock.now()}
    return _put(cloud, full, call.body, {key: old[key] for key in ("createTime", "_made")})


@api.on("DELETE", METRICS + "/{metric}")
def _delete(cloud: Cloud, call: Call) -> Doc:
    _find(cloud, call)
    cloud.state.delete("log_metric", f"projects/{call['project']}/metrics/{call['metric']}")
    return {}


def _put(cloud: Cloud, full: str, asked: Doc, since: Doc) -> Doc:
    name = asked.get("name", "")
    if not _NAME.fullmatch(name) or not full.endswith(f"/metrics/{name}"):
        raise GUESS.invalid(f"Invalid metric name {name!r}.")
    if not asked.get("filter"):
        raise GUESS.invalid("The filter of the metric must be given.")
    log_filter.parse(asked["filter"])
    kind = f"logging.googleapis.com/user/{name}"
    described = {
        "name": f"{full.partition('/metrics/')[0]}/metricDescriptors/{kind}",
        "type": kind,
        "metricKind": "DELTA",
        "valueType": "INT64",
        "unit": "1",
        "description": asked.get("description", ""),
    }
    descriptor = merged(described, asked.get("metricDescriptor") or {})
    made = {**asked, "resourceName": full, "metricDescriptor": descriptor, "updateTime": cloud.stamp(), **since}
    cloud.state.put("log_metric", full, made)
    return public(made)


def _find(cloud: Cloud, call: Call) -> Doc:
    found = cloud.state.get("log_metric", f"projects/{call['project']}/metrics/{call['metric']}")
    if found is None:
        raise GUESS.not_found(f"Metric {call['metric']} does not exist.")
    return found
