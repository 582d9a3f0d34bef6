"""Kinds of objects, their API paths, and the encoding of documents. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

Doc = dict[str, Any]
Docs = list[Doc]


@dataclass(frozen=True, slots=True)
class Kind:
    """Kind of object, by the names in its path."""

    api_version: str
    plural: str
    namespaced: bool = True

    def path(self, namespace: str = "", name: str = "", part: str = "") -> str:
        words = [self.api_version]
        if namespace and self.namespaced:
            words += ["namespaces", quote(namespace, safe="")]
        words += [self.plural, *([quote(name, safe=":")] if name else []), *([part] if part else [])]
        return group_root(self.api_version) + "/".join(words)


KINDS = {
    "ConfigMap": Kind("v1", "configmaps"),
    "Event": Kind("v1", "events"),
    "Namespace": Kind("v1", "namespaces", namespaced=False),
    "Node": Kind("v1", "nodes", namespaced=False),
    "Pod": Kind("v1", "pods"),
    "Secret": Kind("v1", "secrets"),
    "Service": Kind("v1", "services"),
    "ServiceAccount": Kind("v1", "serviceaccounts"),
    "Deployment": Kind("apps/v1", "deployments"),
    "Job": Kind("batch/v1", "jobs"),
    "EndpointSlice": Kind("discovery.k8s.io/v1", "endpointslices"),
    "Lease": Kind("coordination.k8s.io/v1", "leases"),
    "Role": Kind("rbac.authorization.k8s.io/v1", "roles"),
    "RoleBinding": Kind("rbac.authorization.k8s.io/v1", "rolebindings"),
    "ClusterRole": Kind("rbac.authorization.k8s.io/v1", "clusterroles", namespaced=False),
    "ClusterRoleBinding": Kind("rbac.authorization.k8s.io/v1", "clusterrolebindings", namespaced=False),
    "CustomResourceDefinition": Kind("apiextensions.k8s.io/v1", "customresourcedefinitions", namespaced=False),
    "MutatingWebhookConfiguration": Kind(
        "admissionregistration.k8s.io/v1", "mutatingwebhookconfigurations", namespaced=False
    ),
    "ValidatingWebhookConfiguration": Kind(
        "admissionregistration.k8s.io/v1", "validatingwebhookconfigurations", namespaced=False
    ),
    "PriorityClass": Kind("scheduling.k8s.io/v1", "priorityclasses", namespaced=False),
    "JobSet": Kind("jobset.x-k8s.io/v1alpha2", "jobsets"),
    "ClusterQueue": Kind("kueue.x-k8s.io/v1beta2", "clusterqueues", namespaced=False),
    "Cohort": Kind("kueue.x-k8s.io/v1beta2", "cohorts", namespaced=False),
    "LocalQueue": Kind("kueue.x-k8s.io/v1beta2", "localqueues"),
    "ResourceFlavor": Kind("kueue.x-k8s.io/v1beta2", "resourceflavors", namespaced=False),
    "Workload": Kind("kueue.x-k8s.io/v1beta2", "workloads"),
    "WorkloadPriorityClass": Kind("kueue.x-k8s.io/v1beta2", "workloadpriorityclasses", namespaced=False),
}
"""Kinds that tpukit names. Others are looked up in the cluster when a document of that kind is sent."""


@dataclass(frozen=True, slots=True)
class Change:
    """Current state of one object. With `gone`, the last known state of a deleted one."""

    object: Doc
    gone: bool = False


def group_root(api_version: str) -> str:
    return "/api/" if "/" not in api_version else "/apis/"


def selectors(labels: str, fields: str) -> dict[str, str]:
    return {
        **({"labelSelector": labels} if labels else {}),
        **({"fieldSelector": fields} if fields else {}),
    }


def namespace_of(document: Mapping[str, Any]) -> str:
    return str(document["metadata"].get("namespace") or "default")


def encode(document: object) -> bytes:
    """Return JSON that YAML reads as the same: server-side apply takes only YAML.

    JSON may write a character beyond 65535 as two escapes, which YAML does not know, or leave characters unescaped, of
    which some end a line in YAML.
    """
    text = json.dumps(document, ensure_ascii=False)
    return re.sub("[\x7f-\uffff]", lambda character: f"\\u{ord(character[0]):04x}", text).encode()
