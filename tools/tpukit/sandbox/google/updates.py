"""GKE: changes of clusters and node pools that are there. A change that is not known is refused, never swallowed."""

from __future__ import annotations

from dataclasses import replace

from tpukit.sandbox.google import etags, pool_checks, stock_and_quota
from tpukit.sandbox.google.api import After, Call, Started, merged
from tpukit.sandbox.google.cloud import Cloud
from tpukit.sandbox.google.container import CLUSTER, POOL, VERSIONS, admit, api, find_cluster, find_pool, pool_of, scope
from tpukit.sandbox.google.pool_nodes import described
from tpukit.sandbox.google.sources import EMULATOR, GUESS
from tpukit.sandbox.google.state import Doc
from tpukit.sandbox.google.stock_and_quota import Holding

_PLACES = {
    "desiredDatapathProvider": "networkConfig.datapathProvider",
    "desiredDefaultEnablePrivateNodes": "networkConfig.defaultEnablePrivateNodes",
    "desiredDnsConfig": "networkConfig.dnsConfig",
    "desiredIntraNodeVisibilityConfig.enabled": "networkConfig.enableIntraNodeVisibility",
    "desiredMasterVersion": "currentMasterVersion",
}
"""Where a change goes that does not have its field's own name."""
_PLAIN = (
    *("AddonsConfig", "AuthenticatorGroupsConfig", "BinaryAuthorization", "ClusterAutoscaling"),
    *("ControlPlaneEndpointsConfig", "CostManagementConfig", "DatabaseEncryption", "Locations", "LoggingConfig"),
    *("MasterAuthorizedNetworksConfig", "MonitoringConfig", "NotificationConfig", "ReleaseChannel"),
    *("SecurityPostureConfig", "ShieldedNodes", "VerticalPodAutoscaling", "WorkloadIdentityConfig"),
)
_OF_CONFIG = (
    *("diskType", "gcfsConfig", "gvnic", "imageType", "kubeletConfig", "linuxNodeConfig", "loggingConfig"),
    *("machineType", "workloadMetadataConfig"),
)
_OF_POOL = ("locations", "nodeDrainConfig", "queuedProvisioning", "upgradeSettings")


@api.on("PUT", CLUSTER, body="UpdateClusterRequest")
def _update(cloud: Cloud, call: Call) -> Started:
    full, cluster = find_cluster(cloud, call)
    update = dict(call.body.get("update") or {})
    etags.check(update.pop("etag", None), cluster)
    pool_name = update.pop("desiredNodePoolId", None)
    scaling = update.pop("desiredNodePoolAutoscaling", None)
    if scaling is not None:
        target = f"{full}/nodePools/{pool_name}"
        admit(cloud, full, target)
        return _rescale(cloud, call, target, scaling)
    admit(cloud, full, full)
    for field, value in update.items():
        path, inner = _place(field, value)
        if path == "currentMasterVersion" and inner not in (*VERSIONS, "-", "latest"):
            raise GUESS.invalid(f'Master version "{inner}" is unsupported.')
        cluster = _with(cluster, path, inner)
    return cloud.change(api, "UPDATE_CLUSTER", scope(call), full, store="cluster", after=cluster)


def _place(field: str, value: object) -> tuple[str, object]:
    if isinstance(value, dict) and (path := _PLACES.get(f"{field}.enabled")):
        return path, value.get("enabled", False)
    name = field.removeprefix("desired")
    path = _PLACES.get(field) or (name[0].lower() + name[1:] if name in _PLAIN else None)
    if path is None:
        raise EMULATOR.refused(501, f"The emulator cannot change {field} of a cluster.")
    return path, value


def _with(doc: Doc, path: str, value: object) -> Doc:
    """The document with one field replaced. Endpoints that GKE made stay as they are."""
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
    return cloud.change(api, "UPDATE_CLUSTER", scope(call), full, store="cluster", after={**cluster, **change})


@api.on("POST", POOL + ":setSize", body="SetNodePoolSizeRequest")
def _resize(cloud: Cloud, call: Call) -> Started:
    full, pool = _pool(cloud, call)
    if pool["_several_hosts"]:
        raise GUESS.invalid("A multi-host TPU slice cannot be resized: it has all of its nodes or none.")
    count = call.body.get("nodeCount", 0)
    if count < 0:
        raise GUESS.invalid("Invalid value for field 'node_count': it must not be negative.")
    holding = Holding(**pool["_holds"]) if pool["_holds"] else None
    if holding:
        _, cluster = find_cluster(cloud, call)
        wish = pool_checks.check(cloud, cluster, {**pool, "initialNodeCount": count})
        assert wish.holding is not None
        more = Holding(holding.zone, holding.generation, max(0, wish.holding.chips - holding.chips), holding.spot)
        stock_and_quota.check_gke(cloud, more, full)
        holding = wish.holding
    holds = holding.doc() if holding else None
    cloud.state.put("pool", full, {**pool, "status": "RECONCILING", "_size": count, "_holds": holds})
    return cloud.start(
        api, "SET_NODE_POOL_SIZE", scope(call), full, before={"_size": pool["_size"], "_holds": pool["_holds"]}
    )


def scale(cloud: Cloud, full: str, count: int) -> None:
    """As the cluster autoscaler resizes a pool: no operation is seen. Refused where there is no quota for it.

    Where there are no chips, the pool is as it was before when the time of the operation is over, and says so in a
    field of its own: GKE's autoscaler takes back what it asked for, and the pool stays RUNNING.
    """
    with cloud.state.transaction():
        pool = find_pool(cloud, full)
        holds = pool["_holds"]
        if holds:
            shape = described(cloud, full).slice
            assert shape is not None
            asked = Holding(**{**holds, "chips": count * shape.chips_per_host * len(pool["locations"]), "up": False})
            more = replace(asked, chips=max(0, asked.chips - holds["chips"]))
            stock_and_quota.check_gke(cloud, more, full)
            holds = asked.doc()
        before = {"_size": pool["_size"], "_holds": pool["_holds"]}
        cloud.state.put("pool", full, {**pool, "_size": count, "_holds": holds, "_before": before, "_unfilled": ""})
        cloud.later(api, "AUTOSCALE", full, cloud.settings.duration("SET_NODE_POOL_SIZE"))


@api.on("POST", POOL + ":setManagement", body="SetNodePoolManagementRequest")
def _set_management(cloud: Cloud, call: Call) -> Started:
    full, pool = _pool(cloud, call)
    _, cluster = find_cluster(cloud, call)
    changed = {**pool, "management": call.body.get("management", {})}
    pool_checks.check(cloud, cluster, changed)
    return cloud.change(api, "SET_NODE_POOL_MANAGEMENT", scope(call), full, store="pool", after=changed)


@api.on("POST", POOL + ":setAutoscaling", body="SetNodePoolAutoscalingRequest")
def _set_autoscaling(cloud: Cloud, call: Call) -> Started:
    full, _ = _pool(cloud, call)
    return _rescale(cloud, call, full, call.body.get("autoscaling", {}))


def _rescale(cloud: Cloud, call: Call, full: str, scaling: Doc) -> Started:
    _, cluster = find_cluster(cloud, call)
    changed = {**find_pool(cloud, full), "autoscaling": scaling}
    pool_checks.check(cloud, cluster, changed)
    return cloud.change(api, "UPDATE_CLUSTER", scope(call), full, store="pool", after=changed)


@api.on("PUT", POOL, body="UpdateNodePoolRequest")
def _update_pool(cloud: Cloud, call: Call) -> Started:
    full, pool = _pool(cloud, call)
    etags.check(call.body.get("etag"), pool)
    config = dict(pool["config"])
    for field, value in call.body.items():
        if field == "machineType" and pool["_several_hosts"]:
            raise GUESS.invalid("The machine type of a multi-host TPU slice cannot be changed.")
        if field == "labels":
            config["labels"] = value.get("labels", {})
        elif field == "tags":
            config["tags"] = value.get("tags", [])
        elif field == "taints":
            config["taints"] = value.get("taints", [])
        elif field == "resourceLabels":
            config["resourceLabels"] = value.get("labels", {})
        elif field == "diskSizeGb":
            config[field] = int(value)
        elif field in _OF_CONFIG:
            config[field] = value
        elif field in _OF_POOL:
            pool = {**pool, field: value}
        elif field == "nodeVersion":
            pool = {**pool, "version": VERSIONS[0] if value in ("", "-", "latest") else value}
        elif field not in ("name", "etag", "nodePoolId"):
            raise EMULATOR.refused(501, f"The emulator cannot change {field} of a node pool.")
    _, cluster = find_cluster(cloud, call)
    changed = {**pool, "config": config}
    pool_checks.check(cloud, cluster, changed)
    return cloud.change(api, "UPDATE_NODE_POOL", scope(call), full, store="pool", after=changed)


@api.on_operation_end("UPDATE_NODE_POOL")
def _updated(cloud: Cloud, operation: Doc) -> After | None:
    """Labels and taints of a pool reach the nodes that it has
    (https://cloud.google.com/kubernetes-engine/docs/how-to/update-existing-nodepools)."""
    full = operation["target"]
    if operation["fail"]:
        cloud.fail(operation)
        return None
    pool = cloud.state.get("pool", full)
    return (lambda: cloud.hooks.on_pool_created(described(cloud, full))) if pool and pool["_nodes"] else None


def _pool(cloud: Cloud, call: Call) -> tuple[str, Doc]:
    cluster_name, _ = find_cluster(cloud, call)
    full = pool_of(call)
    pool = find_pool(cloud, full)
    admit(cloud, cluster_name, full)
    return full, pool
