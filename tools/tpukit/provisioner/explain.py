"""Explain what was done for a JobSet, what it waits for and what follows, with the controller's own decision."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tpukit.core.clock import Clock
from tpukit.core.errors import NotFound
from tpukit.core.quantities import counted
from tpukit.google.gke import Gke
from tpukit.kube import Cluster
from tpukit.provisioner import settings
from tpukit.provisioner.decide import Cordon, Create, Delete, Step, decide
from tpukit.provisioner.events import COMPONENT
from tpukit.provisioner.observation import NEVER
from tpukit.provisioner.observe import Observer
from tpukit.provisioner.pool_cache import PoolCache
from tpukit.provisioner.view import ListView


@dataclass(frozen=True, slots=True)
class Slice:
    """The state of one Job of the JobSet."""

    job: str
    pool: str
    state: str
    waits: str
    tried: str
    next: str


@dataclass(frozen=True, slots=True)
class Explanation:
    state: str
    slices: Sequence[Slice]
    impossible: Sequence[str]
    done: Sequence[tuple[str, str, str]]  # time, reason, sentence; oldest first


def explain(
    cluster: Cluster, gke: Gke, clock: Clock, where: tuple[str, str], jobset: tuple[str, str], zones: tuple[str, ...]
) -> Explanation:
    """Explain a JobSet, or raise NotFound.

    `where`: namespace and name of the ConfigMap. `jobset`: namespace and name.
    """
    view = ListView(cluster, *where)
    options = settings.of_config_map((view.config() or {}).get("data") or {})
    observer = Observer(view, PoolCache(gke, clock), zones, clock)
    now = clock.now()
    seen = observer.observe(options, now)
    if jobset not in seen.jobsets:
        raise NotFound(f"there is no JobSet {jobset[0]}/{jobset[1]}", hint="pass its namespace with -n")
    steps = decide(seen, options, now, options.max_operations)
    if unchecked := [name for name, step in steps.items() if step.unchecked]:
        steps = decide(observer.with_foreign(seen, unchecked), options, now, options.max_operations)
    own = [step for step in steps.values() if _whose(step) == jobset]
    return Explanation(
        seen.jobsets[jobset].state,
        [_slice(step, now) for step in own],
        [one.text for one in seen.refusals if (one.namespace, one.jobset) == jobset],
        _events(cluster, *jobset),
    )


def _whose(step: Step) -> tuple[str, str]:
    of = step.need or step.owner
    return (of.namespace, of.jobset) if of else ("", "")


def _slice(step: Step, now: float) -> Slice:
    of = step.need or step.owner
    tries = step.tries
    tried = (
        f"{tries.kind} {now - tries.at:.0f} s ago, {counted(tries.errors, 'error')}: {tries.why}"
        if tries != NEVER
        else ""
    )
    return Slice(of.job if of else "", step.pool, step.state, step.reason, tried, _next(step, now))


def _next(step: Step, now: float) -> str:
    if isinstance(step.act, Create):
        return f"a node pool is requested: {step.act.choice}"
    if isinstance(step.act, Delete):
        return f"the node pool is deleted: {step.act.reason}"
    if isinstance(step.act, Cordon):
        return "its hosts are cordoned, then the node pool is deleted" if step.act.on else "its hosts are uncordoned"
    if step.state == "stuck":
        return "nothing, until the JobSet is recreated or its annotation slice.provisioner.tpukit.dev/... is removed"
    if step.need and step.tries.not_before > now:
        choice = step.need.choices[step.tries.choice % len(step.need.choices)]
        return f"in {step.tries.not_before - now:.0f} s: {choice}"
    if step.state == "retained":
        return "the node pool is deleted when the JobSet is completed, failed or deleted"
    return "the provisioner continues when that has changed"


def _events(cluster: Cluster, namespace: str, jobset: str) -> Sequence[tuple[str, str, str]]:
    """Return each event once, with its latest time: some are on both the pod and the JobSet."""
    last: dict[tuple[str, str], str] = {}
    for one in cluster.list("Event", namespace):
        own = (one.get("source") or {}).get("component") == COMPONENT
        if own and _is_about(one.get("involvedObject") or {}, jobset):
            said = one.get("reason", ""), one.get("message", "")
            last[said] = max(last.get(said, ""), one.get("lastTimestamp") or "")
    return sorted((at, *said) for said, at in last.items())


def _is_about(thing: dict[str, str], jobset: str) -> bool:
    """Return whether an event is about the JobSet or its pods, which are named after it."""
    name = thing.get("name", "")
    return name == jobset or (thing.get("kind") == "Pod" and name.startswith(f"{jobset}-"))
