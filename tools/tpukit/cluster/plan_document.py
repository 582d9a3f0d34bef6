"""A plan as `terraform show -json` writes it, shown on the same screen as Terraform's streamed output.

https://developer.hashicorp.com/terraform/internals/json-format
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tpukit.cluster.terraform_events import Planned, Summary
from tpukit.cluster.terraform_progress import Progress

_ACTIONS = {
    ("create",): "create",
    ("update",): "update",
    ("delete",): "delete",
    ("delete", "create"): "replace",
    ("create", "delete"): "replace",
    ("forget",): "remove",
}


def progress(plan: Mapping[str, Any]) -> Progress:
    """Return all changes of a plan as waiting rows."""
    made = Progress()
    for change in _planned(plan):
        made.feed(change, 0.0)
    count = [change.action for change in made.planned].count
    replaced = count("replace")
    made.feed(Summary("plan", count("create") + replaced, count("update"), count("delete") + replaced), 0.0)
    return made


def outputs_change(plan: Mapping[str, Any]) -> bool:
    return any(change.get("actions") != ["no-op"] for change in plan.get("output_changes", {}).values())


def _planned(plan: Mapping[str, Any]) -> Iterator[Planned]:
    for change in plan.get("resource_changes", []):
        action = _ACTIONS.get(tuple(change["change"]["actions"]))
        if action:
            reason = str(change.get("action_reason", ""))
            yield Planned(str(change["address"]), str(change["type"]), action, reason)
