"""Names and labels that identify a pool and mark it as ours. Pure."""

from __future__ import annotations

import hashlib
import re

PREFIX = "provisioner.tpukit.dev"
MANAGED_BY = f"{PREFIX}/managed-by"
MANAGER = "tpukit"
NAMESPACE, JOBSET, UID, JOB = (f"{PREFIX}/{word}" for word in ("namespace", "jobset", "jobset-uid", "job"))
CREATED = f"{PREFIX}/created"
"""Label with the creation time in seconds since the epoch, which GKE does not report."""
SINCE = f"{PREFIX}/unschedulable-since"
CHOICE = f"{PREFIX}/choice"
CORDONED = f"{PREFIX}/cordoned"
"""Annotation of hosts that take no more pods, because their pool is to be removed."""
DISABLE = f"{PREFIX}/disable"
"""Label or annotation on the JobSet or its pods: "true" makes the provisioner ignore it."""
TRIES = f"slice.{PREFIX}"
"""Prefix of a JobSet's annotations with the tries to create one of its pools; the pool's name follows."""

_LONGEST = 40
_HASH = 12
"""Hexadecimal digits: 48 bits. Ten thousand pools share a name with a chance of one in six million."""


def pool_name(jobset: str, uid: str, job: str) -> str:
    """Return a pool's name: stable for a Job of a JobSet, and different for the next JobSet of that name."""
    mark = hashlib.sha256(f"{uid}/{job}".encode()).hexdigest()[:_HASH]
    readable = re.sub(r"[^a-z0-9-]", "-", jobset.lower())[: _LONGEST - _HASH - 1].strip("-")
    readable = readable if readable[:1].isalpha() else f"p{readable}"[: _LONGEST - _HASH - 1].rstrip("-")
    return f"{readable}-{mark}"
