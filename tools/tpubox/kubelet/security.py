"""What a securityContext makes of a container's process, as the kubelet and containerd read it.

Held wherever pods run on Linux: capabilities and no new privileges. Held where processes can have mounts of their own:
the read-only root. Held where they can have user namespaces too: the ids of user and group. Elsewhere a container runs
as who runs the sandbox and may write wherever that one may; the agent says so when it starts. Never held: fsGroup and
further groups, seccomp, SELinux and AppArmor. A container that names no user is the user of the sandbox.
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
"""What containerd leaves a container that says nothing of capabilities:
https://github.com/containerd/containerd/blob/main/pkg/oci/spec.go."""


def confinement(pod: Object, container: Object, *, mounts: bool, users: bool) -> Confinement:
    """Of a container, where processes can have mounts and user ids of their own. BadConfig: a kubelet refuses it."""
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
    """In the words of the kubelet. There are no images here, so none that names a user: all of them run as root."""
    metadata = pod["metadata"]
    who = f'pod: "{metadata["name"]}_{metadata["namespace"]}({metadata["uid"]})", container: {container["name"]}'
    if told.get("runAsUser") is None:
        raise BadConfig(f"container has runAsNonRoot and image will run as root ({who})")
    raise BadConfig(f"container's runAsUser breaks non-root policy ({who})")


def _ids(told: Mapping[str, Any]) -> tuple[int, int] | None:
    user, group = told.get("runAsUser"), told.get("runAsGroup")
    if user is None and group is None:
        return None
    return (os.getuid() if user is None else int(user), int(group or 0))  # a user that no image knows is in group 0


def _capabilities(told: Mapping[str, Any]) -> tuple[str, ...]:
    """In containerd's order: https://github.com/containerd/containerd/blob/main/internal/cri/opts/spec_opts.go."""
    add, drop = ({_name(one) for one in told.get(way) or []} for way in ("add", "drop"))
    kept = frozenset(CAPABILITIES) if "ALL" in add else DEFAULT
    kept = frozenset() if "ALL" in drop else kept
    return tuple(sorted((kept | add) - drop - {"ALL"}))


def _name(word: str) -> str:
    name = word.upper().removeprefix("CAP_")
    if name not in CAPABILITIES and name != "ALL":
        raise BadConfig(f'unknown capability "CAP_{name}"')
    return name
