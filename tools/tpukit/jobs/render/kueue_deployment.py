"""The change to Kueue's Deployment that adapts it to a cluster: its memory, and a restart for another configuration."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from tpukit.core import resources

CONFIGURATION = "tpukit.dev/configuration"
"""Annotation of the pod template with a hash of the configuration, which pods read at startup."""
_MIB_PER_NODE, _LEAST_MIB = 32, 4096
"""Kueue holds every node and pod in memory. The released limit of 512 MiB is exceeded on large clusters. Figures of
https://github.com/AI-Hypercomputer/xpk/blob/main/src/xpk/core/kueue_manager.py.
"""


def configuration() -> Path:
    return resources.folder("kueue") / "controller.yaml"


def digest() -> str:
    return hashlib.sha256(configuration().read_bytes()).hexdigest()[:12]


def memory_mib(nodes: int) -> int:
    """Return the memory limit of Kueue in a cluster of this many nodes."""
    return max(_LEAST_MIB, nodes * _MIB_PER_NODE)


def change(nodes: int) -> dict[str, Any]:
    """Return the strategic merge patch. Applied again without a change of its content, it restarts nothing.

    The request stays at the smallest limit, so that Kueue fits on any node of the CPU pool.
    """
    memory = {"limits": {"memory": f"{memory_mib(nodes)}Mi"}, "requests": {"memory": f"{_LEAST_MIB}Mi"}}
    template = {
        "metadata": {"annotations": {CONFIGURATION: digest()}},
        "spec": {"containers": [{"name": "manager", "resources": memory}]},
    }
    return {"spec": {"template": template}}
