"""Derive a user's settings from Terraform's outputs, so that jobs need no flags."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tpukit.jobs.spec.settings import Settings

_SAME_VALUE = {
    "team": "tpu_namespace",
    "project": "project_id",
    "region": "region",
    "zone": "zone",
    "repository": "image_repository",
    "artifacts": "artifact_bucket",
    "tensorboard": "tensorboard",
    "service_account": "tpu_sa_name",
}
"""The output that becomes each setting unchanged."""


def values(printed: Mapping[str, Any]) -> dict[str, Any]:
    """Return the outputs by name, from the output of `terraform output -json`."""
    return {name: output["value"] for name, output in printed.items()}


def settings_from(outputs: Mapping[str, Any]) -> dict[str, str]:
    """Return the settings that follow from outputs by name, validated. Omit those that the environment lacks."""
    found = {setting: outputs.get(output) for setting, output in _SAME_VALUE.items()}
    if database := outputs.get("firestore_database"):
        found["store"] = f"firestore://{outputs['project_id']}/{database}"
    settings = {name: str(value) for name, value in found.items() if value}
    Settings.from_json(settings)
    return settings


_SURVIVES = ("project", "region", "zone")


def stale_settings(mine: Settings, made: Mapping[str, str], context: str) -> list[str]:
    """Return names of settings that refer to a deleted cluster. `made` has the settings derived from its outputs."""
    has = mine.to_json(given=True)
    if has.get("context") != context:
        return []
    stale = [name for name, value in made.items() if name not in _SURVIVES and has.get(name) == value]
    repository = made.get("repository")
    if repository and str(has.get("image") or "").startswith(f"{repository}/"):
        stale.append("image")
    return [*stale, "context"]
