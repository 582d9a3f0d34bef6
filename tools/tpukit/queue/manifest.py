"""The Kubernetes Job that runs a worker for one queued job, in the LocalQueue of a team. Pure."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

from tpukit import catalogue
from tpukit.errors import Invalid
from tpukit.queue.records import QueuedJob
from tpukit.render import hosts
from tpukit.render.node_labels import CPU_POOL, absent_labels, host_labels, node_taints

LABEL = "tpukit.dev/queue"
KEY = "tpukit.dev/queued-job"
"""Annotation: the id of the document, which may hold what names of Kubernetes may not."""
TTL_SECONDS = 3600
USER = 65532
HOME = "/var/lib/tpukit"
_CAPACITIES = ("on-demand", "spot", "flex-start")


@dataclass(frozen=True, slots=True)
class Target:
    """Where workers are started, and as what."""

    team: str  # its namespace and LocalQueue
    image: str
    store: str  # address, as the setting names it
    results: str  # gs:// address
    tpu: str = ""  # slice of jobs that name none, as v5e-4 or v5e-4:spot; empty: a CPU node
    service_account: str = "queue-worker"
    grace: int = 25  # spot nodes give 30 s


def name(key: str, job: QueuedJob) -> str:
    """One for each time that it is scheduled: made twice, it is made once."""
    return f"queue-{hashlib.sha256(key.encode()).hexdigest()[:16]}-{job.schedules}"


def manifest(key: str, job: QueuedJob, target: Target) -> dict[str, Any]:
    """Invalid where what the job asks for cannot be had."""
    asked = job.metadata.get("tpu") if isinstance(job.metadata, dict) else None
    resources, placement = _machine(str(asked or target.tpu))
    labels = {"app.kubernetes.io/managed-by": "tpukit", LABEL: "worker"}
    command = ["tpu", "queue", "work", key, "--results", target.results, "--grace", str(target.grace)]
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": name(key, job),
            "namespace": target.team,
            "labels": {**labels, "kueue.x-k8s.io/queue-name": target.team},
            "annotations": {KEY: key},
        },
        "spec": {
            # The queue decides about another try, not the Job.
            "backoffLimit": 0,
            "ttlSecondsAfterFinished": TTL_SECONDS,
            "template": {
                "metadata": {"labels": labels},
                "spec": {
                    "restartPolicy": "Never",
                    "serviceAccountName": target.service_account,
                    # Google's token comes from the metadata server; the API server is not asked.
                    "automountServiceAccountToken": False,
                    "enableServiceLinks": False,
                    "terminationGracePeriodSeconds": target.grace + 15,
                    "securityContext": {
                        "runAsNonRoot": True,
                        "runAsUser": USER,
                        "runAsGroup": USER,
                        "fsGroup": USER,
                        "seccompProfile": {"type": "RuntimeDefault"},
                    },
                    **placement,
                    "containers": [
                        {
                            "name": "worker",
                            "image": target.image,
                            "imagePullPolicy": "Always",
                            "command": command,
                            "env": [
                                {"name": "TPUKIT_STORE", "value": target.store},
                                {"name": "TPUKIT_HOME", "value": HOME},
                                {"name": "HOME", "value": HOME},
                            ],
                            "resources": {"requests": resources, "limits": resources},
                            "securityContext": {
                                "allowPrivilegeEscalation": False,
                                "readOnlyRootFilesystem": True,
                                "runAsNonRoot": True,
                                "capabilities": {"drop": ["ALL"]},
                            },
                            "volumeMounts": [
                                {"name": "home", "mountPath": HOME},
                                {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108 (of a pod)
                            ],
                        }
                    ],
                    "volumes": [
                        {"name": "home", "emptyDir": {"sizeLimit": "20Gi"}},
                        {"name": "tmp", "emptyDir": {"sizeLimit": "1Gi"}},
                    ],
                },
            },
        },
    }


def _machine(asked: str) -> tuple[dict[str, str], dict[str, Any]]:
    """What a pod requests, and where it goes."""
    if not asked:
        return {"cpu": "1", "memory": "4Gi", "ephemeral-storage": "25Gi"}, {"nodeSelector": dict([CPU_POOL])}
    wanted, _, capacity = asked.partition(":")
    capacity = capacity or "on-demand"
    if capacity not in _CAPACITIES:
        raise Invalid(f"metadata.tpu: {asked!r} names no way to get a slice", hint=f"one of {', '.join(_CAPACITIES)}")
    shape = catalogue.find(wanted)
    if shape.machine_type is None:
        raise Invalid(f"metadata.tpu: GKE has no {shape.name}")
    if shape.hosts > 1:
        hint = "name a slice of one host, or send it as a training job with `tpu run`"
        raise Invalid(f"metadata.tpu: {shape.name} has {shape.hosts} hosts, and queued code runs on one", hint=hint)
    resources = {
        "google.com/tpu": str(shape.chips_per_host),
        "cpu": str(hosts.cpu(shape)),
        "memory": f"{hosts.memory_gb(shape)}G",
        "ephemeral-storage": "25Gi",
    }
    absent = [{"key": key, "operator": "DoesNotExist"} for key in absent_labels(capacity)]
    terms = {"nodeSelectorTerms": [{"matchExpressions": absent}]}
    tolerated = ["google.com/tpu", *(key for key, _ in node_taints(capacity))]
    return resources, {
        "nodeSelector": host_labels(shape, capacity),
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}},
        "tolerations": [{"key": key, "operator": "Exists", "effect": "NoSchedule"} for key in tolerated],
    }
