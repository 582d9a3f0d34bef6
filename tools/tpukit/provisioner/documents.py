"""Kubernetes objects with the fields that the provisioner reads, like those in tpukit.kube.documents."""

from __future__ import annotations

from typing import Any, TypedDict

from tpukit.kube.job_documents import ConditionDoc, JobSetSpecDoc, JobSetStatusDoc, MetaDoc, OwnerDoc, ResourcesDoc

LEADERS = "batch.kubernetes.io/job-completion-index=0,jobset.sigs.k8s.io/jobset-name"
"""Label selector of the pods that represent slices."""


class LeaderMetaDoc(TypedDict, total=False):
    name: str
    namespace: str
    uid: str
    resourceVersion: str
    labels: dict[str, str]
    annotations: dict[str, str]
    deletionTimestamp: str


class ContainerDoc(TypedDict, total=False):
    resources: ResourcesDoc


class TolerationDoc(TypedDict, total=False):
    key: str
    value: str


class LeaderSpecDoc(TypedDict, total=False):
    nodeName: str
    nodeSelector: dict[str, str]
    containers: list[ContainerDoc]
    tolerations: list[TolerationDoc]
    affinity: dict[str, Any]


class LeaderStatusDoc(TypedDict, total=False):
    phase: str
    conditions: list[ConditionDoc]


class LeaderDoc(TypedDict, total=False):
    apiVersion: str
    kind: str
    metadata: LeaderMetaDoc
    spec: LeaderSpecDoc
    status: LeaderStatusDoc


class JobSetDoc(TypedDict, total=False):
    apiVersion: str
    kind: str
    metadata: MetaDoc
    spec: JobSetSpecDoc
    status: JobSetStatusDoc


class HostMetaDoc(TypedDict, total=False):
    name: str
    uid: str
    resourceVersion: str
    labels: dict[str, str]
    annotations: dict[str, str]


class HostSpecDoc(TypedDict, total=False):
    unschedulable: bool


class HostStatusDoc(TypedDict, total=False):
    conditions: list[ConditionDoc]


class HostDoc(TypedDict, total=False):
    """A node, with the fields that pools need."""

    apiVersion: str
    kind: str
    metadata: HostMetaDoc
    spec: HostSpecDoc
    status: HostStatusDoc


class PlacedMetaDoc(TypedDict, total=False):
    name: str
    namespace: str
    uid: str
    resourceVersion: str
    labels: dict[str, str]
    ownerReferences: list[OwnerDoc]


class PlacedSpecDoc(TypedDict, total=False):
    nodeName: str


class PlacedStatusDoc(TypedDict, total=False):
    phase: str


class PlacedDoc(TypedDict, total=False):
    """A pod, with the fields that tell its host and its owner."""

    apiVersion: str
    kind: str
    metadata: PlacedMetaDoc
    spec: PlacedSpecDoc
    status: PlacedStatusDoc
