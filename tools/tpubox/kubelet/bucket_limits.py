"""How much a folder of a mounted bucket may hold that is renamed: GCS FUSE's rename-dir-limit.

0 by default, and 200,000 on machines that it knows as fast, among which those of v4 and older are not, or where the
mount asks for it: https://github.com/GoogleCloudPlatform/gcsfuse/blob/master/cfg/params.yaml. That buckets with a
hierarchical namespace have no such limit is left out: the agent sees folders, not what kind of bucket they are.
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
    """Of the buckets that a container mounts, by the path that it has them at; `labels` are those of its node."""
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
