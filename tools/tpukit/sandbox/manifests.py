"""What the control plane of a sandbox is given: the released manifests of kwok as they become here, and a definition
that every cluster of GKE has. Every start reads this, so it imports nothing of what serves it."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

Doc = dict[str, Any]

_RUNS_UNTIL = """
(.spec.containers[0] | (.command // []) + (.args // [])) as $words
| ($words | index("sleep")) as $at
| if $at
  then (.status.startTime | fromdateiso8601) + (($words[$at + 1] | tonumber?) // 0) | todate
  else "0s"
  end
"""
"""When a pod on a simulated node ends: of all programs, kwok's hosts can run `sleep`."""


def kwok_stages(documents: Iterable[Doc]) -> list[Doc]:
    stages = copy.deepcopy(list(documents))
    for stage in stages:
        if stage["metadata"]["name"] == "pod-complete":
            stage["spec"]["delay"] = {"durationMilliseconds": 0, "durationFrom": {"jq": {"expression": _RUNS_UNTIL}}}
    return stages


def provisioning_requests() -> Doc:
    """The definition: https://github.com/kubernetes/autoscaler, cluster-autoscaler/apis/config/crd, without its
    descriptions."""
    found: Doc = json.loads((Path(__file__).parent / "provisioning-requests.json").read_text("utf-8"))
    return found
