"""Derive the slice that a leader pod waits for: from its selectors and chips, and the options of its JobSet. Pure.

A leader is the pod with completion index 0 of a Job of a JobSet. With exclusive placement, its followers are created
only when the leader has a host, so the leader represents the slice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tpukit.catalogue import Slice, slices
from tpukit.core import quantities
from tpukit.core.errors import Invalid, Problem
from tpukit.provisioner import pinning, settings
from tpukit.provisioner.pool_names import DISABLE, pool_name
from tpukit.provisioner.settings import DEFAULTS, Capacity, Options

GOOGLE = "cloud.google.com"
TPU = "google.com/tpu"
ACCELERATOR, TOPOLOGY = f"{GOOGLE}/gke-tpu-accelerator", f"{GOOGLE}/gke-tpu-topology"
COUNT = f"{GOOGLE}/gke-accelerator-count"
SPOT, FLEX_START = f"{GOOGLE}/gke-spot", f"{GOOGLE}/gke-flex-start"
PROVISIONING = f"{GOOGLE}/gke-provisioning"
"""Label with the value standard, spot or flex-start, which flavors of Kueue select by."""
RESERVATION, RESERVATION_PROJECT = f"{GOOGLE}/reservation-name", f"{GOOGLE}/reservation-project"
POOL = f"{GOOGLE}/gke-nodepool"
ZONE = "topology.kubernetes.io/zone"
PASSED_ON = (f"{GOOGLE}/gke-location-hint", f"{GOOGLE}/gke-tpu-ici-resiliency", f"{GOOGLE}/gke-tpu-auto-restart")
"""Google's labels that the creator of a pool may set."""
GIVEN = (
    ACCELERATOR, TOPOLOGY, COUNT, SPOT, FLEX_START, RESERVATION, RESERVATION_PROJECT, ZONE,
    PROVISIONING, f"{GOOGLE}/machine-family", "node.kubernetes.io/instance-type",
    "topology.kubernetes.io/region", "kubernetes.io/os", "kubernetes.io/arch",
)  # fmt: skip
"""Labels that GKE sets by itself."""


@dataclass(frozen=True, slots=True)
class Choice:
    """One way to create the pool; a JobSet may list several."""

    slice: Slice
    nodes: int
    zone: str
    capacity: Capacity

    def __str__(self) -> str:
        return f"{self.slice.name} ({self.slice.topology}), {self.capacity}, {self.zone}"


@dataclass(frozen=True, slots=True)
class Need:
    """A Job whose leader cannot be scheduled."""

    pool: str
    namespace: str
    jobset: str
    uid: str  # of the JobSet
    job: str
    pod: str
    pod_uid: str
    since: float
    message: str  # of the scheduler
    choices: tuple[Choice, ...]
    labels: Mapping[str, str] = field(default_factory=dict)  # that its nodes must have, besides those that GKE sets
    tolerated: tuple[tuple[str, str], ...] = ()  # keys and values of taints; an empty value: any
    options: Options = DEFAULTS
    selects_zone: bool = False  # the pods select it, so that no other zone works
    selects_capacity: bool = False


@dataclass(frozen=True, slots=True)
class Refusal:
    """A pod with an impossible request, and what to write instead."""

    namespace: str
    jobset: str
    uid: str
    job: str
    pod: str
    pod_uid: str
    text: str


def needed(
    pod: Mapping[str, Any], jobset: Mapping[str, Any], defaults: Options, zones: Sequence[str], since: float
) -> Need | Refusal | None:
    """Return the need of an unschedulable leader; None if it requests no TPU or opts out of the provisioner.

    `zones`: of the cluster, for JobSets that name none.
    """
    spec, meta, owner = pod["spec"], pod["metadata"], jobset["metadata"]
    chips = _chips(spec)
    if not chips or _disabled(meta) or _disabled(owner):
        return None
    problems: list[Problem] = []
    unmet = ""
    job = meta["labels"]["batch.kubernetes.io/job-name"]
    options = settings.of_jobset(defaults, owner.get("annotations") or {}, problems)
    selector = spec.get("nodeSelector") or {}
    shapes = _shapes(spec, selector, chips, problems)
    nodes = [_nodes(shape, _parallelism(jobset, meta["labels"]), problems) for shape in shapes]
    capacities = _capacities(selector, options)
    where = [selector[ZONE]] if ZONE in selector else list(options.zones or zones)
    choices = [
        Choice(shape, count, zone, capacity)
        for shape, count in zip(shapes, nodes, strict=True)
        for capacity in capacities
        for zone in where
        if _flexible(shape, capacity)
    ]
    if shapes and not choices and not problems:
        problems.append(_no_choice(shapes[0], where))
    name = pool_name(owner["name"], owner["uid"], job)
    possible = []
    for choice in choices:
        failing = pinning.unmet(spec, _labels(choice, name, selector))
        unmet = unmet or failing
        possible += [choice] if not failing else []
    if choices and not possible and not problems:
        problems.append(_pinned(unmet))
    common = {
        "namespace": meta["namespace"],
        "jobset": owner["name"],
        "uid": owner["uid"],
        "job": job,
        "pod": meta["name"],
        "pod_uid": meta["uid"],
    }
    if problems:
        return Refusal(**common, text=str(Invalid(problems)))
    return Need(
        name,
        **common,
        since=since,
        message=unschedulable(pod) or "",
        choices=tuple(possible),
        labels={key: value for key, value in selector.items() if _is_set_by_us(key)},
        tolerated=tuple((one.get("key") or "", one.get("value") or "") for one in spec.get("tolerations") or ()),
        options=options,
        selects_zone=ZONE in selector,
        selects_capacity=any(key in selector for key in (SPOT, FLEX_START, RESERVATION, PROVISIONING)),
    )


def unschedulable(pod: Mapping[str, Any]) -> str | None:
    """Return the scheduler's message about an unschedulable pod, or None for any other pod."""
    if pod["metadata"].get("deletionTimestamp") or (pod.get("status") or {}).get("phase") != "Pending":
        return None
    for condition in pod["status"].get("conditions") or ():
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            return condition.get("message") or "" if condition.get("reason") == "Unschedulable" else None
    return None


def _disabled(meta: Mapping[str, Any]) -> bool:
    return any((meta.get(part) or {}).get(DISABLE) == "true" for part in ("labels", "annotations"))


def _chips(spec: Mapping[str, Any]) -> int:
    total = 0
    for container in spec.get("containers") or ():
        resources = container.get("resources") or {}
        amount = (resources.get("requests") or {}).get(TPU) or (resources.get("limits") or {}).get(TPU)
        total += int(quantities.amount(amount)) if amount is not None else 0
    return total


def _shapes(
    spec: Mapping[str, Any], selector: Mapping[str, str], chips: int, problems: list[Problem]
) -> Sequence[Slice]:
    """Return the slices in the order in which the pod's node selector or node affinity terms name them."""
    shapes: list[Slice] = []
    for accelerator, topology in _pairs(spec, selector):
        for given, key in ((accelerator, ACCELERATOR), (topology, TOPOLOGY)):
            if not given:
                problems.append(Problem("nodeSelector", f"{key} is missing", "`tpu catalogue` lists both labels"))
        if not accelerator or not topology:
            return ()
        offered = [one for one in slices() if one.accelerator == accelerator and one.machine_type]
        if not offered:
            known = ", ".join(sorted({one.accelerator for one in slices() if one.accelerator}))
            problems.append(
                Problem("nodeSelector", f"there is no accelerator {accelerator!r}", f"write one of {known}")
            )
            continue
        alike = [one for one in offered if one.topology == topology]
        if not alike:
            sizes = ", ".join(dict.fromkeys(one.topology for one in offered[:8]))
            problems.append(
                Problem("nodeSelector", f"{accelerator} has no topology {topology!r}", f"write one of {sizes}, ...")
            )
            continue
        fitting = [one for one in alike if one.chips_per_host == chips]
        if not fitting:
            hosts = " or ".join(str(one.chips_per_host) for one in alike)
            problems.append(
                Problem("resources", f"a host of {topology} has {hosts} chips, not {chips}", f"write {TPU}: {hosts}")
            )
        shapes += [one for one in fitting if one not in shapes]
    return () if problems else shapes


def _pairs(spec: Mapping[str, Any], selector: Mapping[str, str]) -> Sequence[tuple[str, str]]:
    pinned = (selector.get(ACCELERATOR, ""), selector.get(TOPOLOGY, ""))
    affinity = ((spec.get("affinity") or {}).get("nodeAffinity") or {}).get(
        "requiredDuringSchedulingIgnoredDuringExecution"
    ) or {}
    pairs = []
    for term in affinity.get("nodeSelectorTerms") or ():
        values = {
            one["key"]: one.get("values") or []
            for one in term.get("matchExpressions") or ()
            if one.get("operator") == "In"
        }
        for accelerator in values.get(ACCELERATOR) or [pinned[0]]:
            for topology in values.get(TOPOLOGY) or [pinned[1]]:
                fits = accelerator == (pinned[0] or accelerator) and topology == (pinned[1] or topology)
                if fits and (accelerator, topology) not in pairs:
                    pairs.append((accelerator, topology))
    return pairs or [pinned]


def _parallelism(jobset: Mapping[str, Any], labels: Mapping[str, str]) -> int:
    name = labels.get("jobset.sigs.k8s.io/replicatedjob-name")
    for replicated in jobset["spec"].get("replicatedJobs") or ():
        if replicated.get("name") == name:
            return int(replicated["template"]["spec"].get("parallelism") or 1)
    return 1


def _nodes(shape: Slice, pods: int, problems: list[Problem]) -> int:
    """Return the pool's node count: all hosts of a slice, or one for each pod if the slice has a single host."""
    if shape.hosts == 1:
        return pods
    if pods > shape.hosts:
        hint = f"write parallelism: {shape.hosts} and completions: {shape.hosts}"
        problems.append(Problem("parallelism", f"{shape.topology} has {shape.hosts} hosts, not {pods}", hint))
    return shape.hosts


def _capacities(selector: Mapping[str, str], options: Options) -> Sequence[Capacity]:
    """Return the capacities to try. The pods' selectors override the JobSet's list, since they match no other nodes."""
    bought = selector.get(PROVISIONING)
    if selector.get(SPOT) == "true" or bought == "spot":
        return [Capacity("spot")]
    if selector.get(FLEX_START) == "true" or bought == "flex-start":
        return [Capacity("flex-start")]
    if name := selector.get(RESERVATION):
        project = selector.get(RESERVATION_PROJECT)
        return [Capacity("reservation", f"projects/{project}/reservations/{name}" if project else name)]
    if bought == "standard":
        standard = [one for one in options.capacity if one.kind in ("on-demand", "reservation")]
        return standard or [Capacity("on-demand")]
    return options.capacity


def _flexible(shape: Slice, capacity: Capacity) -> bool:
    """Return whether the capacity exists for a slice: no flex-start for v3 and v4.

    https://cloud.google.com/kubernetes-engine/docs/concepts/dws
    """
    return capacity.kind != "flex-start" or shape.generation not in ("v2", "v3", "v4")


def _no_choice(shape: Slice, zones: Sequence[str]) -> Problem:
    if not zones:
        return Problem(
            "zones",
            "no zone is configured for the pool",
            "set `zones` in the ConfigMap, or in an annotation of the JobSet",
        )
    return Problem(
        "capacity", f"flex-start does not offer {shape.generation}", "write spot, on-demand or reservation:NAME"
    )


def _labels(choice: Choice, pool: str, selector: Mapping[str, str]) -> Mapping[str, str | None]:
    """Return the labels that the pool's nodes will have, as far as they are known in advance."""
    kind, shape = choice.capacity.kind, choice.slice
    own = {key: value for key, value in selector.items() if _is_set_by_us(key)}
    bought = {PROVISIONING: kind} if kind in ("spot", "flex-start") else {}
    return {
        **own,
        **bought,
        ACCELERATOR: shape.accelerator,
        TOPOLOGY: shape.topology,
        ZONE: choice.zone,
        "topology.kubernetes.io/region": choice.zone.rpartition("-")[0],
        "node.kubernetes.io/instance-type": shape.machine_type,
        SPOT: "true" if kind == "spot" else None,
        FLEX_START: "true" if kind == "flex-start" else None,
        POOL: pool,
    }


def _pinned(unmet: str) -> Problem:
    what = f"{unmet}: no node of a new node pool would match, so no pool is created for the pod"
    hint = "remove it, or write a label of your own into nodeSelector: new node pools get those labels"
    return Problem("", what, hint)


def _is_set_by_us(key: str) -> bool:
    domain = key.partition("/")[0] if "/" in key else ""
    reserved = domain in ("kubernetes.io", "k8s.io", GOOGLE) or domain.endswith((".kubernetes.io", ".k8s.io"))
    return key not in GIVEN and (key in PASSED_ON or not reserved)
