"""What the control plane of a sandbox is given: the released manifests of kwok as they become here, a definition that
every cluster of GKE has, and what makes a rollout one. Every start reads it, so it imports nothing of what serves."""

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


def rollouts(namespaces: Iterable[str]) -> list[Doc]:
    """A Deployment whose process runs is scaled to nothing, so a new template of it would be rolled out the moment that
    it is written, while the old process still runs. The same write scales it up again: whoever waits for the rollout
    waits until the new process is ready."""
    name = "rollouts.sandbox.tpukit.dev"
    resources = {"apiGroups": ["apps"], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": ["deployments"]}
    among = {"key": "kubernetes.io/metadata.name", "operator": "In", "values": list(namespaces)}
    scaled = '[JSONPatch{op: "add", path: "/spec/replicas", value: 1}]'
    policy = {
        "matchConstraints": {
            "namespaceSelector": {"matchExpressions": [among]},
            "resourceRules": [resources],
        },
        "matchConditions": [{"name": "template", "expression": "object.spec.template != oldObject.spec.template"}],
        "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": scaled}}],
        "failurePolicy": "Fail",
        "reinvocationPolicy": "Never",
    }
    group = {"apiVersion": "admissionregistration.k8s.io/v1", "metadata": {"name": name}}
    return [
        {"kind": "MutatingAdmissionPolicy", **group, "spec": policy},
        {"kind": "MutatingAdmissionPolicyBinding", **group, "spec": {"policyName": name}},
    ]
