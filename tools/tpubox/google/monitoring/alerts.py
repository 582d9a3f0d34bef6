"""Cloud Monitoring: alert policies, their notification channels, dashboards. Nothing is measured here.

A policy over a metric unknown to Monitoring is refused, as Terraform experiences in a new project: log-based metrics
become known some time after their creation, metrics of programs with their first data. No program sends data here, so a
query is accepted only if it declares that its metrics need not exist.
https://cloud.google.com/monitoring/api/ref_v3/rest/v3/projects.alertPolicies
https://github.com/hashicorp/terraform-provider-google/issues/11102
"""

from __future__ import annotations

import re
import uuid

from tpubox.google.wire.api import Api, Call, replaced
from tpubox.google.wire.cloud import Cloud
from tpubox.google.wire.settings import number_of
from tpubox.google.wire.sources import GUESS, METRIC_NOT_FOUND
from tpubox.google.wire.state import Doc

POLICIES = "projects/{project}/alertPolicies"
CHANNELS = "projects/{project}/notificationChannels"
DASHBOARDS = "projects/{project}/dashboards"
MOST_CONDITIONS = 6
METRIC_ARRIVAL_SECONDS = 600.0
_LAYOUTS = ("gridLayout", "mosaicLayout", "rowLayout", "columnLayout")
_KINDS = (
    *("conditionThreshold", "conditionAbsent", "conditionMatchedLog", "conditionMonitoringQueryLanguage"),
    *("conditionPrometheusQueryLanguage", "conditionSql"),
)
_OURS = ("name", "creationRecord", "mutationRecord")
_METRIC = re.compile(r'metric\.type\s*=\s*"([^"]+)"')
_LABEL = re.compile(r"[a-z][a-z0-9_-]{0,62}")
_VALUE = re.compile(r"[a-z0-9_-]{0,63}")

api = Api(
    "monitoring",
    service="monitoring.googleapis.com",
    document="monitoring",
    title="Cloud Monitoring API",
    versions=("v3", "v1"),
    permissions="monitoring",
    terraform={"MONITORING": ""},
)


@api.on("POST", POLICIES, body="AlertPolicy")
def _create_policy(cloud: Cloud, call: Call) -> Doc:
    if call.body.get("name"):
        raise GUESS.invalid("Field alert_policy.name must be empty: Cloud Monitoring assigns it.")
    name = f"projects/{call['project']}/alertPolicies/{_number(cloud)}"
    record = _record(cloud, call)
    made = _policy(cloud, name, {**call.body, "creationRecord": record, "mutationRecord": record})
    cloud.state.put("alert_policy", name, made)
    return made


@api.on("GET", POLICIES, lists="AlertPolicy")
def _list_policies(cloud: Cloud, call: Call) -> Doc:
    found = list(cloud.state.all("alert_policy", f"projects/{call['project']}/").values())
    return {"alertPolicies": found, "totalSize": len(found)} if found else {}


@api.on("GET", POLICIES + "/{policy}")
def _show_policy(cloud: Cloud, call: Call) -> Doc:
    return _find_policy(cloud, call)


@api.on("PATCH", POLICIES + "/{policy}", body="AlertPolicy")
def _change_policy(cloud: Cloud, call: Call) -> Doc:
    old = _find_policy(cloud, call)
    fields = [name for name in call.mask() if name not in _OURS]
    new = {**replaced(old, call.body, fields), "mutationRecord": _record(cloud, call)}
    new = _policy(cloud, old["name"], new)
    cloud.state.put("alert_policy", old["name"], new)
    return new


@api.on("DELETE", POLICIES + "/{policy}")
def _delete_policy(cloud: Cloud, call: Call) -> Doc:
    cloud.state.delete("alert_policy", _find_policy(cloud, call)["name"])
    return {}


@api.on("POST", CHANNELS, body="NotificationChannel")
def _create_channel(cloud: Cloud, call: Call) -> Doc:
    if not call.body.get("type"):
        raise GUESS.invalid("Field notification_channel.type must be given.")
    name = f"projects/{call['project']}/notificationChannels/{_number(cloud)}"
    made = {"enabled": True, **call.body, "name": name, "creationRecord": _record(cloud, call)}
    cloud.state.put("notification_channel", name, made)
    return made


@api.on("GET", CHANNELS + "/{channel}")
def _show_channel(cloud: Cloud, call: Call) -> Doc:
    return _find_channel(cloud, call)


@api.on("DELETE", CHANNELS + "/{channel}")
def _delete_channel(cloud: Cloud, call: Call) -> Doc:
    """Delete a channel; with `force` also remove it from the policies that use it."""
    name = _find_channel(cloud, call)["name"]
    users = {
        policy: doc
        for policy, doc in cloud.state.all("alert_policy").items()
        if name in doc.get("notificationChannels", [])
    }
    if users and not call.flag("force"):
        raise GUESS.refused(400, f"Channel {name} is used by {', '.join(users)}.", status="FAILED_PRECONDITION")
    for policy, doc in users.items():
        left = [one for one in doc["notificationChannels"] if one != name]
        cloud.state.put("alert_policy", policy, {**doc, "notificationChannels": left})
    cloud.state.delete("notification_channel", name)
    return {}


@api.on("POST", DASHBOARDS, body="Dashboard")
def _create_dashboard(cloud: Cloud, call: Call) -> Doc:
    own = str(uuid.UUID(int=cloud.state.next(), version=4))
    asked = str(call.body.get("name") or f"projects/{number_of(call['project'])}/dashboards/{own}")
    name = f"projects/{number_of(call['project'])}/dashboards/{asked.rpartition('/')[2]}"
    if cloud.state.get("dashboard", name):
        raise GUESS.exists(f"Dashboard {name} already exists.")
    return _put_dashboard(cloud, name, call.body)


@api.on("GET", DASHBOARDS)
def _list_dashboards(cloud: Cloud, call: Call) -> Doc:
    found = list(cloud.state.all("dashboard", f"projects/{number_of(call['project'])}/").values())
    return {"dashboards": found} if found else {}


@api.on("GET", DASHBOARDS + "/{dashboard}")
def _show_dashboard(cloud: Cloud, call: Call) -> Doc:
    return _find_dashboard(cloud, call)


@api.on("PATCH", DASHBOARDS + "/{dashboard}", body="Dashboard")
def _change_dashboard(cloud: Cloud, call: Call) -> Doc:
    """Replace the whole dashboard: the method has no mask."""
    old = _find_dashboard(cloud, call)
    if call.body.get("etag") not in (None, "", old["etag"]):
        raise GUESS.aborted(f"Etag {call.body['etag']} is not that of {old['name']}.")
    return _put_dashboard(cloud, old["name"], call.body)


@api.on("DELETE", DASHBOARDS + "/{dashboard}")
def _delete_dashboard(cloud: Cloud, call: Call) -> Doc:
    cloud.state.delete("dashboard", _find_dashboard(cloud, call)["name"])
    return {}


def _put_dashboard(cloud: Cloud, name: str, asked: Doc) -> Doc:
    if not asked.get("displayName"):
        raise GUESS.invalid("Field dashboard.displayName must be given.")
    if len([layout for layout in _LAYOUTS if layout in asked]) > 1:
        raise GUESS.invalid("A dashboard has one layout.")
    made = {**asked, "name": name, "etag": f"{cloud.state.next():032x}"}
    cloud.state.put("dashboard", name, made)
    return made


def _policy(cloud: Cloud, name: str, asked: Doc) -> Doc:
    """Return the policy to store: checked, with names for its conditions."""
    conditions = asked.get("conditions") or []
    if not 1 <= len(conditions) <= MOST_CONDITIONS:
        raise GUESS.invalid(f"Field alert_policy.conditions must have from 1 to {MOST_CONDITIONS} conditions.")
    if not asked.get("displayName") or asked.get("combiner", "COMBINE_UNSPECIFIED") == "COMBINE_UNSPECIFIED":
        raise GUESS.invalid("Fields alert_policy.displayName and alert_policy.combiner must be given.")
    for label, value in asked.get("userLabels", {}).items():
        if not _LABEL.fullmatch(label) or not _VALUE.fullmatch(value):
            raise GUESS.invalid(f"Field alert_policy.user_labels has an invalid entry {label}={value}.")
    for channel in asked.get("notificationChannels", []):
        if not cloud.state.get("notification_channel", channel):
            raise GUESS.not_found(f"Notification channel {channel} was not found.")
    for number, condition in enumerate(conditions):
        _check_condition(cloud, name.split("/")[1], condition, f"alert_policy.conditions[{number}]")
    named = [{**one, "name": one.get("name") or f"{name}/conditions/{_number(cloud)}"} for one in conditions]
    return {"enabled": True, **asked, "name": name, "conditions": named}


def _check_condition(cloud: Cloud, project: str, condition: Doc, where: str) -> None:
    given = [kind for kind in _KINDS if kind in condition]
    if len(given) != 1:
        raise GUESS.invalid(
            f'Field {where}.condition_case had an invalid value of "0": Condition subtype (e.g. "condition_absent",'
            '"condition_threshold", etc.) is absent or unknown.'
        )
    inner = condition[given[0]]
    if given[0] == "conditionPrometheusQueryLanguage":
        if not inner.get("query"):
            raise GUESS.invalid(f"Field {where}.condition_prometheus_query_language.query must not be empty.")
        if _seconds(inner.get("evaluationInterval", "30s")) % 30 or not _seconds(
            inner.get("evaluationInterval", "30s")
        ):
            raise GUESS.invalid(f"Field {where}: evaluation_interval must be a positive multiple of 30 seconds.")
        if not inner.get("disableMetricValidation"):
            # The description of the field documents this check.
            raise GUESS.not_found(f"Cannot find metric(s) of the query {inner['query']!r}.")
    elif given[0] in ("conditionThreshold", "conditionAbsent"):
        found = _METRIC.search(inner.get("filter", ""))
        if not found or "resource.type" not in inner["filter"]:
            raise GUESS.invalid(f"Field {where}: the filter must specify the metric type and the resource type.")
        if _seconds(inner.get("duration", "0s")) % 60:
            raise GUESS.invalid(f"Field {where}: the duration must be a multiple of a minute.")
        _check_known(cloud, project, found[1])


def _check_known(cloud: Cloud, project: str, metric: str) -> None:
    """Refuse an unknown metric. Google's own metrics are known at once, log-based ones after a delay."""
    prefix = "logging.googleapis.com/user/"
    own = cloud.state.get("log_metric", f"projects/{project}/metrics/{metric.removeprefix(prefix)}")
    foreign = metric.startswith(("custom.", "external.", "prometheus.", "workload."))
    young = own is None or cloud.clock.now() - own["_made"] < METRIC_ARRIVAL_SECONDS
    if foreign or (metric.startswith(prefix) and young):
        raise METRIC_NOT_FOUND.not_found(
            f'Cannot find metric(s) that match type = "{metric}". If a metric was created recently, it could take up '
            "to 10 minutes to become available. Please try again soon.",
        )


def _seconds(duration: str) -> float:
    return float(duration.removesuffix("s") or 0)


def _record(cloud: Cloud, call: Call) -> Doc:
    return {"mutateTime": cloud.stamp(), "mutatedBy": call.request.principal.partition(":")[2] or "owner@example.com"}


def _number(cloud: Cloud) -> str:
    """Return a number as long as Google's."""
    return str(10_000_000_000_000_000_000 + cloud.state.next())


def _find_policy(cloud: Cloud, call: Call) -> Doc:
    return _find(cloud, "alert_policy", f"projects/{call['project']}/alertPolicies/{call['policy']}")


def _find_channel(cloud: Cloud, call: Call) -> Doc:
    return _find(cloud, "notification_channel", f"projects/{call['project']}/notificationChannels/{call['channel']}")


def _find_dashboard(cloud: Cloud, call: Call) -> Doc:
    return _find(cloud, "dashboard", f"projects/{number_of(call['project'])}/dashboards/{call['dashboard']}")


def _find(cloud: Cloud, kind: str, name: str) -> Doc:
    found = cloud.state.get(kind, name)
    if found is None:
        raise GUESS.not_found(f"Requested entity was not found: {name}")
    return found
