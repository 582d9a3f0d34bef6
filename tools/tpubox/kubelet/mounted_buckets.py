"""Buckets that pods mount through GKE's driver for Cloud Storage: folders of this machine, for whom Google lets.

The driver needs an annotation of the pod, by which its sidecar gets there, and of the pod's own account that it may
read. Files belong to root unless the mount names somebody else, so others may not write.
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
    read_only: bool  # as the pod asks for
    granted: bool  # Google lets the pod write


class MountedBuckets:
    """Safe from any thread."""

    def __init__(self, folder: Path, api: Api, google: EmulatorDoor) -> None:
        """`folder` has one for each bucket."""
        self._folder, self._api, self._google = folder, api, google
        self._mounted: dict[tuple[str, str], bool] = {}  # by uid and volume: whether the pod may write there

    def mount(self, pod: Object, volume: Object, *, identified: bool) -> Bucket:
        """BadConfig: why it is not, in the words of the driver. `identified`: the pod is somebody to Google; others are
        the owner of all."""
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
        folder.mkdir(parents=True, exist_ok=True)  # a folder without objects in it shows as an empty one
        return Bucket(folder, bool(csi.get("readOnly")) or "ro" in told, granted)

    def forget(self, uid: str) -> None:
        for key in [key for key in list(self._mounted) if key[0] == uid]:
            self._mounted.pop(key, None)

    def _granted(self, pod: Object, volume: Object, bucket: str, only: str) -> bool:
        """Asked until it is mounted: what is granted or taken away later, a mount does not see here."""
        key = pod["metadata"]["uid"], volume["name"]
        if key not in self._mounted:
            # The driver lists the bucket itself, unless it is told not to: then GCS FUSE lists what it shows.
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
    """Paths at which a container sees a bucket that it may not write to, though it is not mounted to be read only."""
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
    """By owner and mode of the mount's folders. An fsGroup is their group, which may write then:
    https://github.com/GoogleCloudPlatform/gcs-fuse-csi-driver/blob/main/pkg/csi_driver/utils.go"""
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
    """Of the mount, by name. They are written NAME, NAME=VALUE, SECTION:NAME:VALUE or o=NAME, with commas between."""
    found = {}
    for word in volume["csi"].get("volumeAttributes", {}).get("mountOptions", "").split(","):
        parts = re.split("[=:]", word.strip().removeprefix("o="))
        found[parts[-2] if len(parts) > 1 else parts[0]] = parts[-1] if len(parts) > 1 else ""
    return found
