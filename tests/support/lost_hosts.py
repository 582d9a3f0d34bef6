"""Lost hosts of a job on the fake cluster: their nodes, their peers, and the reports of Kubernetes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from support.fake_cluster import FakeCluster, _set, _stamp
from tpukit.places.gke.jobsets import NAME, UID, host_of

Doc = dict[str, Any]
TAILS = Path(__file__).parents[1] / "fixtures" / "log-tails"
LOOPS = ("allgather", "device-put", "psum", "orbax-save", "input-wait")
"""Kinds of loops in which a peer was lost, each with a file of real last lines."""


def tail_of(loop: str) -> list[str]:
    """Return the last lines of the first survivor of a lost host."""
    lines = (TAILS / f"lost-{loop}.txt").read_text(encoding="utf-8").splitlines()
    start = next(index for index, line in enumerate(lines) if line.startswith("== "))
    end = next((index for index in range(start + 1, len(lines)) if lines[index].startswith("== ")), len(lines))
    return lines[start + 1 : end]


def add_nodes(cluster: FakeCluster, job_id: str) -> None:
    """Add the nodes of a job's hosts, created an hour ago."""
    before = _stamp(cluster.clock.now() - 3600.0)
    for pod in cluster.pods(job_id):
        node = add_node(cluster, pod["spec"]["nodeName"])
        node["metadata"]["creationTimestamp"] = before
        _set(node, "Ready", "True", "KubeletReady", at=before)


def add_node(cluster: FakeCluster, name: str) -> Doc:
    node = cluster._add("Node", {"metadata": {"name": name, "namespace": ""}, "spec": {}, "status": {}})
    _set(node, "Ready", "True", "KubeletReady", at=cluster.time())
    return node


def lose(cluster: FakeCluster, node: str) -> None:
    """Turn a machine off, before Kubernetes notices."""
    cluster.dead_nodes.add(node)


def notice(cluster: FakeCluster, node: str) -> None:
    """Mark a node as unreachable, as the node controller does after its grace period."""
    _set(cluster._kind("Node")["", node], "Ready", "Unknown", "NodeStatusUnknown", at=cluster.time())
    for pod in list(cluster._kind("Pod").values()):
        if pod["spec"]["nodeName"] == node:
            about = {key: pod["metadata"][key] for key in ("name", "namespace", "uid")} | {"kind": "Pod"}
            metadata = {"name": f"{about['name']}.{cluster.calls}", "namespace": about["namespace"]}
            said = {"reason": "NodeNotReady", "message": "Node is not ready", "lastTimestamp": cluster.time()}
            cluster._kind("Event").pop((metadata["namespace"], metadata["name"]), None)
            cluster._add("Event", {"metadata": metadata, "involvedObject": about, "type": "Warning", **said})


def come_back(cluster: FakeCluster, node: str) -> None:
    """Bring a node back; its kubelet removes the pods that were told to leave meanwhile."""
    cluster.dead_nodes.discard(node)
    _set(cluster._kind("Node")["", node], "Ready", "True", "KubeletReady", at=cluster.time())


def remove(cluster: FakeCluster, node: str) -> None:
    """Delete a Node, and its pods as the pod garbage collector does."""
    cluster.dead_nodes.discard(node)
    del cluster._kind("Node")["", node]
    for key, pod in list(cluster._kind("Pod").items()):
        if pod["spec"]["nodeName"] == node:
            del cluster._kind("Pod")[key]


def peers_fail(cluster: FakeCluster, job_id: str, tail: Sequence[str], *, code: int = 1) -> None:
    """End all hosts except lost ones with this code; then their Jobs fail, and JobSet applies its rules."""
    for pod in cluster.pods(job_id):
        if pod["spec"]["nodeName"] in cluster.dead_nodes:
            continue
        for line in tail:
            cluster.say(pod, line)
        ended = {"exitCode": code, "reason": "Error", "finishedAt": cluster.time()}
        pod["status"] |= {"phase": "Failed"}
        pod["status"]["containerStatuses"] = [{"name": "host", "image": "i", "state": {"terminated": ended}}]
    how = "peerLost" if code == 134 else "userError"
    cluster.react(job_id, how)
    reason = "PodFailurePolicy" if code == 134 else "BackoffLimitExceeded"
    labels = {NAME: job_id, UID: cluster.jobset(job_id)["metadata"]["uid"]}
    job = {"metadata": {"name": f"{job_id}-slice-0", "namespace": "research", "labels": labels}, "status": {}}
    cluster._kind("Job").pop(("research", f"{job_id}-slice-0"), None)
    _set(cluster._add("Job", job), "Failed", "True", reason, at=cluster.time())
    for pod in cluster.pods(job_id):  # a failed Job and a restarting JobSet remove running pods
        if pod["status"]["phase"] == "Running":
            pod["metadata"].setdefault("deletionTimestamp", cluster.time())


def node_of(cluster: FakeCluster, job_id: str, host: int) -> str:
    return str(sorted(cluster.pods(job_id), key=host_of)[host]["spec"]["nodeName"])
