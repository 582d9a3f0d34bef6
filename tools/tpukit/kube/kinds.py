"""Kinds of objects, the paths at which the API has them, and documents on their way there. Pure."""

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
    """A kind of object, by the names that its path has."""

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
    "JobSet": Kind("jobset.x-k8s.io/v1alpha2", "jobsets"),
    "ClusterQueue": Kind("kueue.x-k8s.io/v1beta2", "clusterqueues", namespaced=False),
    "Cohort": Kind("kueue.x-k8s.io/v1beta2", "cohorts", namespaced=False),
    "LocalQueue": Kind("kueue.x-k8s.io/v1beta2", "localqueues"),
    "ResourceFlavor": Kind("kueue.x-k8s.io/v1beta2", "resourceflavors", namespaced=False),
    "Workload": Kind("kueue.x-k8s.io/v1beta2", "workloads"),
    "WorkloadPriorityClass": Kind("kueue.x-k8s.io/v1beta2", "workloadpriorityclasses", namespaced=False),
}
"""Kinds that tpukit names. Others are looked up in the cluster when a document of theirs is sent."""


@dataclass(frozen=True, slots=True)
class Change:
    """One object as it is now. `gone`: as it was when it was last seen."""

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
    """JSON that YAML reads as the same: server-side apply takes YAML alone.

    JSON may write a character beyond 65535 as two escapes, which YAML does not know, or leave all as they are: some of
    those are ends of lines to YAML.
    """
    text = json.dumps(document, ensure_ascii=False)
    return re.sub("[\x7f-\uffff]", lambda character: f"\\u{ord(character[0]):04x}", text).encode()
