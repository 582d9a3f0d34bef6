"""Roles in a project's policy: add all missing ones in one change, and none twice.

A policy is read, changed and written back with its etag, so that Google refuses the write if the policy has changed in
between. https://cloud.google.com/iam/docs/policies#etag
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tpukit.cluster import gcloud
from tpukit.cluster.programs import Command

Policy = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Grant:
    """A role for a member, with an optional condition. Each title has one condition."""

    member: str
    role: str
    title: str = ""
    expression: str = ""

    def __str__(self) -> str:
        bounds = f", {self.title}: {self.expression}" if self.title else ""
        return f"{self.member} has {self.role}{bounds}"


def added(policy: Policy, grants: Sequence[Grant], withdrawn: Sequence[Grant] = ()) -> dict[str, Any] | None:
    """Return the policy with all grants and without those withdrawn, under any condition; None if nothing changes.

    A grant replaces an earlier condition of the same title.
    """
    bindings = [dict(binding) for binding in policy.get("bindings", [])]
    before = json.dumps(bindings, sort_keys=True)
    for grant in withdrawn:
        for binding in bindings:
            if binding["role"] == grant.role:
                binding["members"] = [member for member in binding["members"] if member != grant.member]
    for grant in grants:
        _add(bindings, grant)
    bindings = [binding for binding in bindings if binding["members"]]
    if json.dumps(bindings, sort_keys=True) == before:
        return None
    return {**policy, "version": 3, "bindings": bindings}


def _add(bindings: list[dict[str, Any]], grant: Grant) -> None:
    condition = {"title": grant.title, "expression": grant.expression} if grant.title else None
    own: dict[str, Any] | None = None
    for binding in bindings:
        if binding["role"] != grant.role:
            continue
        there = binding.get("condition")
        if _same(there, condition):
            own = binding
        elif there and condition and there.get("title") == grant.title:
            binding["members"] = [member for member in binding["members"] if member != grant.member]
    if own is None:
        own = {"role": grant.role, "members": [], **({"condition": condition} if condition else {})}
        bindings.append(own)
    if grant.member not in own["members"]:
        own["members"] = [*own["members"], grant.member]


def _same(there: Mapping[str, Any] | None, wanted: Mapping[str, Any] | None) -> bool:
    if not there or not wanted:
        return not there and not wanted
    return (there.get("title"), there.get("expression")) == (wanted["title"], wanted["expression"])


def read(project: str) -> Command:
    return gcloud.command("projects", "get-iam-policy", project, "--format=json")


def write(project: str, file: Path) -> Command:
    return gcloud.command("projects", "set-iam-policy", project, str(file), "--format=none")


def apply(project: str, grants: Sequence[Grant], file: Path, withdrawn: Sequence[Grant] = ()) -> bool:
    """Apply the grants and return whether the policy changed. It passes through `file`, private to its owner."""
    wanted = added(gcloud.read_json(read(project), "reading the project's policy"), grants, withdrawn)
    if wanted is None:
        return False
    file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as opened:
        json.dump(wanted, opened)
    try:
        gcloud.read(write(project, file), "changing the project's policy")
    finally:
        file.unlink(missing_ok=True)
    return True
