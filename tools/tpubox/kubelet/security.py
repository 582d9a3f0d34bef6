"""The effect of a securityContext on a container's process, as the kubelet and containerd apply it.

Capabilities and no new privileges are enforced wherever pods run on Linux, the read-only root where mount namespaces
are available, and the ids of user and group where user namespaces are available too. Elsewhere a container has the user
and the write permissions of the sandbox; the agent logs this when it starts. fsGroup and further groups, seccomp,
SELinux and AppArmor are never enforced. A container that names no user runs as the user of the sandbox.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from tpubox.kubelet.env import BadConfig, Object
from tpukit.places.local.processes import Confinement
from tpukit.places.local.processes.confine import CAPABILITIES

DEFAULT = frozenset(
    {
        *("AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "MKNOD", "NET_BIND_SERVICE", "NET_RAW"),
        *("SETFCAP", "SETGID", "SETPCAP", "SETUID", "SYS_CHROOT"),
    }
)
"""Default capabilities of a container in containerd.

https://github.com/containerd/containerd/blob/main/pkg/oci/spec.go
"""


def confinement(pod: Object, container: Object, *, mounts: bool, users: bool) -> Confinement:
    """Return a container's confinement on a system with these features, or raise BadConfig if a kubelet refuses it."""
    of_pod, own = (part.get("securityContext") or {} for part in (pod["spec"], container))
    told = {**of_pod, **{name: value for name, value in own.items() if value is not None}}
    if told.get("runAsNonRoot") and not told.get("runAsUser"):
        _refuse(pod, container, told)
    ids = _ids(told) if users else None
    read_only_root = mounts and bool(told.get("readOnlyRootFilesystem"))
    if told.get("privileged"):
        return Confinement(ids, read_only_root)
    escalation = told.get("allowPrivilegeEscalation", True)
    return Confinement(ids, read_only_root, not escalation, _capabilities(told.get("capabilities") or {}))


def _refuse(pod: Object, container: Object, told: Mapping[str, Any]) -> None:
    """Raise BadConfig in the kubelet's words. No image here names a user, so all of them run as root."""
    metadata = pod["metadata"]
    who = f'pod: "{metadata["name"]}_{metadata["namespace"]}({metadata["uid"]})", container: {container["name"]}'
    if told.get("runAsUser") is None:
        raise BadConfig(f"container has runAsNonRoot and image will run as root ({who})")
    raise BadConfig(f"container's runAsUser breaks non-root policy ({who})")


def _ids(told: Mapping[str, Any]) -> tuple[int, int] | None:
    user, group = told.get("runAsUser"), told.get("runAsGroup")
    if user is None and group is None:
        return None
    return (os.getuid() if user is None else int(user), int(group or 0))  # a user unknown to the image is in group 0


def _capabilities(told: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the capabilities in containerd's order.

    https://github.com/containerd/containerd/blob/main/internal/cri/opts/spec_opts.go
    """
    add, drop = ({_name(one) for one in told.get(way) or []} for way in ("add", "drop"))
    kept = frozenset(CAPABILITIES) if "ALL" in add else DEFAULT
    kept = frozenset() if "ALL" in drop else kept
    return tuple(sorted((kept | add) - drop - {"ALL"}))


def _name(word: str) -> str:
    name = word.upper().removeprefix("CAP_")
    if name not in CAPABILITIES and name != "ALL":
        raise BadConfig(f'unknown capability "CAP_{name}"')
    return name
