"""What a destroy would stop at half-way, when the pools are gone already: it is refused before anything goes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tpukit.errors import Conflict
from tpukit.infra import gcloud, guard
from tpukit.infra.programs import Command
from tpukit.infra.spec import ClusterSpec

_BUCKET = "google_storage_bucket"


def check(spec: ClusterSpec, plan: Mapping[str, Any]) -> None:
    """Raises Conflict where the plan, as `terraform show -json` writes it, deletes what is guarded."""
    for change in plan.get("resource_changes", []):
        before = change["change"].get("before") or {}
        if "delete" not in change["change"].get("actions", ()):
            continue
        if change["type"] == guard.CLUSTER and before.get("deletion_protection"):
            raise Conflict(
                f"{before.get('name')} is protected against deletion",
                hint="`tpu cluster apply --set deletion_protection=false` first",
            )
        if (
            change["type"] == _BUCKET
            and not before.get("force_destroy")
            and gcloud.read(_objects(spec), "looking into the bucket").strip()
        ):
            raise Conflict(
                f"gs://{spec.artifact_repository_bucket_name} is not empty",
                hint="copy away what you need, then `tpu cluster apply --set force_destroy=true` first",
            )


def lines(spec: ClusterSpec) -> list[str]:
    """The command lines that `check` runs."""
    if spec.force_destroy or not spec.create_bucket:
        return []
    return ["# if the bucket is not to be emptied", str(_objects(spec))]


def _objects(spec: ClusterSpec) -> Command:
    return gcloud.command(
        *("storage", "ls", "--all-versions", f"gs://{spec.artifact_repository_bucket_name}/"),
        f"--project={spec.project_id}",
    )
