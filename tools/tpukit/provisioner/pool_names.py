"""Names and labels by which a pool is known: what it is for, and that it is ours. Pure."""

from __future__ import annotations

import hashlib
import re

PREFIX = "provisioner.tpukit.dev"
MANAGED_BY = f"{PREFIX}/managed-by"
MANAGER = "tpukit"
NAMESPACE, JOBSET, UID, JOB = (f"{PREFIX}/{word}" for word in ("namespace", "jobset", "jobset-uid", "job"))
CREATED = f"{PREFIX}/created"
"""Seconds since the epoch: GKE does not say when a pool was made."""
SINCE = f"{PREFIX}/unschedulable-since"
CHOICE = f"{PREFIX}/choice"
CORDONED = f"{PREFIX}/cordoned"
"""Annotation of hosts that take no more pods, because their pool is to be removed."""
DISABLE = f"{PREFIX}/disable"
"""Label or annotation, on the JobSet or its pods: "true" leaves it to others."""
TRIES = f"slice.{PREFIX}"
"""Annotations of a JobSet with this prefix say what was tried to make one of its pools, whose name follows."""

_LONGEST = 40
_HASH = 12
"""Hexadecimal digits: 48 bits. Ten thousand pools share a name with a chance of one in six million."""


def pool_name(jobset: str, uid: str, job: str) -> str:
    """The same for a Job of a JobSet whenever it is asked for; another for the next JobSet of that name."""
    mark = hashlib.sha256(f"{uid}/{job}".encode()).hexdigest()[:_HASH]
    readable = re.sub(r"[^a-z0-9-]", "-", jobset.lower())[: _LONGEST - _HASH - 1].strip("-")
    readable = readable if readable[:1].isalpha() else f"p{readable}"[: _LONGEST - _HASH - 1].rstrip("-")
    return f"{readable}-{mark}"
