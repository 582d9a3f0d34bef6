"""A pod's requirements of a node, as the scheduler and kubelets read them: labels, tolerations, amounts. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any

from tpubox.kubelet.env import quantity

Object = Mapping[str, Any]
Amounts = dict[str, Decimal]


def selects(spec: Object, labels: Mapping[str, str], name: str = "") -> bool:
    """Return whether the pod's nodeSelector and required node affinity allow the node.

    A node without a name is one that could be created.
    """
    required = spec.get("affinity", {}).get("nodeAffinity", {}).get("requiredDuringSchedulingIgnoredDuringExecution")
    selected = all(labels.get(key) == value for key, value in spec.get("nodeSelector", {}).items())
    return selected and (not required or any(_matches(term, labels, name) for term in required["nodeSelectorTerms"]))


def tolerates(spec: Object, taint: Object) -> bool:
    return any(_tolerates(one, taint) for one in spec.get("tolerations", []))


def requests(spec: Object) -> Amounts:
    """Return the peak requests of a pod; sidecars run beside all later containers."""
    sidecars: Amounts = {}
    peak: Amounts = {}
    for one in spec.get("initContainers", []):
        own = _of(one)
        peak = _most(peak, added([sidecars, own]))
        if one.get("restartPolicy") == "Always":
            sidecars = added([sidecars, own])
    together = _most(added([sidecars, *map(_of, spec["containers"])]), peak)
    whole = {what: quantity(str(amount)) for what, amount in spec.get("resources", {}).get("requests", {}).items()}
    overhead = {what: quantity(str(amount)) for what, amount in spec.get("overhead", {}).items()}
    return added([{**together, **whole}, overhead])


def added(amounts: Iterable[Mapping[str, Decimal]]) -> Amounts:
    found: Amounts = {}
    for one in amounts:
        for what, amount in one.items():
            found[what] = found.get(what, Decimal(0)) + amount
    return found


def _most(one: Amounts, other: Amounts) -> Amounts:
    zero = Decimal(0)
    return {what: max(one.get(what, zero), other.get(what, zero)) for what in {**one, **other}}


def _of(container: Object) -> Amounts:
    resources = container.get("resources", {})
    named = {**resources.get("limits", {}), **resources.get("requests", {})}
    return {what: quantity(str(amount)) for what, amount in named.items()}


def _matches(term: Object, labels: Mapping[str, str], name: str) -> bool:
    rules, fields = term.get("matchExpressions", []), term.get("matchFields", [])
    known = {"metadata.name": name} if name else {}
    return (
        bool(rules or fields)
        and all(_holds(rule, labels) for rule in rules)
        and all(bool(name) and _holds(rule, known) for rule in fields)
    )


def _holds(rule: Object, labels: Mapping[str, str]) -> bool:
    has, values = labels.get(rule["key"]), rule.get("values", [])
    match rule["operator"]:
        case "Exists":
            return has is not None
        case "DoesNotExist":
            return has is None
        case "In":
            return has in values
        case "NotIn":
            return has not in values
        case "Gt" | "Lt" as which if has is not None and has.lstrip("-").isdigit():
            return int(has) > int(values[0]) if which == "Gt" else int(has) < int(values[0])
    return False


def _tolerates(toleration: Object, taint: Object) -> bool:
    if (toleration.get("effect") or taint["effect"]) != taint["effect"]:
        return False
    if toleration.get("operator", "Equal") == "Exists":
        return bool((toleration.get("key") or taint["key"]) == taint["key"])
    return (toleration.get("key"), toleration.get("value", "")) == (taint["key"], taint.get("value", ""))
