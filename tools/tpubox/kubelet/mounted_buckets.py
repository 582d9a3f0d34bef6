"""Buckets that pods mount through GKE's Cloud Storage driver: folders of this machine, with Google's permissions.

The driver requires an annotation of the pod, which adds its sidecar, and read permission for the pod's own account.
Files belong to root unless the mount names another owner, so other users may not write.
https://cloud.google.com/kubernetes-engine/docs/how-to/cloud-storage-fuse-csi-driver-ephemeral
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tpubox.kubelet.api_server import Api
from tpubox.kubelet.emulator_door import EmulatorDoor
from tpubox.kubelet.env import BadConfig, Object
from tpubox.kubelet.pod_metadata import who

DRIVER = "gcsfuse.csi.storage.gke.io"
ANNOTATION = "gke-gcsfuse/volumes"
_NO_SIDECAR = "rpc error: code = FailedPrecondition desc = failed to find the sidecar container in Pod spec"


def is_bucket(volume: Object) -> bool:
    return bool(volume.get("csi", {}).get("driver") == DRIVER)


@dataclass(frozen=True, slots=True)
class Bucket:
    folder: Path
    read_only: bool  # as the pod requests
    granted: bool  # the pod has write permission


class MountedBuckets:
    """The buckets of all pods. Thread-safe."""

    def __init__(self, folder: Path, api: Api, google: EmulatorDoor) -> None:
        """Take `folder`, which has one folder for each bucket."""
        self._folder, self._api, self._google = folder, api, google
        self._mounted: dict[tuple[str, str], bool] = {}  # write permission, by uid and volume

    def mount(self, pod: Object, volume: Object, *, identified: bool) -> Bucket:
        """Mount a bucket, or raise BadConfig in the words of the driver.

        `identified`: the pod has an identity at Google; other pods act as the owner.
        """
        csi, told = volume["csi"], options(volume)
        name = csi.get("volumeAttributes", {}).get("bucketName", "")
        only = told.get("only-dir", "").strip("/")
        if not name or "/" in name or ".." in (name, *Path(only).parts):
            raise BadConfig(f"rpc error: code = InvalidArgument desc = bucket {name!r} with only-dir {only!r}")
        granted = self._granted(pod, volume, name, only) if identified else True
        if not (self._folder / name).is_dir():
            why = f'failed to get GCS bucket "{name}": storage: bucket doesn\'t exist'
            raise BadConfig(f"rpc error: code = NotFound desc = {why}")
        if pod["metadata"].get("annotations", {}).get(ANNOTATION, "").lower() != "true":
            raise BadConfig(_NO_SIDECAR)
        folder = self._folder / name / only
        folder.mkdir(parents=True, exist_ok=True)  # a prefix without objects appears as an empty folder
        return Bucket(folder, bool(csi.get("readOnly")) or "ro" in told, granted)

    def forget(self, uid: str) -> None:
        for key in [key for key in list(self._mounted) if key[0] == uid]:
            self._mounted.pop(key, None)

    def _granted(self, pod: Object, volume: Object, bucket: str, only: str) -> bool:
        """Return whether the pod may write. Permissions are read at mount time; later changes have no effect here."""
        key = pod["metadata"]["uid"], volume["name"]
        if key not in self._mounted:
            # The driver lists the bucket itself, unless its access check is off; then GCS FUSE lists the mounted
            # folder.
            alone = volume["csi"]["volumeAttributes"].get("skipCSIBucketAccessCheck") == "true"
            folder = f"{only}/" if only else ""
            asked = {"bucket": bucket, "folder": folder, "listed": folder if alone else ""}
            try:
                answer = self._google.ask("mounts", {**who(self._api, pod), **asked})
            except OSError as error:
                why = f'failed to get GCS bucket "{bucket}": {error}'
                raise BadConfig(f"rpc error: code = Unavailable desc = {why}") from error
            if answer["refused"]:
                raise BadConfig(str(answer["refused"]))
            self._mounted[key] = bool(answer["writable"])
        return self._mounted[key]


def denied(pod: Object, container: Object, buckets: Mapping[str, Bucket]) -> set[str]:
    """Return the paths at which a container may not write to a bucket although it is not mounted read only."""
    volumes = {one["name"]: one for one in pod["spec"].get("volumes", [])}
    return {
        mount["mountPath"]
        for mount in container.get("volumeMounts", [])
        if (bucket := buckets.get(mount["name"]))
        and not bucket.read_only
        and not mount.get("readOnly")
        and not (bucket.granted and _lets_write(pod, container, options(volumes[mount["name"]])))
    }


def _lets_write(pod: Object, container: Object, told: Mapping[str, str]) -> bool:
    """Return whether owner and mode of the mount's folders permit writing.

    An fsGroup becomes their group, with write permission:
    https://github.com/GoogleCloudPlatform/gcs-fuse-csi-driver/blob/main/pkg/csi_driver/utils.go
    """
    of_pod, own = (part.get("securityContext") or {} for part in (pod["spec"], container))
    context = {**of_pod, **{name: value for name, value in own.items() if value is not None}}
    user, group = int(context.get("runAsUser") or 0), int(context.get("runAsGroup") or 0)
    shared = of_pod.get("fsGroup")
    if user == 0:
        return True
    owner = int(told.get("uid", 0))
    owners = int(told.get("gid", shared if shared is not None else 0))
    mode = int(told.get("dir-mode", "755" if shared is None else "775"), 8)
    groups = {group, *of_pod.get("supplementalGroups", ()), *(() if shared is None else (shared,))}
    needed = 0o200 if user == owner else 0o020 if owners in groups else 0o002
    return bool(mode & needed)


def options(volume: Object) -> dict[str, str]:
    """Return the mount options by name. They are comma-separated: NAME, NAME=VALUE, SECTION:NAME:VALUE or o=NAME."""
    found = {}
    for word in volume["csi"].get("volumeAttributes", {}).get("mountOptions", "").split(","):
        parts = re.split("[=:]", word.strip().removeprefix("o="))
        found[parts[-2] if len(parts) > 1 else parts[0]] = parts[-1] if len(parts) > 1 else ""
    return found
