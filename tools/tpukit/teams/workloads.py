"""A Workload, as Kueue keeps it for a job: its team, its requests, and its state."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from tpukit.core.quantities import amount
from tpukit.jobs.plan import Plan

Doc = Mapping[str, Any]

CHIPS = "google.com/tpu"
# "Preempted to accommodate a workload (UID: 1e1c…, JobUID: 7a32…) due to …"
_UID = re.compile(r"\(UID: ([-0-9a-f]+)")
_BY_CHECK = ("AdmissionCheck", "PodsReadyTimeout")


@dataclass(frozen=True, slots=True)
class Ask:
    """The summed requests of the pods of one kind, and the nodes that they require."""

    requests: Mapping[str, Decimal]
    selector: Mapping[str, str]
    absent: frozenset[str] = frozenset()  # labels that the nodes may not have
    tolerated: Sequence[Doc] = ()


def job(workload: Doc) -> str:
    """Return the name of the workload's JobSet or Job."""
    owners = workload["metadata"].get("ownerReferences", [])
    return str(owners[0]["name"] if owners else workload["metadata"]["name"])


def team(workload: Doc) -> str:
    return str(workload["metadata"]["namespace"])


def queue(workload: Doc) -> str:
    """Return the name of its LocalQueue."""
    return str(workload["spec"].get("queueName", ""))


def priority(workload: Doc) -> int:
    return int(workload["spec"].get("priority") or 0)


def priority_name(workload: Doc) -> str:
    """Return the priority's name; jobs without one have `medium`."""
    named = workload["spec"].get("priorityClassRef", {}).get("name")
    return str(named or ("medium" if priority(workload) == 0 else priority(workload)))


def created(workload: Doc) -> str:
    return str(workload["metadata"]["creationTimestamp"])


def condition(workload: Doc, kind: str) -> Doc | None:
    """Return a condition if it is true."""
    found = _condition(workload, kind)
    return found if found and found["status"] == "True" else None


def message(workload: Doc) -> str:
    """Return Kueue's own message about why it waits."""
    found = _condition(workload, "QuotaReserved")
    return str(found.get("message", "")) if found and found["status"] != "True" else ""


def ended(workload: Doc) -> bool:
    return condition(workload, "Finished") is not None


def leaves(workload: Doc) -> bool:
    """Return whether it is evicted and still has hosts."""
    return condition(workload, "Evicted") is not None and condition(workload, "QuotaReserved") is not None


def runs(workload: Doc) -> bool:
    """Return whether Kueue has admitted it; its hosts may not have started."""
    return condition(workload, "Admitted") is not None and not ended(workload) and not leaves(workload)


def waits(workload: Doc) -> bool:
    return not ended(workload) and not runs(workload)


def evicted(workload: Doc) -> Doc | None:
    """Return the condition of its last eviction, unless it runs again or has ended."""
    return None if runs(workload) or ended(workload) else condition(workload, "Evicted")


def since(workload: Doc) -> str:
    """Return when it last began to wait."""
    how = evicted(workload)
    return str(how["lastTransitionTime"]) if how else created(workload)


def evicted_by(workload: Doc, workloads: Iterable[Doc]) -> Doc | None:
    """Return the workload that took its slices, while it exists."""
    how = evicted(workload)
    said = _UID.search(str(how.get("message", ""))) if how else None
    return next((one for one in workloads if said and one["metadata"].get("uid") == said[1]), None)


def order(workload: Doc) -> tuple[int, str, str]:
    """Return the key of Kueue's order in one ClusterQueue: by priority, then by creation time.

    An evicted job keeps the place of its creation, except one whose own hosts did not come up.
    """
    how = evicted(workload)
    since = str(how["lastTransitionTime"]) if how and how.get("reason") in _BY_CHECK else created(workload)
    return -priority(workload), since, str(workload["metadata"].get("uid", ""))


def asks(workload: Doc) -> list[Ask]:
    """Return the requests of each kind of its pods."""
    return [
        Ask(
            {name: total * int(pods.get("count", 1)) for name, total in _pod(pods["template"]["spec"]).items()},
            pods["template"]["spec"].get("nodeSelector", {}),
            _absent(pods["template"]["spec"]),
            pods["template"]["spec"].get("tolerations", []),
        )
        for pods in workload["spec"]["podSets"]
    ]


def chips(workload: Doc) -> int:
    return int(sum(ask.requests.get(CHIPS, Decimal()) for ask in asks(workload)))


def held(workload: Doc) -> dict[tuple[str, str], Decimal]:
    """Return what it holds of each flavor's resources, by (flavor, resource)."""
    total: dict[tuple[str, str], Decimal] = {}
    for pods in workload.get("status", {}).get("admission", {}).get("podSetAssignments", []):
        for resource, flavor in pods.get("flavors", {}).items():
            used = amount(pods.get("resourceUsage", {}).get(resource, 0))
            total[flavor, resource] = total.get((flavor, resource), Decimal()) + used
    return total


def of_plan(plan: Plan) -> dict[str, Any]:
    """Return the Workload that Kueue will create for a job's JobSet, as far as quota matters."""
    from tpukit.jobs.render import documents

    jobset = next(one for one in documents(plan) if one["kind"] == "JobSet")
    pods = [
        {
            "count": int(one.get("replicas", 1)) * int(one["template"]["spec"].get("parallelism", 1)),
            "template": one["template"]["spec"]["template"],
        }
        for one in jobset["spec"]["replicatedJobs"]
    ]
    spec = {"queueName": plan.team, "podSets": pods}
    return {"metadata": {"name": plan.id, "namespace": plan.team}, "spec": spec}


def _absent(spec: Doc) -> frozenset[str]:
    required = (
        spec.get("affinity", {}).get("nodeAffinity", {}).get("requiredDuringSchedulingIgnoredDuringExecution", {})
    )
    terms = required.get("nodeSelectorTerms", [])
    rules = terms[0].get("matchExpressions", []) if len(terms) == 1 else []
    return frozenset(rule["key"] for rule in rules if rule["operator"] == "DoesNotExist")


def _pod(spec: Doc) -> dict[str, Decimal]:
    """Return a pod's requests as Kubernetes counts them: its containers' sum, or a larger one of an init container."""
    total: dict[str, Decimal] = {}
    for container in spec.get("containers", []):
        for name, text in _requests(container).items():
            total[name] = total.get(name, Decimal()) + amount(text)
    for container in spec.get("initContainers", []):
        for name, text in _requests(container).items():
            total[name] = max(total.get(name, Decimal()), amount(text))
    return total


def _requests(container: Doc) -> dict[str, str]:
    resources = container.get("resources", {})
    return {**resources.get("limits", {}), **resources.get("requests", {})}


def _condition(workload: Doc, kind: str) -> Doc | None:
    conditions: list[Doc] = workload.get("status", {}).get("conditions", [])
    return next((one for one in conditions if one["type"] == kind), None)
