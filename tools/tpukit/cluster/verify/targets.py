"""The jobs of a verification, from the nodes that exist. Pure.

A job cannot name its pool. So one job for each pool is sent at once, and each holds its slice until all have reported:
then each ran on another pool.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tpukit.catalogue import Slice, slices
from tpukit.cluster.busy_pools import POOL_LABEL
from tpukit.cluster.verify.checks import Network, Target
from tpukit.jobs.render.node_labels import RESERVED
from tpukit.jobs.render.pool_kinds import PoolKind, of_selector

Doc = Mapping[str, Any]
_COUNT = "cloud.google.com/gke-accelerator-count"
_ALONE = ("v2", "v3")  # https://cloud.google.com/tpu/docs/multislice-introduction


@dataclass(frozen=True, slots=True)
class Pool:
    name: str
    kind: PoolKind
    ready: int  # hosts

    @property
    def whole(self) -> bool:
        return self.ready >= self.kind.shape.hosts


@dataclass(frozen=True, slots=True)
class Job:
    """A job to send: its target, and how the hardware of its pools is bought."""

    target: Target
    capacity: str

    @property
    def hosts(self) -> int:
        return self.target.slices * self.target.shape.hosts


def pools(nodes: Iterable[Doc]) -> list[Pool]:
    """Return the pools of TPU slices among these nodes, by name."""
    found: dict[str, Pool] = {}
    for node in nodes:
        labels = node["metadata"].get("labels", {})
        name = labels.get(POOL_LABEL, "")
        if name and name not in found and (kind := of_selector(labels)):
            found[name] = Pool(name, replace(kind, shape=_on(kind.shape, labels)), 0)
        if name in found:
            found[name] = replace(found[name], ready=found[name].ready + _is_ready(node))
    return [found[name] for name in sorted(found)]


def of_each(pools: Sequence[Pool], network: Callable[[Slice], Network]) -> list[Job]:
    """Return a job for each whole pool."""
    return [job_of(pool, network) for pool in pools if pool.whole]


def of_two(pools: Sequence[Pool], network: Callable[[Slice], Network]) -> list[Job]:
    """Return a job over two slices for each kind of pool that there are two of and that GKE joins."""
    kinds: dict[str, list[Pool]] = {}
    for pool in pools:
        if pool.whole and pool.kind.shape.hosts > 1 and pool.kind.shape.generation not in _ALONE:
            kinds.setdefault(_kind(pool), []).append(pool)
    return [job_of(same[0], network, 2) for same in kinds.values() if len(same) > 1]


def job_of(pool: Pool, network: Callable[[Slice], Network], count: int = 1) -> Job:
    shape = pool.kind.shape
    name = pool.name if count == 1 else str(pool.kind)
    return Job(Target(name, shape, count, network(shape)), pool.kind.capacity)


def alike(pools: Sequence[Pool], name: str) -> list[Pool]:
    """Return the pools on which a job for this pool may run. None if there is no such pool."""
    kind = next((_kind(pool) for pool in pools if pool.name == name), None)
    return [pool for pool in pools if _kind(pool) == kind]


def ran_on(nodes: Iterable[Doc], names: Iterable[str]) -> list[str]:
    """Return the pools of the nodes with these names."""
    pool_of = {node["metadata"]["name"]: node["metadata"].get("labels", {}).get(POOL_LABEL, "") for node in nodes}
    return sorted({pool for name in names if (pool := pool_of.get(name, ""))})


def located(jobs: Sequence[Job], seen: Sequence[Sequence[str]]) -> list[Job]:
    """Return the jobs with the pools on which they ran. Jobs that did not run get the names that are left."""
    taken = {pools[0] for pools in seen if len(pools) == 1}
    left: dict[tuple[str, str], list[str]] = {}
    for job in jobs:
        if job.target.slices == 1 and job.target.pool not in taken:
            left.setdefault(_shape(job), []).append(job.target.pool)
    found = []
    for job, pools in zip(jobs, seen, strict=True):
        if job.target.slices > 1:
            found.append(job)
        elif len(pools) == 1:
            found.append(replace(job, target=replace(job.target, pool=pools[0])))
        else:
            found.append(replace(job, target=replace(job.target, pool=left[_shape(job)].pop(0))))
    return found


def capacity(word: str) -> str | dict[str, str]:
    """Return how hardware is bought, as a job file states it."""
    return {"reservation": word.removeprefix(RESERVED)} if word.startswith(RESERVED) else word


def _shape(job: Job) -> tuple[str, str]:
    return f"{job.target.shape.name} {job.target.shape.machine_type}", job.capacity


def _kind(pool: Pool) -> str:
    return f"{pool.kind.flavor} {pool.kind.shape.machine_type}"


def _on(shape: Slice, labels: Mapping[str, str]) -> Slice:
    """Return the slice on hosts with this number of chips: one topology may come on two machine types."""
    same = (one for one in slices() if (one.accelerator, one.topology) == (shape.accelerator, shape.topology))
    return next((one for one in same if str(one.chips_per_host) == labels.get(_COUNT)), shape)


def _is_ready(node: Doc) -> bool:
    conditions = node.get("status", {}).get("conditions", [])
    ready = any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)
    return ready and not node.get("spec", {}).get("unschedulable")
