"""A step of the two Cloud Build files, run from a checkout without installation.

    PYTHONPATH=tools python3 -m tpukit.cluster.build_step settings | check | guard | data

The surrounding steps query Google, Terraform and the cluster, and leave the answers in the build's workspace.
"""

from __future__ import annotations

import json
import os
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tpukit.cluster import build_checks, build_settings, busy_pools, protection
from tpukit.cluster.busy_pools import Doomed
from tpukit.core.errors import TpukitError, Transient

SETTINGS = "settings.sh"
VARIABLES = "terraform/build.auto.tfvars.json"
BUILD, ALLOWED, OLDER = "build.json", "allowed.json", "older.tfstate"
PLAN, CLUSTER, NODES, PODS = "plan.json", "cluster", "nodes.json", "pods.json"


def settings(workspace: Path) -> None:
    declared = (workspace / "terraform" / "variables.tf").read_text(encoding="utf-8")
    found = build_settings.read(os.environ, declared)
    (workspace / VARIABLES).write_text(json.dumps(found.variables, indent=1), encoding="utf-8")
    (workspace / SETTINGS).write_text(found.shell(), encoding="utf-8")
    print(json.dumps(found.variables, indent=1))
    for line in build_settings.warnings(os.environ):
        print(f"warning: {line}", file=sys.stderr)


def check(workspace: Path, verb: str) -> None:
    steps = _steps(workspace)
    build = _json(workspace / BUILD)
    if not build:
        raise Transient(
            "the build cannot read its own record; the step before shows why. Nothing was changed",
            hint="its account needs roles/cloudbuild.builds.viewer, which `tpu cluster bootstrap` gives it",
        )
    build_checks.time(build, verb)
    build_checks.account(build, _json(workspace / ALLOWED), steps["PROJECT_ID"])
    if steps["OLDER_PREFIX"]:
        build_checks.older_state(_json(workspace / OLDER), steps)


def guard_step(workspace: Path, verb: str) -> None:
    steps = _steps(workspace)
    plan = _json(workspace / PLAN)
    build_checks.same_cluster(plan.get("prior_state", {}), steps)
    if verb == "destroy":
        going = Doomed(everything=True)
    else:
        going = busy_pools.doomed(plan)
        build_checks.replacing(going, steps)
    cluster = (workspace / CLUSTER).read_text(encoding="utf-8").strip()
    nodes, pods = _json(workspace / NODES), _json(workspace / PODS)
    build_checks.running(going, cluster, nodes, pods, steps["EVICT"] == "true")


@dataclass(frozen=True, slots=True)
class _Environment:
    project_id: str
    artifact_repository_bucket_name: str
    force_destroy: bool = False


def data(workspace: Path) -> None:
    """Check whether destroy would lose data. Runs in an image that has gcloud."""
    steps = _steps(workspace)
    if steps["FORCE_DESTROY"] != "true":
        environment = _Environment(steps["PROJECT_ID"], steps["ARTIFACT_BUCKET"])
        protection.check_data(environment, _json(workspace / PLAN), "run this build again with _FORCE_DESTROY=true")


def _steps(workspace: Path) -> dict[str, str]:
    words = shlex.split((workspace / SETTINGS).read_text(encoding="utf-8"))
    return dict(word.split("=", 1) for word in words)


def _json(file: Path) -> dict[str, Any]:
    """Return a program's JSON output, or {} if it is empty."""
    text = file.read_text(encoding="utf-8") if file.exists() else ""
    return dict(json.loads(text)) if text.strip() else {}


def main(argv: list[str]) -> int:
    workspace, step = Path.cwd(), argv[0]
    try:
        if step == "settings":
            settings(workspace)
        elif step == "check":
            check(workspace, argv[1])
        elif step == "data":
            data(workspace)
        else:
            guard_step(workspace, argv[1])
    except TpukitError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
