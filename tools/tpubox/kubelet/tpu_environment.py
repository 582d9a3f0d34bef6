"""The environment of a container on a TPU host, from GKE's device plugin, its Job webhook, and the simulation.

The simulation makes JAX take CPU devices for chips. https://cloud.google.com/kubernetes-engine/docs/concepts/tpus
describes the variables. The pod's own variables override them; those of the simulation override the pod's, because a
program that requests a TPU would find none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tpukit.catalogue import Slice, slices

Object = Mapping[str, Any]

RESOURCE = "google.com/tpu"
COORDINATOR_PORT = "8482"
_INDEX = "batch.kubernetes.io/job-completion-index"
_JOBSET = "jobset.sigs.k8s.io/"
_INJECTED = ("TPU_WORKER_", "MEGASCALE_")
_SHARED_HOSTS = ("tpu7x",)
"""Accelerators whose hosts several containers may share: the plugin splits their chips."""


def chips(container: Object) -> int:
    resources = container.get("resources", {})
    return int(resources.get("limits", {}).get(RESOURCE) or resources.get("requests", {}).get(RESOURCE) or 0)


def refusal(pod: Object, labels: Mapping[str, str]) -> str:
    """Return why GKE's device plugin refuses chips to a pod, in its words and the kubelet's, or "" if it does not.

    A container that requests chips has to request all chips of its host: ValidateTpuRequest in
    https://github.com/ai-on-gke/tpu-device-plugin/blob/main/pkg/tpu/manager.go. Two guesses: GKE's own plugin splits
    the chips of tpu7x on all nodes, and two chips of one pod are always adjacent.
    """
    there = int(labels.get("cloud.google.com/gke-accelerator-count", "0"))
    if not there or labels.get("cloud.google.com/gke-tpu-accelerator") in _SHARED_HOSTS:
        return ""
    spec = pod["spec"]
    asked = [chips(container) for container in (*spec.get("initContainers", []), *spec["containers"])]
    if all(count in (0, there) for count in asked):
        return ""
    why = f"invalid TPU chip count request, you must request all {there} chips on this node together"
    return f"Pod was rejected: Allocate failed due to rpc error: code = Unknown desc = {why}, which is unexpected"


def slice_of(labels: Mapping[str, str]) -> Slice | None:
    """Return the slice that a node with these labels is part of."""
    accelerator, topology = (
        labels.get("cloud.google.com/gke-tpu-accelerator"),
        labels.get("cloud.google.com/gke-tpu-topology"),
    )
    count = labels.get("cloud.google.com/gke-accelerator-count")
    found = [s for s in slices() if s.accelerator == accelerator and s.topology == topology]
    return next((s for s in found if str(s.chips_per_host) == count), None)


def host_names(pod: Object, job: Object | None) -> list[str]:
    """Return the names of all hosts of the pod's slice by index; none if GKE's webhook sets none."""
    subdomain = pod["spec"].get("subdomain")
    spec = job["spec"] if job else {}
    if not job or not subdomain or spec.get("completionMode") != "Indexed" or spec.get("parallelism", 1) < 2:
        return []
    return [f"{job['metadata']['name']}-{index}.{subdomain}" for index in range(spec.get("completions") or 1)]


def coordinator(pod: Object) -> str:
    """Return the name of the first host of the first slice of the pod's JobSet."""
    notes = pod["metadata"].get("annotations", {})
    if named := notes.get(f"{_JOBSET}coordinator"):
        return str(named)
    jobset, job, subdomain = (
        notes.get(f"{_JOBSET}jobset-name"), notes.get(f"{_JOBSET}replicatedjob-name"), pod["spec"].get("subdomain"),
    )  # fmt: skip
    return f"{jobset}-{job}-0-0.{subdomain}" if jobset and job and subdomain else ""


def given(pod: Object, container: Object, labels: Mapping[str, str], names: Sequence[str]) -> dict[str, str]:
    """Return the variables that GKE sets. `labels` are the node's, `names` those of the slice's hosts."""
    count, shape = chips(container), slice_of(labels)
    if not count or shape is None:
        return {}
    notes = pod["metadata"].get("annotations", {})
    index = notes.get(_INDEX) or pod["metadata"].get("labels", {}).get(_INDEX) or "0"
    replicas = int(notes.get(f"{_JOBSET}replicatedjob-replicas") or 1)
    many = replicas > 1
    # Empty means one slice. If unset, JAX would query Google's metadata server, which does not exist here.
    slices_env = {
        "MEGASCALE_NUM_SLICES": str(replicas) if many else "",
        "MEGASCALE_SLICE_ID": notes.get(f"{_JOBSET}job-index", "0") if many else "",
        "MEGASCALE_COORDINATOR_ADDRESS": coordinator(pod) if many else "",
    }
    wires = _wires(shape) if shape.hosts > 1 else {}
    return {
        "TPU_SKIP_MDS_QUERY": "true",
        "TPU_TOPOLOGY": shape.topology,
        "TPU_ACCELERATOR_TYPE": shape.name,
        "TPU_RUNTIME_METRICS_PORTS": ",".join(str(8431 + chip) for chip in range(count)),
        "TPU_WORKER_ID": index if names else "0",
        "TPU_WORKER_HOSTNAMES": ",".join(names) or "localhost",
        **wires,
        **slices_env,
    }


def injected(given: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that GKE's webhook writes into the pod; the others come from the device plugin."""
    return {name: value for name, value in given.items() if name.startswith(_INJECTED)}


def simulated(container: Object, labels: Mapping[str, str], address: str, env: Mapping[str, str]) -> dict[str, str]:
    """Return variables that replace chips and isolate jobs: `address` is the pod's own, `env` its variables so far."""
    count, shape = chips(container), slice_of(labels)
    if not count or shape is None:
        return {}
    return {
        "JAX_PLATFORMS": "cpu",
        "JAX_FORCE_TPU_INIT": "1",
        "JAX_NUM_CPU_DEVICES": str(count * shape.devices_per_chip),
        # JAX would listen on all addresses, where jobs that run side by side silently join each other.
        "JAX_COORDINATOR_BIND_ADDRESS": f"{address}:{env.get('JAX_COORDINATOR_PORT') or COORDINATOR_PORT}",
    }


def _wires(shape: Slice) -> dict[str, str]:
    """Return the arrangement of hosts and chips in the slice, in libtpu's format."""
    edges = [int(edge) for edge in shape.topology.split("x")] + [1]
    host = {1: (1, 1, 1), 4: (2, 2, 1), 8: (2, 4, 1)}[shape.chips_per_host]
    hosts = ",".join(str(max(1, edge // along)) for edge, along in zip(edges[:3], host, strict=True))
    inside = ",".join(map(str, host))
    return {
        "TPU_HOST_BOUNDS": hosts,
        "HOST_BOUNDS": hosts,
        "TPU_CHIPS_PER_HOST_BOUNDS": inside,
        "CHIPS_PER_HOST_BOUNDS": inside,
    }
