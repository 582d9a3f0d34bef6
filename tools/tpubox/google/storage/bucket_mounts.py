"""Whether a pod on a node of GKE gets a bucket as a folder: what its driver for Cloud Storage asks before it mounts.

The cluster has to have the driver, its nodes Workload Identity, and the pod's own account has to be allowed to list and
read the bucket. One that may not write gets it all the same, and is refused when it does.
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
    """`refused`: in the words of the driver; empty where the pod gets it. `writable`: whether it may write there.
    `folder`: the only one of the bucket that it is to see. `listed`: what the driver lists to see whether it may, which
    is the whole bucket unless it is told to leave that."""
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
    """Autopilot has it always. https://cloud.google.com/kubernetes-engine/docs/how-to/cloud-storage-fuse-csi-driver-setup"""
    told = ((cluster.get("addonsConfig") or {}).get("gcsFuseCsiDriverConfig") or {}).get("enabled")
    return bool(told or (cluster.get("autopilot") or {}).get("enabled"))


def _may(cloud: Cloud, email: str, permission: str, bucket: str, folder: str) -> bool:
    full, kind = f"projects/_/buckets/{bucket}", "storage.googleapis.com/Bucket"
    if permission != _LIST:
        full, kind = f"{full}/objects/{folder}", "storage.googleapis.com/Object"
    scopes = storage.scopes(cloud, bucket, folder or None)
    return acting.may(cloud, AGENT, email, permission, scopes, Facts(full, kind))
