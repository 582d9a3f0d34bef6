"""Decide what to do about each pool: from an observed cluster to one step with its reason for each pool. Pure.

Each slice has one pool, whose name follows from the Job. A pool is removed only if it carries our labels, has not been
needed for a while, and no foreign pod runs on its hosts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from tpukit.core.quantities import counted
from tpukit.google.gke import NodePool, Operation
from tpukit.provisioner import failures, pools
from tpukit.provisioner.needs import Choice, Need
from tpukit.provisioner.observation import GONE, NEVER, JobSetState, Observation, Tries
from tpukit.provisioner.pools import Owner
from tpukit.provisioner.settings import Settings

SETTLED = 600.0
"""Running time after which a pool's earlier failures are forgotten."""


_UNREAD = "no pool is removed while the cluster cannot be read"


@dataclass(frozen=True, slots=True)
class Create:
    need: Need
    choice: Choice
    number: int  # of the choice


@dataclass(frozen=True, slots=True)
class Delete:
    reason: str
    labels: Mapping[str, str] = field(default_factory=dict)  # of exactly this pool: a later one may have its name


@dataclass(frozen=True, slots=True)
class Cordon:
    """A cordon of a pool's hosts against foreign pods before its removal, or its end if the pool is to stay."""

    hosts: tuple[str, ...]
    on: bool
    uids: Mapping[str, str] = field(default_factory=dict)  # by host: GKE recreates a host under its name


@dataclass(frozen=True, slots=True)
class Step:
    pool: str
    state: str  # creating ready waiting stuck retained leaving removing
    reason: str  # a sentence
    act: Create | Delete | Cordon | None = None
    event: str = ""  # what happened, as a Kubernetes event reason; empty: nothing new
    before: Tries = NEVER  # the recorded tries
    tries: Tries = NEVER  # the tries to record
    need: Need | None = None
    owner: Owner | None = None
    since: float = 0.0  # what waits longest goes first
    unused: bool = False  # the pool is not needed
    idle: bool = False  # the pool is ready, and has no pod
    missing: bool = False  # the pool exists, and not all of its hosts are ready
    unchecked: bool = False  # to be removed, if no foreign pod is there


def decide(seen: Observation, settings: Settings, now: float, limit: int) -> Mapping[str, Step]:
    """Return each pool's step. `limit`: maximum number of operations under way."""
    steps: dict[str, Step] = {}
    running = {one.target: one for one in seen.operations if not one.done}
    for need in sorted(seen.needs, key=lambda need: (need.since, need.pool)):
        slot = _slot(need, seen.seats)
        if slot not in steps:
            steps[slot] = _needed(seen, need, slot, running.get(slot), settings, now)
    for name, pool in seen.pools.items():
        whose = pools.owner(pool)
        if whose is not None and name not in steps:
            steps[name] = _unneeded(seen, pool, whose, running.get(name), settings, now)
    steps = {name: _reopened(seen, step) for name, step in steps.items()}
    return _bounded(steps, limit - len(running))


def _slot(need: Need, seats: Mapping[str, str]) -> str:
    """Return the missing pool of a need.

    After a restart, jobs may run on each other's pools: then the pool of the job on this one's is the free one, and so
    on.
    """
    slot, passed = need.pool, {need.pool}
    while (sitting := seats.get(slot, "")) and sitting not in passed:
        slot = sitting
        passed.add(slot)
    return slot


def _needed(
    seen: Observation, need: Need, slot: str, running: Operation | None, settings: Settings, now: float
) -> Step:
    tries, pool = seen.tries.get(slot, NEVER), seen.pools.get(slot)
    # First attempts go before retries.
    since = max(need.since, tries.at)
    step = Step(slot, "waiting", "", before=tries, tries=tries, need=need, since=since)
    if pool is None:
        return _absent(seen, step, need, running, settings, now)
    whose = pools.owner(pool)
    if whose is None:
        why = f"node pool {slot} exists and was not created by the provisioner: rename that pool, or the JobSet"
        return replace(step, state="stuck", reason=why, event="NodePoolForeign")
    step = replace(step, owner=whose)
    if pool.status in GONE or (running and running.kind == "DELETE_NODE_POOL"):
        # GKE may fail to delete it: it has then still had no pod for the whole time.
        return replace(
            step, reason=f"node pool {slot} is being deleted, and recreated afterwards", idle=slot in seen.idle
        )
    if pool.status == "PROVISIONING" or (running and pool.status != "ERROR"):
        return replace(step, state="creating", reason=f"GKE is creating node pool {slot}", since=whose.created)
    if pool.status == "ERROR":
        return _broken(seen, step, need, f"{pool.message or 'GKE gives no reason'}", whose, settings, now)
    if not pools.fits(pool, need):
        why = f"node pool {slot} no longer matches the pod's request"
        gone = replace(step, state="leaving", reason=why, unused=True)
        return _delete(seen, replace(gone, state="removing"), why) if slot in seen.suspects else gone
    return _running(seen, step, need, pool, whose, settings, now)


def _running(
    seen: Observation, step: Step, need: Need, pool: NodePool, whose: Owner, settings: Settings, now: float
) -> Step:
    ready, slot = seen.hosts_ready.get(pool.name, 0), step.pool
    if ready < pool.nodes:
        missing = f"{ready} of {pool.nodes} hosts of node pool {slot} are ready"
        absent = replace(step, missing=True)
        if now - seen.missing.get(slot, now) > settings.node_timeout and not pool.flex_start:
            return _broken(seen, absent, need, f"{missing} after {settings.node_timeout:.0f} s", whose, settings, now)
        return replace(absent, state="creating", reason=missing, event=_became_ready(seen, pool))
    why = f"node pool {slot} is ready; the scheduler says: {need.message}"
    ready_step = replace(step, state="ready", reason=why, event=_became_ready(seen, pool), idle=True)
    waited = now - seen.idle.get(slot, now)
    # An earlier leader may have recorded that the pod did not come to exactly this pool.
    recorded = step.tries.kind == failures.UNUSED and step.tries.created == whose.created
    enough = waited >= (settings.removal_delay if recorded else settings.pod_timeout)
    return _idle(seen, ready_step, need, whose, waited, now) if enough else ready_step


def _idle(seen: Observation, step: Step, need: Need, whose: Owner, waited: float, now: float) -> Step:
    """Record a pool that its pod never came to, with the reason, and then remove it."""
    why = f"node pool {step.pool} has been ready for {waited / 60:.0f} min and its pod {need.pod} is not placed on it"
    if step.tries.kind == failures.UNUSED and step.tries.created == whose.created:
        why = step.tries.why
    elif step.tries.created != whose.created:
        if not seen.jobsets_known:
            return step
        tries = failures.unused(step.tries, f"{why}: {need.message}", len(need.choices), now, whose.created)
        again = f"the pool is deleted, and recreated at the earliest in {(tries.not_before - now) / 3600:.0f} h"
        said = f"{why}; the scheduler says: {need.message or 'nothing'}; {again}"
        return replace(step, reason=said, tries=tries, event=failures.event(tries))
    return _delete(seen, replace(step, state="removing", event=""), why)


def _became_ready(seen: Observation, pool: NodePool) -> str:
    return "NodePoolReady" if pool.name in seen.awaited and pool.status.startswith("RUNNING") else ""


def _absent(
    seen: Observation, step: Step, need: Need, running: Operation | None, settings: Settings, now: float
) -> Step:
    slot, tries = step.pool, step.tries
    if running:
        return replace(step, state="creating", reason=f"{running.kind} of node pool {slot} is under way")
    failed = failures.last_create(seen.operations, slot)
    if failed and failed.error and failed.name != tries.operation:  # done does not mean successful
        tries = failures.after(tries, failed.error, len(need.choices), slot, now, operation=failed)
        why = f"node pool {slot} could not be created: {failed.error}; {_next(tries, need, now)}"
        return replace(step, reason=why, tries=tries, event=failures.event(tries))
    if tries.errors >= settings.error_limit:
        why = f"node pool {slot} failed {counted(tries.errors, 'time')}, last: {tries.why}"
        return replace(step, state="stuck", reason=why, event="NodePoolGivenUp")
    if tries.at <= now < tries.not_before:  # a failure in the future was recorded by a clock that was ahead
        return replace(step, reason=f"{tries.kind}, next try in {tries.not_before - now:.0f} s: {tries.why}")
    if not seen.jobsets_known:
        return replace(step, reason=f"node pool {slot} will be created when the cluster can be read again")
    number = tries.choice % len(need.choices)
    choice = need.choices[number]
    why = f"creating node pool {slot}: {choice}"
    return replace(step, state="creating", reason=why, act=Create(need, choice, number), event="NodePoolCreating")


def _broken(
    seen: Observation, step: Step, need: Need, message: str, whose: Owner, settings: Settings, now: float
) -> Step:
    """Record a failure before removing the pool that shows it."""
    tries = step.tries
    if not seen.jobsets_known:
        return replace(step, reason=f"node pool {step.pool}: {message}; {_UNREAD}")
    if tries.created != whose.created:
        create = failures.last_create(seen.operations, step.pool)
        choices, made = len(need.choices), whose.created
        tries = failures.after(tries, message, choices, step.pool, now, operation=create, created=made)
        why = f"node pool {step.pool} failed, and is deleted: {message}; {_next(tries, need, now)}"
        return replace(step, tries=tries, event=failures.event(tries), reason=why)
    gone = replace(step, state="removing")
    return _delete(seen, gone, f"node pool {step.pool} is in ERROR: {message}")


def _next(tries: Tries, need: Need, now: float) -> str:
    wait = f" in {tries.not_before - now:.0f} s" if tries.not_before > now else ""
    return f"next is {need.choices[tries.choice % len(need.choices)]}{wait}"


def _unneeded(
    seen: Observation, pool: NodePool, whose: Owner, running: Operation | None, settings: Settings, now: float
) -> Step:
    """Decide about a pool that no pod waits for. Its JobSet may run on another pool and keep both."""
    jobset = seen.jobsets.get((whose.namespace, whose.jobset))
    tries = seen.tries.get(pool.name, NEVER)
    step = Step(pool.name, "retained", "", before=tries, tries=tries, owner=whose, since=now)
    why = _leaves(jobset, whose, seen.jobsets_known, settings, now)
    vacant = not why and _is_vacant(seen, pool, jobset)
    waited = now - seen.idle.get(pool.name, now)
    if vacant and waited >= settings.pod_timeout:
        why = f"node pool {pool.name} has been ready for {waited / 60:.0f} min and no pod is on it"
    if not why:
        event = _became_ready(seen, pool)
        settled = tries != NEVER and now - tries.at > SETTLED and pool.status == "RUNNING"
        said = f"node pool {pool.name} is ready" if event else f"JobSet {whose.namespace}/{whose.jobset} uses it"
        idle = vacant or (pool.status in GONE and pool.name in seen.idle)
        return replace(step, reason=said, event=event, tries=NEVER if settled else tries, idle=idle)
    if pool.status in GONE or running:
        return replace(step, state="removing", reason=f"{why}; node pool {pool.name} is {pool.status}")
    since = seen.suspects.get(pool.name, now)
    step = replace(step, state="leaving", since=since, unused=True, idle=vacant)
    young = 0 <= now - whose.created < settings.minimum_age  # below 0: created by a replica whose clock was ahead
    if now - since < settings.removal_delay or young:
        return replace(step, reason=f"{why}; the pool is deleted if this stays so")
    return _delete(seen, step, why)


def _is_vacant(seen: Observation, pool: NodePool, jobset: JobSetState | None) -> bool:
    """Return whether a pool could take a pod and has none. A suspended JobSet has a limit of its own."""
    ready = pool.status == "RUNNING" and 0 < pool.nodes <= seen.hosts_ready.get(pool.name, 0)
    return ready and pool.name not in seen.seats and jobset is not None and jobset.state == "active"


def _leaves(jobset: JobSetState | None, whose: Owner, known: bool, settings: Settings, now: float) -> str:
    """Return why a pool is no longer needed, or "" if it is needed or that is unknown."""
    name = f"JobSet {whose.namespace}/{whose.jobset}"
    if jobset is None:
        return f"{name} was deleted" if known else ""
    if jobset.uid != whose.uid:
        return f"{name} was deleted, and another JobSet has its name"
    if jobset.state in ("completed", "failed"):
        return f"{name} has {jobset.state}"
    if jobset.state == "suspended" and now - jobset.since > settings.suspended_grace:
        return f"{name} has been suspended for more than {settings.suspended_grace:.0f} s"
    return ""


def _delete(seen: Observation, step: Step, why: str) -> Step:
    if not seen.jobsets_known:
        return replace(step, reason=f"{why}; {_UNREAD}")
    if seen.foreign is None or step.pool not in seen.foreign:
        return replace(step, reason=why, unchecked=True)
    cordoned = seen.cordoned.get(step.pool, ())
    if pods := seen.foreign[step.pool]:
        shown = ", ".join(pods[:3]) + (", ..." if len(pods) > 3 else "")
        act = _cordon(seen, cordoned, on=False) if cordoned else None
        return replace(step, reason=f"{why}; but the pool is in use by {shown}", act=act)
    if free := tuple(host for host in seen.hosts.get(step.pool, ()) if host not in cordoned):
        return replace(step, reason=f"{why}; its hosts are cordoned", act=_cordon(seen, free, on=True))
    removal = Delete(why, pools.identity(seen.pools[step.pool]))
    return replace(step, state="removing", reason=why, act=removal, event="NodePoolDeleting")


def _reopened(seen: Observation, step: Step) -> Step:
    """Uncordon a pool that is to stay after all."""
    cordoned = seen.cordoned.get(step.pool, ())
    stays = step.state in ("retained", "ready", "creating") and step.act is None
    return replace(step, act=_cordon(seen, cordoned, on=False)) if cordoned and stays else step


def _cordon(seen: Observation, hosts: tuple[str, ...], *, on: bool) -> Cordon:
    return Cordon(hosts, on, {host: seen.host_uids[host] for host in hosts if host in seen.host_uids})


def _bounded(steps: Mapping[str, Step], free: int) -> Mapping[str, Step]:
    """Limit the operations under way; those that wait longest go first."""
    operations = [one for one in steps.values() if isinstance(one.act, (Create, Delete))]
    line: Sequence[Step] = sorted(operations, key=lambda one: (one.since, one.pool))
    bounded = dict(steps)
    for step in line[max(0, free) :]:
        why = f"{step.reason}; waiting for other operations to end"
        bounded[step.pool] = replace(step, act=None, event="", state="waiting", reason=why)
    return bounded
