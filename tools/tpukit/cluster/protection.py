"""Refuse a destroy that would stop halfway or lose data, before anything is deleted.

Terraform itself refuses to delete a bucket that is not empty. It deletes a repository and a TensorBoard with their
contents, so these are checked here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from tpukit.cluster import busy_pools, gcloud
from tpukit.cluster.programs import Command
from tpukit.core.errors import Conflict

if TYPE_CHECKING:  # a build step imports this without installed packages
    from tpukit.cluster.spec import ClusterSpec

_BUCKET = "google_storage_bucket"
_REPOSITORY = "google_artifact_registry_repository"
_TENSORBOARD = "google_vertex_ai_tensorboard"
_DATABASE = "google_firestore_database"


class Environment(Protocol):
    """The owner of the data."""

    @property
    def project_id(self) -> str: ...
    @property
    def artifact_repository_bucket_name(self) -> str: ...
    @property
    def force_destroy(self) -> bool | None: ...


def check(spec: ClusterSpec, plan: Mapping[str, Any]) -> None:
    """Raise Conflict if the plan, as `terraform show -json` writes it, deletes protected resources."""
    for kind, before in _deleted(plan):
        if kind == busy_pools.CLUSTER and before.get("deletion_protection"):
            raise Conflict(
                f"{before.get('name')} is protected against deletion",
                hint="`tpu cluster apply --set deletion_protection=false` first",
            )
    check_data(spec, plan, "`tpu cluster apply --set force_destroy=true`, and destroy with the same option")


def check_data(environment: Environment, plan: Mapping[str, Any], way: str) -> None:
    """Raise Conflict if the plan deletes data. `way` says how to allow that."""
    if held := [line for kind, before in _deleted(plan) for line in _held(environment, kind, before)]:
        raise Conflict(f"destroy would lose data: {'; '.join(held)}", hint=f"copy the data that you need; then {way}")


def lines(spec: ClusterSpec) -> list[str]:
    """Return the command lines of `check`, as far as they are known without a plan."""
    if spec.force_destroy:
        return []
    made = [str(_objects(spec))] if spec.create_bucket else []
    return ["# unless the bucket, images and metrics are gone already", *made] if made else []


def _deleted(plan: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any]]]:
    """Return the type and current values of what is deleted."""
    return [
        (change["type"], change["change"].get("before") or {})
        for change in plan.get("resource_changes", [])
        if "delete" in change["change"].get("actions", ())
    ]


def _held(spec: Environment, kind: str, before: Mapping[str, Any]) -> Iterator[str]:
    """Yield the data that deleting this resource would lose."""
    if kind == _BUCKET and not before.get("force_destroy") and _any(_objects(spec)):
        yield f"gs://{spec.artifact_repository_bucket_name} is not empty"
    if spec.force_destroy:
        return
    if kind == _REPOSITORY and _any(_images(spec, before)):
        yield f"the repository {before['repository_id']} holds images"
    if kind == _TENSORBOARD and _any(_experiments(spec, before)):
        yield f"the TensorBoard {before.get('display_name')} holds metrics of jobs"
    if kind == _DATABASE and before.get("delete_protection_state") == "DELETE_PROTECTION_ENABLED":
        yield f"the Firestore database {before.get('name')} is protected: it holds the jobs of teams"


def _any(question: Command) -> bool:
    return bool(gcloud.read(question, "checking what destroy would delete").strip())


def _objects(spec: Environment) -> Command:
    return gcloud.command(
        *("storage", "ls", "--all-versions", f"gs://{spec.artifact_repository_bucket_name}/"),
        f"--project={spec.project_id}",
    )


def _images(spec: Environment, repository: Mapping[str, Any]) -> Command:
    path = f"{repository['location']}-docker.pkg.dev/{spec.project_id.replace(':', '/')}/{repository['repository_id']}"
    return gcloud.command(
        *("artifacts", "docker", "images", "list", path, f"--project={spec.project_id}"),
        *("--limit=1", "--format=value(package)"),
    )


def _experiments(spec: Environment, board: Mapping[str, Any]) -> Command:
    return gcloud.command(
        *("beta", "ai", "tensorboard-experiments", "list", str(board["name"]).rpartition("/")[2]),
        *(f"--region={board['region']}", f"--project={spec.project_id}", "--limit=1", "--format=value(name)"),
    )
