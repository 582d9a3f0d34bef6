"""From what Terraform made to a person's settings, so that jobs need no flags."""

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
"""The output that becomes each setting as it is."""


def values(printed: Mapping[str, Any]) -> dict[str, Any]:
    """The outputs by name, from what `terraform output -json` printed."""
    return {name: output["value"] for name, output in printed.items()}


def settings_from(outputs: Mapping[str, Any]) -> dict[str, str]:
    """The settings that follow from outputs by name, checked. What the environment lacks is left out."""
    found = {setting: outputs.get(output) for setting, output in _SAME_VALUE.items()}
    if database := outputs.get("firestore_database"):
        found["store"] = f"firestore://{outputs['project_id']}/{database}"
    settings = {name: str(value) for name, value in found.items() if value}
    Settings.from_json(settings)
    return settings


_SURVIVES = ("project", "region", "zone")


def stale_settings(mine: Settings, made: Mapping[str, str], context: str) -> list[str]:
    """Names of the settings that lead to a cluster that was deleted. `made`: the settings that its outputs became."""
    has = mine.to_json(given=True)
    if has.get("context") != context:
        return []
    stale = [name for name, value in made.items() if name not in _SURVIVES and has.get(name) == value]
    repository = made.get("repository")
    if repository and str(has.get("image") or "").startswith(f"{repository}/"):
        stale.append("image")
    return [*stale, "context"]
