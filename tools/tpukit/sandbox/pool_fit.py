"""Whether a pod would find a place on a node of a pool that is there, or could be. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from tpukit.sandbox.agent.env import quantity

Object = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Scalable:
    """A pool, and a node of it as it is or would be."""

    full: str  # its name in Google's APIs
    labels: Mapping[str, str]
    taints: Sequence[Object]
    allocatable: Mapping[str, str]
    size: int  # nodes in each zone
    least: int
    most: int
    all_or_none: bool  # all of its nodes or none
    group: str = ""  # address of its instance group
    unfilled: str = ""  # why its last growth came to nothing
    queued: bool = False  # its nodes come for a ProvisioningRequest alone

    @property
    def next_size(self) -> int:
        return self.most if self.all_or_none else self.size + 1

    @property
    def zone(self) -> str:
        return self.group.partition("/zones/")[2].partition("/")[0]


def fits(pod: Object, pool: Scalable) -> bool:
    return not misfit(pod, pool)


def misfit(pod: Object, pool: Scalable) -> str:
    """Why the pod would find no place on a node of the pool, in the scheduler's words; empty where it would."""
    spec = pod["spec"]
    required = spec.get("affinity", {}).get("nodeAffinity", {}).get("requiredDuringSchedulingIgnoredDuringExecution")
    selected = all(pool.labels.get(key) == value for key, value in spec.get("nodeSelector", {}).items())
    if not selected or (required and not any(_matches(term, pool) for term in required["nodeSelectorTerms"])):
        return "node(s) didn't match Pod's node affinity/selector"
    closed = [taint for taint in pool.taints if taint["effect"] != "PreferNoSchedule"]
    for taint in closed:
        if not any(_tolerates(one, taint) for one in spec.get("tolerations", [])):
            return f"node(s) had untolerated taint {{{taint['key']}: {taint.get('value', '')}}}"
    for what, amount in _requests(spec).items():
        if amount > quantity(pool.allocatable.get(what, "0")):
            return f"Insufficient {what}"
    return ""


def _matches(term: Object, pool: Scalable) -> bool:
    """A term with what the box does not know (names of nodes, Gt, Lt) matches nothing: nodes of it are not made."""
    rules = term.get("matchExpressions", [])
    return bool(rules) and "matchFields" not in term and all(_holds(rule, pool.labels) for rule in rules)


def _holds(rule: Object, labels: Mapping[str, str]) -> bool:
    has = labels.get(rule["key"])
    if rule["operator"] in ("Exists", "DoesNotExist"):
        return (has is not None) is (rule["operator"] == "Exists")
    if rule["operator"] == "In":
        return bool(has in rule["values"])
    return bool(rule["operator"] == "NotIn" and has not in rule["values"])


def _tolerates(toleration: Object, taint: Object) -> bool:
    if toleration.get("effect", taint["effect"]) != taint["effect"]:
        return False
    if toleration.get("operator", "Equal") == "Exists":
        return bool(toleration.get("key", taint["key"]) == taint["key"])
    return (toleration.get("key"), toleration.get("value", "")) == (taint["key"], taint.get("value", ""))


def _requests(spec: Object) -> dict[str, Decimal]:
    found: dict[str, Decimal] = {}
    for container in spec["containers"]:
        resources = container.get("resources", {})
        for what, amount in {**resources.get("limits", {}), **resources.get("requests", {})}.items():
            found[what] = found.get(what, Decimal(0)) + quantity(str(amount))
    return found
