"""Manifests for the control plane of a sandbox: adapted ones of kwok, one definition of GKE, and a rollout policy.

Every start reads this module, so it imports none of the servers.
"""

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
"""End time of a pod on a simulated node: `sleep` is the only program that kwok's hosts can run."""


def kwok_stages(documents: Iterable[Doc]) -> list[Doc]:
    stages = copy.deepcopy(list(documents))
    for stage in stages:
        if stage["metadata"]["name"] == "pod-complete":
            stage["spec"]["delay"] = {"durationMilliseconds": 0, "durationFrom": {"jq": {"expression": _RUNS_UNTIL}}}
    return stages


def provisioning_requests() -> Doc:
    """Return the definition of provisioning requests, without its descriptions.

    From https://github.com/kubernetes/autoscaler, cluster-autoscaler/apis/config/crd.
    """
    found: Doc = json.loads((Path(__file__).parent / "provisioning-requests.json").read_text("utf-8"))
    return found


def rollouts(namespaces: Iterable[str]) -> list[Doc]:
    """Return a policy that scales a Deployment up when its template changes.

    A Deployment whose process runs is scaled to zero, so a new template would count as rolled out immediately, while
    the old process still runs. With this policy, waiting for the rollout waits until the new process is ready.
    """
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
