"""Admission checks of a kubelet, for pods that name a node and so bypass the scheduler.

Order and messages follow https://github.com/kubernetes/kubernetes/blob/v1.36.3/pkg/kubelet/lifecycle/predicate.go and
the device manager. An admitted pod is not checked again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

from tpubox.kubelet import node_fit, tpu_environment
from tpubox.kubelet.api_server import Api
from tpubox.kubelet.env import quantity
from tpukit.core.errors import NotFound

Object = Mapping[str, Any]
_MARK = "admitted"
_NOT_A_NODE_FOR_IT = ("NodeAffinity", "TaintToleration")


@dataclass(frozen=True, slots=True)
class Node:
    """The facts about a node that its pods depend on."""

    labels: Mapping[str, str]
    allocatable: Mapping[str, str]  # the maximum for a container without limits
    dead: bool = False  # the host runs nothing and reports nothing
    cluster: str = ""  # full name of the GKE cluster
    taints: Sequence[Object] = field(default=())


@dataclass(frozen=True, slots=True)
class Rejection:
    reason: str
    message: str


class Admission:
    """Admission of pods, one at a time across all threads."""

    def __init__(self, api: Api, pods_on: Callable[[str], Iterable[tuple[Object, Path]]]) -> None:
        """Take `pods_on`, which returns the unfinished pods of a node and their folders."""
        self._api = api
        self._pods_on = pods_on
        self._lock = threading.Lock()

    def rejection(self, pod: Object, folder: Path, node: Node) -> Rejection | None:
        """Return why the node rejects the pod, or None if it admits it or already did."""
        if (folder / _MARK).exists():
            return None
        name = pod["spec"]["nodeName"]
        with self._lock:
            there = self._pods_on(name)
            others = [other for other, its in there if its != folder and (its / _MARK).exists()]
            refused = judge(pod, node, others)
            if refused and refused.reason in _NOT_A_NODE_FOR_IT:
                refused = judge(pod, self._as_it_is_now(name, node), others)
            if refused is None:
                (folder / _MARK).touch()
            return refused

    def _as_it_is_now(self, name: str, node: Node) -> Node:
        """Return the node with its live labels and taints, including manual changes."""
        try:
            live = self._api.get("Node", name)
        except NotFound:
            return node
        taints = live.get("spec", {}).get("taints", [])
        return Node(live["metadata"].get("labels", {}), node.allocatable, node.dead, node.cluster, taints)


def judge(pod: Object, node: Node, others: Iterable[Object]) -> Rejection | None:
    spec = pod["spec"]
    others = list(others)
    asked = node_fit.requests(spec)
    used = node_fit.added(node_fit.requests(other["spec"]) for other in others)
    there = {what: quantity(amount) for what, amount in node.allocatable.items()}
    chips = tpu_environment.RESOURCE
    if chips in there and asked.get(chips, 0) > (free := there[chips] - used.get(chips, 0)):
        want = f"Requested: {asked[chips]}, Available: {max(free, Decimal(0))}"
        why = f"requested number of devices unavailable for {chips}. {want}"
        return _rejected("UnexpectedAdmissionError", f"Allocate failed due to {why}, which is unexpected")
    if why := tpu_environment.refusal(pod, node.labels):
        return Rejection("UnexpectedAdmissionError", why)
    one_more = {"pods": Decimal(1), **asked}
    used["pods"] = Decimal(len(others))
    for what, amount in one_more.items():
        unknown_device = "/" in what and what not in there  # some resources belong to the cluster and to no node
        if amount and not unknown_device and amount + used.get(what, 0) > there.get(what, 0):
            figures = [_figure(what, of.get(what, Decimal(0))) for of in (one_more, used, there)]
            lack = "Node didn't have enough resource: {}, requested: {}, used: {}, capacity: {}"
            return _rejected(f"OutOf{what}", lack.format(what, *figures))
    if not node_fit.selects(spec, node.labels, spec["nodeName"]):
        return _rejected(
            "NodeAffinity", "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector"
        )
    if any(taint["effect"] == "NoExecute" and not node_fit.tolerates(spec, taint) for taint in node.taints):
        why = "node(s) had taints that the pod didn't tolerate"
        return _rejected("TaintToleration", f"Predicate TaintToleration failed: {why}")
    return None


def _rejected(reason: str, message: str) -> Rejection:
    return Rejection(reason, f"Pod was rejected: {message}")


def _figure(what: str, amount: Decimal) -> int:
    return int(amount * 1000 if what == "cpu" else amount)
