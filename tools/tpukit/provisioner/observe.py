"""Observe a cluster: JobSets, leaders and hosts from a view of Kubernetes, pools and operations from GKE."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable, Mapping, Set
from dataclasses import replace
from datetime import datetime
from typing import Any

import msgspec

from tpukit.core.clock import Clock
from tpukit.core.errors import Transient
from tpukit.kube import Doc
from tpukit.provisioner import needs, pools
from tpukit.provisioner.decide import Create, Step
from tpukit.provisioner.needs import Need, Refusal
from tpukit.provisioner.observation import NEVER, JobSetState, Observation, Tries
from tpukit.provisioner.pool_cache import PoolCache
from tpukit.provisioner.pool_names import CORDONED, TRIES, pool_name
from tpukit.provisioner.settings import Settings
from tpukit.provisioner.view import View

JOBSET = "jobset.sigs.k8s.io/jobset-name"
JOBSET_UID = "jobset.sigs.k8s.io/jobset-uid"
JOB_NAME = "batch.kubernetes.io/job-name"
POOL = "cloud.google.com/gke-nodepool"
OCCUPIED_SECONDS = 30.0
"""Seconds between two checks whether foreign pods still use a pool that is to be removed."""
_TRIES = msgspec.json.Decoder(Tries)


class Observer:
    """An observer that remembers the history one observation lacks, such as since when a pool was not needed.

    Another replica can continue without that history: it waits a little longer.
    """

    def __init__(self, view: View, cache: PoolCache, zones: tuple[str, ...], clock: Clock) -> None:
        self._view, self._cache, self._zones, self._clock = view, cache, zones, clock
        self._lock = threading.Lock()  # `recorded` and `announced` are called by the threads that wrote
        # By pool, by the clock that cannot be set, since durations must not depend on the time of day.
        self._suspects: dict[str, float] = {}
        self._idle: dict[str, float] = {}
        self._missing: dict[str, float] = {}
        self._recorded: dict[str, Tries] = {}  # what the mirror may not show yet
        self._occupied: dict[str, tuple[float, tuple[str, ...]]] = {}  # pools with foreign pods, and when that was
        self._awaited: set[str] = set()  # pools to announce when they are ready

    def observe(self, settings: Settings, now: float) -> Observation:
        """Observe the cluster. Raise Transient if it has not been read yet."""
        trouble = self._view.trouble(self._clock.elapsed())
        if trouble.startswith("the cluster has not been read yet"):
            raise Transient(trouble)
        jobsets = {(one["metadata"]["namespace"], one["metadata"]["name"]): one for one in self._view.jobsets()}
        waiting = list(self._waiting(jobsets, settings))
        asked = tuple(one for one in waiting if isinstance(one, Need))
        self._cache.refresh(now, needed=bool(asked))
        nodes = self._view.nodes()
        return Observation(
            needs=asked,
            refusals=tuple(one for one in waiting if isinstance(one, Refusal)),
            pools=self._cache.pools,
            operations=self._cache.operations,
            jobsets={key: _state(one) for key, one in jobsets.items()},
            jobsets_known=not trouble,
            hosts_ready=_ready(nodes),
            hosts=_by_pool(nodes),
            host_uids={one["metadata"]["name"]: one["metadata"].get("uid", "") for one in nodes},
            cordoned=_by_pool(node for node in nodes if _is_cordoned(node)),
            seats=self._seats(jobsets, nodes),
            suspects=self._since(self._suspects, now),
            idle=self._since(self._idle, now),
            missing=self._since(self._missing, now),
            awaited=frozenset(self._awaited),
            tries=self._tries(jobsets),
        )

    def forget(self) -> None:
        """Forget the history of pools, because this replica no longer observes them."""
        self._suspects, self._idle, self._missing, self._occupied = {}, {}, {}, {}

    def _since(self, marks: Mapping[str, float], now: float) -> dict[str, float]:
        """Return the same moments on the clock that `decide` uses."""
        behind = now - self._clock.elapsed()
        return {name: at + behind for name, at in marks.items()}

    def recorded(self, pool: str, tries: Tries) -> None:
        """Remember tries that were written a moment ago."""
        with self._lock:
            self._recorded[pool] = tries

    def _tries(self, jobsets: Mapping[tuple[str, str], Doc]) -> dict[str, Tries]:
        mirrored = _tries(jobsets)
        with self._lock:
            newer = [pool for pool, tries in self._recorded.items() if tries.at > mirrored.get(pool, NEVER).at]
            self._recorded = {pool: self._recorded[pool] for pool in newer}
            return {**mirrored, **self._recorded}

    def with_foreign(self, seen: Observation, names: Iterable[str], vacant: Set[str] = frozenset()) -> Observation:
        """Add the foreign pods on the hosts of these pools.

        Read them now, except for pools that had some within OCCUPIED_SECONDS. On `vacant` pools, which have no leader,
        pods of the JobSet itself count as foreign too.
        """
        now = self._clock.elapsed()
        waiting = {name: pods for name, (at, pods) in self._occupied.items() if now - at < OCCUPIED_SECONDS}
        wanted = set(names)
        foreign = self._foreign(seen, wanted - waiting.keys(), vacant)
        self._occupied = {name: self._occupied[name] for name in waiting} | {
            name: (now, pods) for name, pods in foreign.items() if pods
        }
        return replace(seen, foreign={**foreign, **{name: waiting[name] for name in wanted & waiting.keys()}})

    def _foreign(self, seen: Observation, wanted: set[str], vacant: Set[str]) -> dict[str, tuple[str, ...]]:
        host_of = {
            one["metadata"]["name"]: one["metadata"]["labels"][POOL]
            for one in self._view.nodes()
            if one["metadata"]["labels"].get(POOL) in wanted
        }
        foreign: dict[str, list[str]] = {name: [] for name in wanted}
        for pod in self._view.pods() if host_of else ():
            pool = host_of.get((pod.get("spec") or {}).get("nodeName") or "")
            if pool is not None and _is_foreign(pod, seen, pool, vacant):
                foreign[pool].append(f"{pod['metadata']['namespace']}/{pod['metadata']['name']}")
        return {name: tuple(pods) for name, pods in foreign.items()}

    def remember(self, seen: Observation, steps: Mapping[str, Step]) -> None:
        at = self._clock.elapsed()
        self._suspects = {name: self._suspects.get(name, at) for name, step in steps.items() if step.unused}
        self._idle = {name: self._idle.get(name, at) for name, step in steps.items() if step.idle}
        self._missing = {name: self._missing.get(name, at) for name, step in steps.items() if step.missing}
        # A pool may exist before it was observed in PROVISIONING.
        asked = {name for name, step in steps.items() if isinstance(step.act, Create)}
        coming = {name for name, pool in seen.pools.items() if pool.status == "PROVISIONING"}
        with self._lock:
            self._awaited = (self._awaited & (steps.keys() | seen.pools.keys())) | asked | coming

    def announced(self, pool: str, reason: str) -> bool:
        """Return whether an announcement is news, and record it.

        Decisions may come to nothing, so only announced ones are not repeated: an overlapping round decides the same.
        """
        if reason != "NodePoolReady":
            return True
        with self._lock:
            news = pool in self._awaited
            self._awaited.discard(pool)
        return news

    def _waiting(self, jobsets: Mapping[tuple[str, str], Doc], settings: Settings) -> Iterable[Need | Refusal]:
        for pod in self._view.leaders():
            if needs.unschedulable(pod) is None:
                continue
            jobset = _jobset_of(pod, jobsets)
            if jobset is None or _state(jobset).state in ("completed", "failed"):
                continue
            need = needs.needed(pod, jobset, settings.options, self._zones, _since(pod))
            if need is not None:
                yield need

    def _seats(self, jobsets: Mapping[tuple[str, str], Doc], nodes: Iterable[Doc]) -> dict[str, str]:
        pool_of = {one["metadata"]["name"]: one["metadata"]["labels"].get(POOL, "") for one in nodes}
        seats: dict[str, str] = {}
        for pod in self._view.leaders():
            pool = pool_of.get(pod["spec"].get("nodeName") or "")
            if not pool or (pod.get("status") or {}).get("phase") not in ("Pending", "Running"):
                continue
            jobset = _jobset_of(pod, jobsets)
            if jobset is not None:
                meta = jobset["metadata"]
                seats[pool] = pool_name(meta["name"], meta["uid"], pod["metadata"]["labels"][JOB_NAME])
        return seats


def _jobset_of(pod: Doc, jobsets: Mapping[tuple[str, str], Doc]) -> Doc | None:
    """Return the pod's JobSet, and not a later one with its name."""
    labels = pod["metadata"].get("labels") or {}
    jobset = jobsets.get((pod["metadata"]["namespace"], labels.get(JOBSET, "")))
    if jobset is None or JOB_NAME not in labels:
        return None
    return jobset if labels.get(JOBSET_UID) in (None, jobset["metadata"]["uid"]) else None


def _state(jobset: Doc) -> JobSetState:
    meta, status = jobset["metadata"], jobset.get("status") or {}
    conditions = {one["type"]: one for one in status.get("conditions") or () if one["status"] == "True"}
    for kind, state in (("Completed", "completed"), ("Failed", "failed")):
        if kind in conditions:
            return JobSetState(meta["uid"], state, seconds(conditions[kind].get("lastTransitionTime")))
    if (jobset.get("spec") or {}).get("suspend"):
        since = (conditions.get("Suspended") or {}).get("lastTransitionTime") or meta.get("creationTimestamp")
        return JobSetState(meta["uid"], "suspended", seconds(since))
    return JobSetState(meta["uid"], "active", seconds(meta.get("creationTimestamp")))


def _tries(jobsets: Mapping[tuple[str, str], Doc]) -> dict[str, Tries]:
    tries = {}
    for jobset in jobsets.values():
        for key, value in (jobset["metadata"].get("annotations") or {}).items():
            if key.startswith(f"{TRIES}/"):
                try:
                    tries[key.partition("/")[2]] = _TRIES.decode(value)
                except msgspec.MsgspecError:
                    continue  # of another tool or version: start from the beginning
    return tries


def _ready(nodes: Iterable[Doc]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for node in nodes:
        conditions = (node.get("status") or {}).get("conditions") or ()
        if any(one["type"] == "Ready" and one["status"] == "True" for one in conditions):
            pool = node["metadata"]["labels"].get(POOL, "")
            counts[pool] = counts.get(pool, 0) + 1
    return counts


def _by_pool(nodes: Iterable[Doc]) -> dict[str, tuple[str, ...]]:
    hosts: dict[str, tuple[str, ...]] = {}
    for node in nodes:
        pool = node["metadata"]["labels"].get(POOL, "")
        hosts[pool] = (*hosts.get(pool, ()), node["metadata"]["name"])
    return hosts


def _is_cordoned(node: Doc) -> bool:
    """Return whether we cordoned a node; those that a person cordoned stay so."""
    marked = CORDONED in (node["metadata"].get("annotations") or {})
    return marked and bool((node.get("spec") or {}).get("unschedulable"))


def _is_foreign(pod: Doc, seen: Observation, pool: str, vacant: Set[str]) -> bool:
    """Return whether a pod is foreign. DaemonSets and the node itself have a pod on every host."""
    meta = pod["metadata"]
    if any(one.get("kind") in ("DaemonSet", "Node") for one in meta.get("ownerReferences") or ()):
        return False
    labels = meta.get("labels") or {}
    whose = pools.owner(seen.pools[pool]) if pool in seen.pools else None
    if whose is None or pool in vacant:
        return True
    own = (meta["namespace"], labels.get(JOBSET)) == (whose.namespace, whose.jobset)
    return not (own and labels.get(JOBSET_UID) in (None, whose.uid))


def _since(pod: Doc) -> float:
    for condition in pod["status"].get("conditions") or ():
        if condition["type"] == "PodScheduled":
            return seconds(condition.get("lastTransitionTime"))
    return 0.0


def seconds(stamp: Any) -> float:
    """Return an RFC 3339 time as seconds since the epoch, or 0 without one."""
    try:
        return datetime.fromisoformat(re.sub(r"(\.\d{6})\d+", r"\1", str(stamp))).timestamp()
    except ValueError:
        return 0.0
