"""The root module's module calls as plain data, in Terraform's JSON syntax, with the values of a cluster file.

For composing the modules from Python. This repeats in Python what the root module computes in HCL; a test compares the
plans of both.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tpukit.cluster import checks
from tpukit.cluster.spec import ClusterSpec

Of = Callable[[str, str], str]
"""A function that returns the expression for a module's output."""
_NULL = "${null}"  # JSON's own null would omit an argument, and most of these have no default


def calls(spec: ClusterSpec, modules: str, prefix: str = "") -> dict[str, dict[str, Any]]:
    """Return the arguments of every module call, including source and count, by the name of the call."""

    def of(module: str, output: str) -> str:
        return f"${{module.{prefix}{module}.{output}}}"

    written = ClusterSpec.from_json(_literal(spec.to_json(given=True)))
    made = {**_around(written, of), **_in_the_cluster(written, of), **_data(written, of)}
    return {
        f"{prefix}{name}": {"source": f"{modules}/{name}"} | {k: _NULL if v is None else v for k, v in call.items()}
        for name, call in made.items()
    }


def _around(spec: ClusterSpec, of: Of) -> dict[str, dict[str, Any]]:
    hosts = sum(shape.hosts for shape in spec.shapes.values())
    return {
        "tpu_shapes": {
            "pools": _pools(spec),
            "zone": spec.zone,
            "cpu_zone": spec.cpu_zone,
            "cpu_machine_type": spec.cpu_pool_machine_type,
            "gke_version": spec.gke_version,
        },
        "network": {
            "project_id": spec.project_id,
            "network_project_id": spec.network_project_id,
            "region": spec.region,
            "owner": spec.cluster_name,
            "create_network": spec.create_network,
            "create_subnet": spec.create_subnet,
            "create_nat": spec.create_nat,
            "network_name": spec.network_name,
            "subnet_name": spec.subnet_name,
            "pods_range_name": spec.pods_range_name,
            "services_range_name": spec.services_range_name,
            "subnet_ip_range": spec.subnet_ip_range,
            "pods_ip_range": spec.pods_ip_range,
            "services_ip_range": spec.services_ip_range,
            "additional_pods_ip_ranges": list(spec.additional_pods_ip_ranges),
            "additional_pods_range_names": list(spec.additional_pods_range_names),
            "nodes": [
                {"count": spec.cpu_pool_node_count, "max_pods_per_node": spec.cpu_pool_max_pods_per_node},
                {"count": hosts, "max_pods_per_node": spec.tpu_max_pods_per_node},
            ],
        },
        "node_account": {
            "project_id": spec.project_id,
            "name": spec.gke_sa_name,
            "create": spec.create_service_accounts,
            "roles": [role for role in spec.gke_sa_roles if not _of_storage(role)],
        },
        "workload_identity": {
            "project_id": spec.project_id,
            "name": spec.tpu_sa_name,
            "create": spec.create_service_accounts,
            "roles": [role for role in spec.tpu_sa_roles if not _of_storage(role)],
            "workload_pool": of("cluster", "workload_pool"),
            "namespace": spec.tpu_namespace,
        },
    }


def _in_the_cluster(spec: ClusterSpec, of: Of) -> dict[str, dict[str, Any]]:
    pools = {
        "project_id": spec.project_id,
        "region": spec.region,
        "cluster": of("cluster", "id"),
        "zone": spec.zone,
        "auto_upgrade": spec.release_channel != "UNSPECIFIED",
        "node_service_account": of("node_account", "email"),
        "labels": _labels(spec),
    }
    return {
        "cluster": {
            "project_id": spec.project_id,
            "region": spec.region,
            "zone": of("tpu_shapes", "cpu_zone"),
            "name": spec.cluster_name,
            "description": spec.cluster_description,
            "gke_version": spec.gke_version,
            "release_channel": spec.release_channel,
            "deletion_protection": spec.deletion_protection,
            "logging_components": list(spec.logging_components),
            "network": of("network", "network"),
            "subnet": of("network", "subnet"),
            "pods_range_name": of("network", "pods_range_name"),
            "services_range_name": of("network", "services_range_name"),
            "additional_pod_ranges": of("network", "additional_pod_ranges"),
            "authorized_networks": spec.authorized_networks,
            "max_pods_per_node": spec.cpu_pool_max_pods_per_node,
            "first_node_machine_type": spec.cpu_pool_machine_type,
            "node_service_account": of("node_account", "email"),
            "labels": _labels(spec),
            "kms_key": spec.kms_keys.get("cluster"),
            "disk_kms_key": spec.kms_keys.get("disks"),
            "binary_authorization": spec.binary_authorization,
            "security_posture": spec.security_posture,
        },
        "cpu_pool": {
            **pools,
            "zone": of("tpu_shapes", "cpu_zone"),
            "name": "cpu-pool",
            "node_count": spec.cpu_pool_node_count,
            "machine_type": spec.cpu_pool_machine_type,
            "disk_type": spec.cpu_pool_disk_type,
            "disk_size": spec.cpu_pool_disk_size,
            "disk_kms_key": spec.kms_keys.get("disks"),
            "max_pods_per_node": spec.cpu_pool_max_pods_per_node,
        },
        "tpu_pools": {
            **pools,
            "pools": of("tpu_shapes", "shapes"),
            "autoscaling": spec.enable_tpu_autoscaling,
            "max_run_duration": spec.flex_start_duration,
            "queued_provisioning": spec.flex_start_queued,
            "spot_shutdown_seconds": spec.spot_shutdown_seconds,
            "max_pods_per_node": spec.tpu_max_pods_per_node,
            "disk_size": spec.tpu_disk_size,
            "disk_kms_key": spec.kms_keys.get("disks"),
            "multislice_group_name": spec.multislice_group_name,
        },
    }


def _data(spec: ClusterSpec, of: Of) -> dict[str, dict[str, Any]]:
    region = spec.services_region or ("us-central1" if spec.region == "us-central2" else spec.region)
    made: dict[str, dict[str, Any]] = {
        "artifact_bucket": {
            "project_id": spec.project_id,
            "create": spec.create_bucket,
            "name": spec.artifact_repository_bucket_name,
            "location": spec.region,
            "force_destroy": spec.force_destroy,
            "labels": _labels(spec),
            "grants": _grants(spec, of("workload_identity", "member"), of("node_account", "member")),
            "kms_key": spec.kms_keys.get("bucket"),
        },
        "artifact_registry": {
            "project_id": spec.project_id,
            "create": spec.create_artifact_registry,
            "name": spec.artifact_registry_name or spec.cluster_name,
            "location": spec.artifact_registry_location or region,
            "labels": _labels(spec),
            "reader": of("node_account", "member"),
            "kms_key": spec.kms_keys.get("images"),
            "immutable_tags": spec.immutable_tags,
        },
    }
    if spec.enable_tensorboard:
        made["tensorboard"] = {
            "count": 1,
            "project_id": spec.project_id,
            "region": spec.tensorboard_region,
            "near": region,
            "name": spec.cluster_name,
            "labels": _labels(spec),
            "kms_key": spec.kms_keys.get("metrics"),
        }
    if spec.firestore_database:
        made["job_store"] = {
            "count": 1,
            "project_id": spec.project_id,
            "name": spec.firestore_database,
            "location": region,
            "member": of("workload_identity", "member"),
            "grant": spec.create_service_accounts,
            "force_destroy": spec.force_destroy,
            "kms_key": spec.kms_keys.get("jobs"),
        }
    if spec.queue_monitoring_team:
        made["queue_monitoring"] = {
            "count": 1,
            "project_id": spec.project_id,
            "team": spec.queue_monitoring_team,
            "notification_channels": list(spec.queue_notification_channels),
            "limits": dict(spec.queue_alert_limits),
            "labels": _labels(spec),
        }
    return made


def _pools(spec: ClusterSpec) -> dict[str, Mapping[str, Any]]:
    policy = {} if spec.tpu_workload_policy is None else {"workload_policy": spec.tpu_workload_policy}
    said = checks.pools(spec.to_json()).items()
    return {name: {key: word for key, word in pool.items() if word is not None} | policy for name, pool in said}


def _grants(spec: ClusterSpec, workloads: str, nodes: str) -> dict[str, dict[str, str]]:
    """Return the grants on the bucket. Roles of Cloud Storage apply only there, so no account reaches other buckets."""
    always = "roles/storage.legacyBucketReader"
    grants = {f"workloads {always}": {"role": always, "member": workloads}}
    for who, roles, member in (("workloads", spec.tpu_sa_roles, workloads), ("nodes", spec.gke_sa_roles, nodes)):
        grants |= {f"{who} {role}": {"role": role, "member": member} for role in roles if _of_storage(role)}
    return grants


def _labels(spec: ClusterSpec) -> dict[str, str]:
    return {"tpu-cluster": spec.cluster_name, **spec.labels}


def _of_storage(role: str) -> bool:
    return role.startswith("roles/storage.")


def _literal(value: Any) -> Any:
    """Return user input escaped, so that Terraform reads it as text and not as a template."""
    if isinstance(value, str):
        return value.replace("${", "$${").replace("%{", "%%{")
    if isinstance(value, dict):
        return {key: _literal(item) for key, item in value.items()}
    return value
