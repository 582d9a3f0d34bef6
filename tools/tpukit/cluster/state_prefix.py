"""The folder of Terraform's state in its bucket.

Each cluster has its own, because two clusters that shared one would delete each other.
"""

from __future__ import annotations

COMMON = "gke-tpu-training-environment"
"""The folder of all clusters' state before each cluster had its own."""


def of(cluster: str) -> str:
    return f"{COMMON}/{cluster}"
