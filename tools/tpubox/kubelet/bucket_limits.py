"""Maximum size of a folder in a mounted bucket that can be renamed: GCS FUSE's rename-dir-limit.

The default is 0. It is 200,000 if the mount asks for it, and on machine types that GCS FUSE lists as fast, which v4 and
older are not: https://github.com/GoogleCloudPlatform/gcsfuse/blob/master/cfg/params.yaml. Buckets with a hierarchical
namespace have no such limit; this is not imitated because the agent sees folders, not the type of the bucket.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

from tpubox.kubelet.env import Object
from tpubox.kubelet.mounted_buckets import is_bucket

MACHINE_TYPE = "node.kubernetes.io/instance-type"
MANY = 200_000
_FAST = re.compile(r"ct5l-hightpu-8t|ct5lp-hightpu-8t|ct5p-hightpu-4t|ct6e-standard-[48]t|tpu7x-(standard|ultranet)-4t")
_ASKED = re.compile(r"rename-dir-limit[=:](\d+)")
_FOR_CHECKPOINTS = re.compile(r"profile[=:]aiml-checkpointing")


def rename_limits(pod: Object, container: Object, labels: Mapping[str, str]) -> dict[str, int]:
    """Return the limit of each bucket that a container mounts, by mount path; `labels` are those of the node."""
    volumes = {one["name"]: one for one in pod["spec"].get("volumes", [])}
    mounted = {one["mountPath"]: volumes[one["name"]] for one in container.get("volumeMounts", [])}
    return {
        os.path.realpath(path): _limit(volume["csi"]["volumeAttributes"], labels.get(MACHINE_TYPE, ""))
        for path, volume in mounted.items()
        if is_bucket(volume)
    }


def _limit(attributes: Mapping[str, str], machine_type: str) -> int:
    options = attributes.get("mountOptions", "")
    if asked := _ASKED.search(options):
        return int(asked[1])
    return MANY if _FOR_CHECKPOINTS.search(options) or _FAST.fullmatch(machine_type) else 0
