"""The folder of Terraform's state in its bucket: one for each cluster, because two that shared one would delete each
other."""

from __future__ import annotations

COMMON = "gke-tpu-training-environment"
"""Where builds had the state of every cluster before each had a folder of its own."""


def of(cluster: str) -> str:
    return f"{COMMON}/{cluster}"
