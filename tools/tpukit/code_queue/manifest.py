"""The Kubernetes object that runs a worker for one queued job, in the LocalQueue of a team. Pure.

A Job, or a JobSet if the slice has several hosts.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

from tpukit import catalogue
from tpukit.code_queue import slices
from tpukit.code_queue.records import QueuedJob
from tpukit.core.errors import Invalid
from tpukit.jobs.plan import SLICE_JOB
from tpukit.jobs.render import machine_share
from tpukit.jobs.render.node_labels import CPU_POOL, absent_labels, host_labels, node_taints

LABEL = "tpukit.dev/queue"
KEY = "tpukit.dev/queued-job"
"""Annotation: the id of the document, which may contain characters that Kubernetes names must not."""
HOSTS = "tpukit.dev/queue-hosts"
"""Label of pods that communicate with each other."""
TTL_SECONDS = 3600
USER = 65532
HOME = "/var/lib/tpukit"


@dataclass(frozen=True, slots=True)
class Target:
    """The configuration of the workers."""

    team: str  # its namespace and LocalQueue
    image: str
    store: str  # address, as the setting names it
    results: str  # gs:// address
    tpu: str = ""  # slice of jobs that name none, as v5e-4 or v5e-4:spot; empty: a CPU node
    network: bool = False  # whether code may use it; required for slices of several hosts
    emulator: str = ""  # address of a store that is not Google's
    service_account: str = "queue-worker"
    grace: int = 25  # spot nodes give 30 s


def name(key: str, job: QueuedJob) -> str:
    """Return a name that is unique for each scheduling of the job, so that creating it twice has no effect."""
    return f"queue-{hashlib.sha256(key.encode()).hexdigest()[:16]}-{job.schedules}"


def manifest(key: str, job: QueuedJob, target: Target) -> dict[str, Any]:
    """Return a Job, or a JobSet for a slice of several hosts. Raises Invalid if the request cannot be met."""
    asked = slices.requested(job)
    machine = _machine(asked or target.tpu)
    if machine.hosts > 1 and not target.network:
        hint = "name a slice of one host; or serve the queue with --network, which lets code use the network"
        raise Invalid(
            f"metadata.tpu: {asked or target.tpu} has {machine.hosts} hosts, which use the network", hint=hint
        )
    labels = {"app.kubernetes.io/managed-by": "tpukit", LABEL: "worker"}
    metadata = {
        "name": name(key, job),
        "namespace": target.team,
        "labels": {**labels, "kueue.x-k8s.io/queue-name": target.team},
        "annotations": {KEY: key},
    }
    # The queue retries, not the Job.
    spec = {"backoffLimit": 0, "template": _pod(key, target, machine, labels)}
    if machine.hosts == 1:
        spec = {**spec, "ttlSecondsAfterFinished": TTL_SECONDS}
        return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": metadata,
        "spec": {
            "network": {"enableDNSHostnames": True, "publishNotReadyAddresses": True},
            "failurePolicy": {"maxRestarts": 0},
            "ttlSecondsAfterFinished": TTL_SECONDS,
            "replicatedJobs": [
                {
                    "name": SLICE_JOB,
                    "replicas": 1,
                    "template": {
                        "metadata": {
                            "labels": labels,
                            "annotations": {
                                "alpha.jobset.sigs.k8s.io/exclusive-topology": "cloud.google.com/gke-nodepool"
                            },
                        },
                        "spec": {
                            "completionMode": "Indexed",
                            "completions": machine.hosts,
                            "parallelism": machine.hosts,
                            **spec,
                        },
                    },
                }
            ],
        },
    }


def _pod(key: str, target: Target, machine: Machine, labels: dict[str, str]) -> dict[str, Any]:
    command = ["tpu", "queue", "work", key, "--results", target.results, "--grace", str(target.grace)]
    env = {"TPUKIT_STORE": target.store, "TPUKIT_HOME": HOME, "HOME": HOME}
    if target.emulator:
        env["FIRESTORE_EMULATOR_HOST"] = target.emulator
    return {
        "metadata": {"labels": {**labels, **({HOSTS: "many"} if machine.hosts > 1 else {})}},
        "spec": {
            "restartPolicy": "Never",
            "serviceAccountName": target.service_account,
            # Google's token comes from the metadata server; the API server is not used.
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
            **machine.placement,
            "containers": [
                {
                    "name": "worker",
                    "image": target.image,
                    "imagePullPolicy": "Always",
                    "command": [*command, *(["--network"] if target.network else [])],
                    "env": [{"name": one, "value": value} for one, value in env.items()],
                    "resources": {"requests": machine.resources, "limits": machine.resources},
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
    }


@dataclass(frozen=True, slots=True)
class Machine:
    hosts: int
    resources: dict[str, str]  # of each host; only resources with quota in the queues, or Kueue never admits it
    placement: dict[str, Any]


def _machine(asked: str) -> Machine:
    """Return the resources and the placement of pods."""
    if not asked:
        resources = {"cpu": "1", "memory": "4Gi"}
        return Machine(1, resources, {"nodeSelector": dict([CPU_POOL])})
    name, capacity = slices.parse(asked)
    shape = catalogue.find(name)
    if shape.machine_type is None:
        raise Invalid(f"metadata.tpu: GKE has no {shape.name}")
    resources = {
        "google.com/tpu": str(shape.chips_per_host),
        "cpu": str(machine_share.cpu(shape)),
        "memory": f"{machine_share.memory_gb(shape)}G",
    }
    absent = [{"key": key, "operator": "DoesNotExist"} for key in absent_labels(capacity)]
    terms = {"nodeSelectorTerms": [{"matchExpressions": absent}]}
    tolerated = ["google.com/tpu", *(key for key, _ in node_taints(capacity))]
    placement = {
        "nodeSelector": host_labels(shape, capacity),
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}},
        "tolerations": [{"key": key, "operator": "Exists", "effect": "NoSchedule"} for key in tolerated],
    }
    return Machine(shape.hosts, resources, placement)
