"""Bucket mounts of Pods on GKE nodes: the checks of the Cloud Storage driver before it mounts.

The cluster needs the driver, its nodes need Workload Identity, and the Pod's own account needs permission to list and
read the bucket. A Pod without write permission gets the mount too, and its writes are refused.
https://github.com/GoogleCloudPlatform/gcs-fuse-csi-driver/blob/main/docs/troubleshooting.md
"""

from __future__ import annotations

from tpubox.google.iam import acting, pod_identity
from tpubox.google.iam.conditions import Facts
from tpubox.google.storage import buckets as storage
from tpubox.google.wire.cloud import Cloud
from tpubox.google.wire.state import Doc

AGENT = "gcs-fuse-csi-driver"
_LIST = "storage.objects.list"
READ = (_LIST, "storage.objects.get")
WRITE = ("storage.objects.create", "storage.objects.delete")
_NO_DRIVER = (
    "kubernetes.io/csi: mounter.SetUpAt failed to get CSI client: driver name gcsfuse.csi.storage.gke.io not found in "
    "the list of registered CSI drivers"
)
_NO_IDENTITY = (
    "Workload Identity Federation is not enabled on node. Please make sure this is enabled on both cluster and node "
    "pool level (https://cloud.google.com/kubernetes-engine/docs/how-to/workload-identity)"
)


def mount(
    cloud: Cloud,
    node: str,
    namespace: str,
    account: str,
    bucket: str,
    annotated: str = "",
    folder: str = "",
    listed: str = "",
) -> Doc:
    """Return `refused`, the driver's error or an empty string, and `writable`.

    `folder` is the only folder of the bucket that the Pod is to see. `listed` is the prefix that the driver lists to
    check access: the whole bucket unless configured otherwise.
    """
    found = pod_identity.find(cloud, node, namespace, account, annotated)
    if not _has_driver(cloud.state.get("cluster", found.cluster) or {}):
        return _refused(_NO_DRIVER)
    if not found.federated:
        return _refused(f"rpc error: code = FailedPrecondition desc = {_NO_IDENTITY}")
    if found.refused:
        why = "failed to prepare storage service: storage service manager failed to setup service:"
        return _refused(f"rpc error: code = Unauthenticated desc = {why} {found.refused}")
    failed = f'failed to get GCS bucket "{bucket}":'
    if not cloud.state.get("bucket", bucket):
        return _refused(f"rpc error: code = NotFound desc = {failed} storage: bucket doesn't exist")
    for permission in READ:
        if not _may(cloud, found.email, permission, bucket, listed if permission == _LIST else folder):
            who = "Caller" if "[" in found.email else found.email
            return _refused(
                f"rpc error: code = PermissionDenied desc = {failed} googleapi: Error 403: {who} does not have "
                f"{permission} access to the Google Cloud Storage bucket. Permission '{permission}' denied on resource "
                "(or it may not exist)., forbidden"
            )
    return {"refused": "", "writable": all(_may(cloud, found.email, one, bucket, folder) for one in WRITE)}


def _refused(why: str) -> Doc:
    return {"refused": why, "writable": False}


def _has_driver(cluster: Doc) -> bool:
    """Return True if the cluster has the driver; Autopilot always does.

    https://cloud.google.com/kubernetes-engine/docs/how-to/cloud-storage-fuse-csi-driver-setup
    """
    told = ((cluster.get("addonsConfig") or {}).get("gcsFuseCsiDriverConfig") or {}).get("enabled")
    return bool(told or (cluster.get("autopilot") or {}).get("enabled"))


def _may(cloud: Cloud, email: str, permission: str, bucket: str, folder: str) -> bool:
    full, kind = f"projects/_/buckets/{bucket}", "storage.googleapis.com/Bucket"
    if permission != _LIST:
        full, kind = f"{full}/objects/{folder}", "storage.googleapis.com/Object"
    scopes = storage.scopes(cloud, bucket, folder or None)
    return acting.may(cloud, AGENT, email, permission, scopes, Facts(full, kind))
