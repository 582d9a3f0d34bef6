"""The limit of max.unattended for a TPU VM on which no driver has started a program yet.

The program's own watch (host/supervision/host_unattended.py) begins with the program. Until then, and after a reboot,
the start-up script of the TPU VM counts: host/supervision/host_hardware.py.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

from tpukit.google.clients import address
from tpukit.google.tpu_vm import ENDPOINT
from tpukit.places.tpu_vm.channel import programs

_API = ENDPOINT, "https://tpu.googleapis.com/v2/"
LIMIT = "tpukit-unattended"
"""Key in the metadata: the limit, and what to delete."""
LATER_SECONDS = 300
"""The watch of a program acts first: it lets the program save."""


def metadata(urls: Iterable[str], labels: Mapping[str, str], seconds: float) -> dict[str, str]:
    """Return metadata of TPU VMs that delete `urls` after `seconds` without a driver, if those carry `labels`."""
    if not seconds:
        return {}
    hardware = [{"url": url, "labels": dict(labels)} for url in urls]
    limit = {"seconds": seconds + LATER_SECONDS, "hardware": hardware}
    return {
        "startup-script": "#!/usr/bin/env python3\n" + programs()["supervision/host_hardware.py"],
        LIMIT: json.dumps(limit),
    }


def hardware_url(project: str, zone: str, node: str, queued: str) -> str:
    """Return the address at which a TPU VM deletes itself: that of its queued resource, if it has one."""
    where = f"{address(*_API)}projects/{project}/locations/{zone}"
    return f"{where}/queuedResources/{queued}" if queued else f"{where}/nodes/{node}"
