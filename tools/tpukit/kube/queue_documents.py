"""Types for kube/documents.py: Workloads, and the Nodes and Events that explain why something waits."""

from __future__ import annotations

from typing import TypedDict

from tpukit.kube.job_documents import ConditionDoc, MetaDoc, PodTemplateDoc, Quantities


class PodSetDoc(TypedDict, total=False):
    name: str
    count: int
    template: PodTemplateDoc


class PriorityClassRefDoc(TypedDict, total=False):
    name: str


class WorkloadSpecDoc(TypedDict, total=False):
    active: bool
    queueName: str
    priority: int
    priorityClassRef: PriorityClassRefDoc
    podSets: list[PodSetDoc]


class AssignmentDoc(TypedDict, total=False):
    name: str
    count: int
    flavors: dict[str, str]
    resourceUsage: Quantities


class AdmissionDoc(TypedDict, total=False):
    clusterQueue: str
    podSetAssignments: list[AssignmentDoc]


class CheckDoc(TypedDict, total=False):
    name: str
    state: str
    message: str


class RequeueDoc(TypedDict, total=False):
    count: int
    requeueAt: str


class EvictionDoc(TypedDict, total=False):
    reason: str
    count: int


class SchedulingStatsDoc(TypedDict, total=False):
    evictions: list[EvictionDoc]


class WorkloadStatusDoc(TypedDict, total=False):
    admission: AdmissionDoc
    admissionChecks: list[CheckDoc]
    conditions: list[ConditionDoc]
    requeueState: RequeueDoc
    schedulingStats: SchedulingStatsDoc


class WorkloadDoc(TypedDict, total=False):
    apiVersion: str
    kind: str
    metadata: MetaDoc
    spec: WorkloadSpecDoc
    status: WorkloadStatusDoc


class TaintDoc(TypedDict, total=False):
    key: str
    value: str
    effect: str


class NodeSpecDoc(TypedDict, total=False):
    unschedulable: bool
    taints: list[TaintDoc]


class NodeStatusDoc(TypedDict, total=False):
    allocatable: Quantities
    conditions: list[ConditionDoc]


class NodeMetaDoc(TypedDict, total=False):
    name: str
    uid: str
    resourceVersion: str
    labels: dict[str, str]
    creationTimestamp: str
    deletionTimestamp: str


class NodeDoc(TypedDict, total=False):
    apiVersion: str
    kind: str
    metadata: NodeMetaDoc
    spec: NodeSpecDoc
    status: NodeStatusDoc


class InvolvedDoc(TypedDict, total=False):
    kind: str
    namespace: str
    name: str
    uid: str


class EventMetaDoc(TypedDict, total=False):
    name: str
    namespace: str
    uid: str
    resourceVersion: str
    creationTimestamp: str


class SeriesDoc(TypedDict, total=False):
    lastObservedTime: str


class EventDoc(TypedDict, total=False):
    apiVersion: str
    kind: str
    metadata: EventMetaDoc
    involvedObject: InvolvedDoc
    type: str
    reason: str
    message: str
    count: int
    firstTimestamp: str | None
    lastTimestamp: str | None
    eventTime: str | None
    series: SeriesDoc | None
