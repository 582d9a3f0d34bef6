"""GKE: changes of existing clusters. An unknown change is refused, not ignored."""

from __future__ import annotations

from collections.abc import Set

from tpubox.google.gke import cluster_fields, pod_ranges
from tpubox.google.gke import versions as gke_versions
from tpubox.google.gke.container import CLUSTER, admit, api, find_cluster, scope
from tpubox.google.gke.pool_updates import rescale
from tpubox.google.wire import etags
from tpubox.google.wire.api import Call, Started, merged
from tpubox.google.wire.cloud import Cloud
from tpubox.google.wire.sources import EMULATOR, GKE_EMPTY_UPDATE, GKE_NO_UPDATE, GKE_POOL_ID, GUESS
from tpubox.google.wire.state import Doc

_PLACES = {
    "desiredDatapathProvider": "networkConfig.datapathProvider",
    "desiredDefaultEnablePrivateNodes": "networkConfig.defaultEnablePrivateNodes",
    "desiredDnsConfig": "networkConfig.dnsConfig",
    "desiredIntraNodeVisibilityConfig.enabled": "networkConfig.enableIntraNodeVisibility",
    "desiredMasterVersion": "currentMasterVersion",
}
"""Fields that a change writes under another name."""
_PLAIN = (
    *("AddonsConfig", "AuthenticatorGroupsConfig", "BinaryAuthorization", "ClusterAutoscaling"),
    *("ControlPlaneEndpointsConfig", "CostManagementConfig", "DatabaseEncryption", "Locations", "LoggingConfig"),
    *("MasterAuthorizedNetworksConfig", "MonitoringConfig", "NotificationConfig", "ReleaseChannel"),
    *("SecurityPostureConfig", "ShieldedNodes", "VerticalPodAutoscaling", "WorkloadIdentityConfig"),
)
_TOGETHER = (
    frozenset(("LoggingConfig", "LoggingService", "MonitoringConfig", "MonitoringService")),
    frozenset(("MasterVersion", "ReleaseChannel")),
    frozenset(("additionalPodRangesConfig", "removedAdditionalPodRangesConfig")),
    frozenset(
        (
            *("ControlPlaneEndpointsConfig", "DefaultEnablePrivateNodes", "EnablePrivateEndpoint"),
            *("MasterAuthorizedNetworksConfig", "PrivateClusterConfig"),
        )
    ),
)
"""Fields allowed in one request: gcloud sends some together, others are related. Google may accept fewer."""


@api.on("PUT", CLUSTER, body="UpdateClusterRequest")
def _update(cloud: Cloud, call: Call) -> Started:
    full, cluster = find_cluster(cloud, call)
    if call.body.get("update") is None:
        raise GKE_NO_UPDATE.invalid("Must provide an update.")
    update = dict(call.body["update"])
    etags.check(update.pop("etag", None), cluster)
    pool_name = update.pop("desiredNodePoolId", "")
    if not update:
        raise GKE_EMPTY_UPDATE.invalid("Must specify a field to update.")
    _check_alone({field.removeprefix("desired") for field in update})
    scaling = update.pop("desiredNodePoolAutoscaling", None)
    if scaling is not None:
        target = f"{full}/nodePools/{pool_name}" if pool_name else _only_pool(cloud, full)
        admit(cloud, full, target)
        return rescale(cloud, call, target, scaling)
    admit(cloud, full, full)
    if (with_ranges := pod_ranges.changed(cloud, full, cluster, update)) is not None:
        return _changed(cloud, call, full, with_ranges)
    for field, value in update.items():
        path, inner = _place(field, value)
        if path == "currentMasterVersion":
            inner = gke_versions.for_upgrade(cluster, str(inner))
        cluster = _with(cluster, path, inner)
    return _changed(cloud, call, full, cluster)


def _only_pool(cloud: Cloud, full: str) -> str:
    names = list(cloud.state.all("pool", f"{full}/"))
    if len(names) != 1:
        raise GKE_POOL_ID.invalid("Node pool id must be specified if cluster has more than one node pool..")
    return names[0]


def _check_alone(fields: Set[str]) -> None:
    """Refuse several updates in one request. The error text is a guess.

    Exactly one update can be applied with each request, so at most one field can be provided:
    https://cloud.google.com/kubernetes-engine/docs/reference/rest/v1/ClusterUpdate
    """
    if len(fields) > 1 and not any(fields <= group for group in _TOGETHER):
        raise GUESS.invalid(f"Exactly one update can be applied with each request: {', '.join(sorted(fields))}.")


def _place(field: str, value: object) -> tuple[str, object]:
    if isinstance(value, dict) and (path := _PLACES.get(f"{field}.enabled")):
        return path, value.get("enabled", False)
    name = field.removeprefix("desired")
    path = _PLACES.get(field) or (name[0].lower() + name[1:] if name in _PLAIN else None)
    if path is None:
        raise EMULATOR.refused(501, f"The emulator cannot change {field} of a cluster.")
    return path, value


def _with(doc: Doc, path: str, value: object) -> Doc:
    """Return the document with one field replaced. Endpoints that GKE created are kept."""
    head, _, rest = path.partition(".")
    if rest:
        return {**doc, head: _with(doc.get(head, {}), rest, value)}
    if head == "controlPlaneEndpointsConfig" and isinstance(value, dict):
        return {**doc, head: merged(doc.get(head, {}), value)}
    return {**doc, head: value}


@api.on("POST", CLUSTER + ":setResourceLabels", body="SetLabelsRequest")
def _set_labels(cloud: Cloud, call: Call) -> Started:
    return _set(cloud, call, {"resourceLabels": call.body.get("resourceLabels", {})})


@api.on("POST", CLUSTER + ":setMaintenancePolicy", body="SetMaintenancePolicyRequest")
def _set_maintenance(cloud: Cloud, call: Call) -> Started:
    return _set(cloud, call, {"maintenancePolicy": call.body.get("maintenancePolicy", {})})


def _set(cloud: Cloud, call: Call, change: Doc) -> Started:
    full, cluster = find_cluster(cloud, call)
    admit(cloud, full, full)
    return _changed(cloud, call, full, {**cluster, **change})


def _changed(cloud: Cloud, call: Call, full: str, after: Doc) -> Started:
    cluster_fields.check(after)
    return cloud.change(api, "UPDATE_CLUSTER", scope(call), full, store="cluster", after=after)
