"""Hosts lost with their nodes, which Kubernetes reports later than the failure that they caused. Pure.

When a host is lost, its peers raise within seconds and end with the exit code of any error, and JobSet counts a failure
of the program. Kubernetes notices the lost node only after 40 to 50 s. So nothing is charged to the user while a host
has not ended and its node may still turn out to be lost.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from tpukit.places.gke.hosts import HostRecord, Records
from tpukit.places.gke.jobsets import Doc, condition, host_of, phase, runs, seconds
from tpukit.places.verdict import KILLED

NODE_SECONDS = 120.0
"""Longest wait for evidence about nodes before a failure is charged. GKE marks a silent node after 50 s."""
BEFORE_SECONDS = 300.0
"""A node that recovered this long before the failure did not cause it. JAX notices a lost peer after 100 s."""
AFTER_SECONDS = 600.0
"""A node that changed this long after the failure did not cause it."""
_WITHOUT_WORD = (KILLED, 255)
"""Exit codes that a kubelet reports for containers that it finds dead after a restart."""
_POD_EVENTS = ("NodeNotReady", "TaintManagerEviction")


def with_lost_nodes(
    names: Sequence[str],
    records: Mapping[str, HostRecord],
    nodes: Sequence[Doc] | None,
    events: Sequence[Doc],
    failed_at: float,
    later_pods: frozenset[str] = frozenset(),
) -> Records:
    """Return the records, with a note on each host whose node was lost at about `failed_at`.

    `nodes` is None if this account may not list them. `later_pods`: uids of pods of attempts after this one.
    """
    known = {one["metadata"]["name"]: one for one in nodes} if nodes is not None else None
    noted = dict(records)
    said = _said_of_pods(events, failed_at, later_pods)
    for name in names:
        record = records.get(name)
        if record is not None and (record.disrupted or record.lost or _ended_by_itself(record)):
            continue
        words = said.get(name, "")
        if record is not None and record.node and known is not None:
            words = _lost(record, known.get(record.node), failed_at) or words
        if words:
            noted[name] = replace(record or HostRecord(), lost=words)
    return noted


def unsettled(pods: Sequence[Doc]) -> str:
    """Return the first host whose pod exists and has not ended, so that its node may be lost; empty: none."""
    return min((host_of(pod) for pod in pods if runs(pod) and phase(pod) != "Pending"), default="")


def _lost(record: HostRecord, node: Doc | None, failed_at: float) -> str:
    if node is None:
        return f"node {record.node} was deleted"
    if record.began and seconds(node["metadata"].get("creationTimestamp")) > record.began:
        return f"node {record.node} was replaced"
    ready = condition(node, "Ready")
    if ready is None:
        return ""
    changed = seconds(ready.get("lastTransitionTime"))
    if changed < record.began or changed > failed_at + AFTER_SECONDS:
        return ""
    if ready["status"] != "True":
        return f"node {record.node} is not ready" + (f" ({ready['reason']})" if ready.get("reason") else "")
    return f"node {record.node} was not ready" if changed >= failed_at - BEFORE_SECONDS else ""


def _said_of_pods(events: Sequence[Doc], failed_at: float, later_pods: frozenset[str]) -> dict[str, str]:
    """Return what events report about pods, by host.

    An account that may not list nodes still sees what the node controller reports about the pods on them.
    """
    said: dict[str, str] = {}
    for event in events:
        about = event.get("involvedObject", {})
        if event.get("reason") not in _POD_EVENTS or about.get("uid") in later_pods:
            continue
        at = seconds(event.get("lastTimestamp") or event.get("eventTime") or event.get("firstTimestamp"))
        if failed_at - BEFORE_SECONDS <= at <= failed_at + AFTER_SECONDS:
            host = host_of({"metadata": {"name": str(about.get("name", ""))}})
            said[host] = f"Kubernetes reported {event['reason']} for its pod"
    return said


def _ended_by_itself(record: HostRecord) -> bool:
    """Return whether its kubelet reported an exit code that a program can have, so that the host was present."""
    return record.out_of_memory or (record.code is not None and record.code not in _WITHOUT_WORD)
