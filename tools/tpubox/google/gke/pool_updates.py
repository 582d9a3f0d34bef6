"""GKE: changes of existing node pools. An unknown change is refused, not ignored."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tpubox.google.compute import stock_and_quota
from tpubox.google.compute.stock_and_quota import Holding
from tpubox.google.gke import defaults, pool_checks
from tpubox.google.gke import versions as gke_versions
from tpubox.google.gke.container import POOL, admit, api, find_cluster_of_pools, find_pool, pool_of, scope
from tpubox.google.gke.pool_nodes import described
from tpubox.google.wire import etags
from tpubox.google.wire.api import After, Call, Started
from tpubox.google.wire.cloud import Cloud
from tpubox.google.wire.sources import EMULATOR, GKE_EMPTY_POOL_UPDATE, GUESS
from tpubox.google.wire.state import Doc

_OF_CONFIG = (
    *("diskType", "gcfsConfig", "gvnic", "imageType", "kubeletConfig", "linuxNodeConfig", "loggingConfig"),
    *("machineType", "workloadMetadataConfig"),
)
_NAMING = ("name", "etag", "projectId", "zone", "clusterId", "nodePoolId")
_OF_POOL = ("locations", "nodeDrainConfig", "queuedProvisioning", "upgradeSettings")


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
        _, cluster = find_cluster_of_pools(cloud, call)
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


def scale(cloud: Cloud, full: str, count: int, gone: Sequence[str] = ()) -> None:
    """Resize a pool as the cluster autoscaler does, without a visible operation, within the quota.

    `gone` are the nodes that a smaller pool loses. Without chips, the pool returns to its previous size when the
    operation's time is over and records the reason in a field of its own: GKE's autoscaler withdraws its request, and
    the pool stays RUNNING.
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
        after = {"_size": count, "_holds": holds, "_before": before, "_unfilled": "", "_leaving": list(gone)}
        cloud.state.put("pool", full, {**pool, **after})
        cloud.later(api, "AUTOSCALE", full, cloud.settings.duration("SET_NODE_POOL_SIZE"))


@api.on("POST", POOL + ":setManagement", body="SetNodePoolManagementRequest")
def _set_management(cloud: Cloud, call: Call) -> Started:
    full, pool = _pool(cloud, call)
    _, cluster = find_cluster_of_pools(cloud, call)
    changed = {**pool, "management": call.body.get("management", {})}
    pool_checks.check(cloud, cluster, changed)
    return cloud.change(api, "SET_NODE_POOL_MANAGEMENT", scope(call), full, store="pool", after=changed)


@api.on("POST", POOL + ":setAutoscaling", body="SetNodePoolAutoscalingRequest")
def _set_autoscaling(cloud: Cloud, call: Call) -> Started:
    full, _ = _pool(cloud, call)
    return rescale(cloud, call, full, call.body.get("autoscaling", {}))


def rescale(cloud: Cloud, call: Call, full: str, scaling: Doc) -> Started:
    _, cluster = find_cluster_of_pools(cloud, call)
    changed = {**find_pool(cloud, full), "autoscaling": scaling}
    pool_checks.check(cloud, cluster, changed)
    return cloud.change(api, "UPDATE_CLUSTER", scope(call), full, store="pool", after=changed)


@api.on("PUT", POOL, body="UpdateNodePoolRequest")
def _update_pool(cloud: Cloud, call: Call) -> Started:
    full, pool = _pool(cloud, call)
    etags.check(call.body.get("etag"), pool)
    _check_not_empty(call.body)
    _, cluster = find_cluster_of_pools(cloud, call)
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
        elif field == "bootDisk":
            config |= {"diskType": value.get("diskType", config["diskType"])}
            config |= {"diskSizeGb": int(value.get("sizeGb", config["diskSizeGb"]))}
        elif field in _OF_CONFIG:
            config[field] = value
        elif field in _OF_POOL:
            pool = {**pool, field: value}
        elif field == "nodeVersion":
            pool = {**pool, "version": gke_versions.for_nodes(cluster, value)}
        elif field not in _NAMING:
            raise EMULATOR.refused(501, f"The emulator cannot change {field} of a node pool.")
    changed = {**pool, "config": {**config, "bootDisk": defaults.boot_disk(config)}}
    pool_checks.check(cloud, cluster, changed)
    return cloud.change(api, "UPDATE_NODE_POOL", scope(call), full, store="pool", after=changed)


def _check_not_empty(body: Doc) -> None:
    """Refuse an update without fields; an empty string or list counts as absent."""
    if not any(value not in ("", []) for field, value in body.items() if field not in _NAMING):
        raise GKE_EMPTY_POOL_UPDATE.invalid(
            "At least one of ['node_version', 'image_type', 'updated_node_pool', 'locations', "
            "'workload_metadata_config', 'upgrade_settings', 'kubelet_config', 'linux_node_config', 'tags', 'taints', "
            "'labels', 'node_network_config', 'gcfs_config', 'gvnic', 'confidential_nodes', 'logging_config', "
            "'fast_socket', 'resource_labels', 'accelerators', 'windows_node_config', 'machine_type', 'disk_type', "
            "'disk_size_gb', 'boot_disk', 'storage_pools', 'containerd_config', 'resource_manager_tags', "
            "'performance_monitoring_unit', 'queued_provisioning', 'max_run_duration', 'flex_start'] must be specified."
        )


@api.on_operation_end("UPDATE_NODE_POOL")
def _updated(cloud: Cloud, operation: Doc) -> After | None:
    """Apply changed labels and taints to the pool's existing nodes.

    https://cloud.google.com/kubernetes-engine/docs/how-to/update-existing-nodepools
    """
    full = operation["target"]
    if operation["fail"]:
        cloud.fail(operation)
        return None
    pool = cloud.state.get("pool", full)
    return (lambda: cloud.hooks.on_pool_created(described(cloud, full))) if pool and pool["_nodes"] else None


def _pool(cloud: Cloud, call: Call) -> tuple[str, Doc]:
    cluster_name, _ = find_cluster_of_pools(cloud, call)
    full = pool_of(call)
    pool = find_pool(cloud, full)
    admit(cloud, cluster_name, full)
    return full, pool
