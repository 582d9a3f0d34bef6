"""Explain in one sentence which hosts cannot end because their nodes do not respond. Pure.

Kubernetes cannot end a pod on a node that is NotReady. The Job of a slice fails only when the last of its pods has
ended, and JobSet creates the next ones only when the last ones are gone. So a lost host holds up an attempt until its
node is back, replaced or deleted.
"""

from __future__ import annotations

from collections.abc import Sequence

from tpukit.core.quantities import counted
from tpukit.places.gke.jobsets import Doc, JobSetState, condition, host_of, phase, runs, true_condition

NOT_READY = "NotReady"
_REPAIR = (
    "the next attempt starts when the node is back, replaced or deleted: GKE repairs a node that stays NotReady for "
    "about 10 minutes"
)
"""Message with GKE's ten minutes: https://cloud.google.com/kubernetes-engine/docs/how-to/node-auto-repair."""


def in_doubt(state: JobSetState) -> bool:
    """Return whether a host of the current attempt is leaving or not ready, so that its node may not respond."""
    return any(runs(pod) and (_leaves(pod) or _is_unready(pod)) for pod in state.current_pods())


def holding_up(state: JobSetState, nodes: Sequence[Doc] | None) -> str:
    """Return what keeps the current attempt from ending, or will end it; empty: nothing.

    `nodes` is None if this account may not list them.
    """
    pods = sorted(state.current_pods(), key=host_of)
    failed = next((f"{host_of(pod)} failed; " for pod in pods if phase(pod) == "Failed"), "")
    alive = [pod for pod in pods if runs(pod)]
    if silent := _on_silent_node(alive, nodes):
        return failed + silent
    leaving = next((pod for pod in alive if _leaves(pod)), None)
    if not failed or leaving is None:
        return ""
    return f"{failed}waiting for {host_of(leaving)} on node {_node(leaving)} to end"


def of_last_attempt(state: JobSetState, nodes: Sequence[Doc] | None) -> str:
    """Return which hosts of the last attempt have not left, so that the next one cannot start; empty: none."""
    stay = sorted((pod for pod in state.pods if _leaves(pod) and runs(pod)), key=host_of)
    if not stay:
        return ""
    if silent := _on_silent_node(stay, nodes, " of the last attempt"):
        return silent
    first, node = host_of(stay[0]), _node(stay[0])
    if len(stay) == 1:
        return f"{first} of the last attempt is leaving node {node}"
    return f"{counted(len(stay), 'host')} of the last attempt are leaving; the first is {first} on node {node}"


def _on_silent_node(pods: Sequence[Doc], nodes: Sequence[Doc] | None, whose: str = "") -> str:
    silent = {one["metadata"]["name"]: one for one in nodes or () if not true_condition(one, "Ready")}
    for pod in pods:
        if node := silent.get(_node(pod)):
            at = str((condition(node, "Ready") or {}).get("lastTransitionTime") or "")[11:19]
            since = f" since {at} UTC" if at else ""
            how = "terminating on" if _leaves(pod) else "on"
            return f"{host_of(pod)}{whose} is {how} node {_node(pod)}, which is {NOT_READY}{since}; {_REPAIR}"
    return ""


def _leaves(pod: Doc) -> bool:
    return "deletionTimestamp" in pod["metadata"]


def _is_unready(pod: Doc) -> bool:
    """Return whether the node controller marked the pod as not ready, as it does on nodes that stopped reporting."""
    ready = condition(pod, "Ready")
    return phase(pod) == "Running" and ready is not None and ready["status"] == "False"


def _node(pod: Doc) -> str:
    return str(pod.get("spec", {}).get("nodeName") or "")
