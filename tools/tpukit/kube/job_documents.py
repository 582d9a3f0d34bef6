"""Types for kube/documents.py: Pods, Jobs and JobSets."""

from __future__ import annotations

from typing import Any, TypedDict

Quantities = dict[str, Any]


class OwnerDoc(TypedDict, total=False):
    apiVersion: str
    kind: str
    name: str
    uid: str
    controller: bool


class ManagerDoc(TypedDict, total=False):
    manager: str
    operation: str
    subresource: str


class MetaDoc(TypedDict, total=False):
    name: str
    namespace: str
    uid: str
    resourceVersion: str
    generation: int
    labels: dict[str, str]
    annotations: dict[str, str]
    creationTimestamp: str
    deletionTimestamp: str
    ownerReferences: list[OwnerDoc]


class ManagedMetaDoc(MetaDoc, total=False):
    managedFields: list[ManagerDoc]


class PodMetaDoc(TypedDict, total=False):
    name: str
    namespace: str
    uid: str
    resourceVersion: str
    labels: dict[str, str]
    creationTimestamp: str
    deletionTimestamp: str
    deletionGracePeriodSeconds: int
    ownerReferences: list[OwnerDoc]


class ConditionDoc(TypedDict, total=False):
    type: str
    status: str
    reason: str
    message: str
    lastTransitionTime: str


class WaitingDoc(TypedDict, total=False):
    reason: str
    message: str


class RunningDoc(TypedDict, total=False):
    startedAt: str


class TerminatedDoc(TypedDict, total=False):
    exitCode: int
    signal: int
    reason: str
    message: str
    startedAt: str
    finishedAt: str


class ContainerStateDoc(TypedDict, total=False):
    waiting: WaitingDoc
    running: RunningDoc
    terminated: TerminatedDoc


class ContainerStatusDoc(TypedDict, total=False):
    name: str
    image: str
    ready: bool
    restartCount: int
    state: ContainerStateDoc


class NamedDoc(TypedDict, total=False):
    name: str


class PodSpecDoc(TypedDict, total=False):
    nodeName: str
    containers: list[NamedDoc]


class PodStatusDoc(TypedDict, total=False):
    phase: str
    reason: str
    message: str
    startTime: str
    conditions: list[ConditionDoc]
    initContainerStatuses: list[ContainerStatusDoc]
    containerStatuses: list[ContainerStatusDoc]


class PodDoc(TypedDict, total=False):
    apiVersion: str
    kind: str
    metadata: PodMetaDoc
    spec: PodSpecDoc
    status: PodStatusDoc


class JobSpecDoc(TypedDict, total=False):
    suspend: bool
    parallelism: int
    completions: int
    activeDeadlineSeconds: int


class JobStatusDoc(TypedDict, total=False):
    active: int
    ready: int
    succeeded: int
    failed: int
    startTime: str
    completionTime: str
    conditions: list[ConditionDoc]


class JobDoc(TypedDict, total=False):
    apiVersion: str
    kind: str
    metadata: MetaDoc
    spec: JobSpecDoc
    status: JobStatusDoc


class ResourcesDoc(TypedDict, total=False):
    limits: Quantities
    requests: Quantities


class ContainerDoc(TypedDict, total=False):
    name: str
    resources: ResourcesDoc


class TolerationDoc(TypedDict, total=False):
    key: str
    operator: str
    value: str
    effect: str


class NodeRuleDoc(TypedDict, total=False):
    key: str
    operator: str
    values: list[str]


class NodeSelectorTermDoc(TypedDict, total=False):
    matchExpressions: list[NodeRuleDoc]


class NodeSelectorDoc(TypedDict, total=False):
    nodeSelectorTerms: list[NodeSelectorTermDoc]


class NodeAffinityDoc(TypedDict, total=False):
    requiredDuringSchedulingIgnoredDuringExecution: NodeSelectorDoc


class AffinityDoc(TypedDict, total=False):
    nodeAffinity: NodeAffinityDoc


class PodTemplateSpecDoc(TypedDict, total=False):
    nodeSelector: dict[str, str]
    affinity: AffinityDoc
    tolerations: list[TolerationDoc]
    containers: list[ContainerDoc]
    initContainers: list[ContainerDoc]


class PodTemplateDoc(TypedDict, total=False):
    spec: PodTemplateSpecDoc


class JobTemplateSpecDoc(TypedDict, total=False):
    parallelism: int
    completions: int
    template: PodTemplateDoc


class JobTemplateDoc(TypedDict, total=False):
    spec: JobTemplateSpecDoc


class ReplicatedJobDoc(TypedDict, total=False):
    name: str
    replicas: int
    template: JobTemplateDoc


class JobSetSpecDoc(TypedDict, total=False):
    suspend: bool
    replicatedJobs: list[ReplicatedJobDoc]


class JobSetStatusDoc(TypedDict, total=False):
    restarts: int
    restartsCountTowardsMax: int
    terminalState: str
    conditions: list[ConditionDoc]


class JobSetDoc(TypedDict, total=False):
    apiVersion: str
    kind: str
    metadata: ManagedMetaDoc
    spec: JobSetSpecDoc
    status: JobSetStatusDoc
