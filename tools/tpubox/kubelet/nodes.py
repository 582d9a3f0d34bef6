"""The nodes of this agent: the pools in a file, and their Nodes and Leases in the API server.

Pools are added and removed as a whole, or grow and shrink by hosts. Work that was in progress when the agent was killed
continues after a restart.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

from tpubox.kubelet import registered_pools
from tpubox.kubelet.admission import Node
from tpubox.kubelet.api_server import Api
from tpubox.kubelet.containers import write_json
from tpubox.kubelet.draining import PATIENCE_SECONDS
from tpubox.kubelet.registered_pools import Pool
from tpubox.kubelet.times import micro_stamp
from tpubox.pools.gke_labels import POOL
from tpukit.core.clock import Clock
from tpukit.core.errors import Conflict, Invalid, NotFound, Transient

FILE = "pools.json"
LEASES = "kube-node-lease"
LEASE_SECONDS = 40
IMPENDING = {"key": "cloud.google.com/impending-node-termination", "effect": "NoSchedule"}


class Presence(StrEnum):
    HERE = "here"
    LEAVING = "leaving"  # its pods are ending
    AWAY = "away"  # it has no nodes


@dataclass(slots=True)
class Record:
    """A pool and its state."""

    pool: Pool
    presence: Presence = Presence.HERE
    deadline: float = 0.0  # LEAVING: when its pods are killed
    removed: bool = False  # LEAVING: the pool is deleted afterwards
    budgets: bool = False  # LEAVING and removed: PodDisruptionBudgets are honoured
    stays_away: float | None = None  # seconds that it stays AWAY; None: until it is restored
    back_at: float | None = None
    lost: dict[str, float | None] = field(default_factory=dict)  # lost hosts, and when each returns
    hung: list[str] = field(default_factory=list)
    going: dict[str, float] = field(default_factory=dict)  # hosts being removed, and when their pods are killed

    def returns(self, now: float) -> bool:
        """Return whether the pool is due to return. GKE restores its own pools, when there are chips."""
        return (
            self.presence is Presence.AWAY
            and self.back_at is not None
            and now >= self.back_at
            and not self.pool.cluster
        )

    def to_json(self) -> dict[str, Any]:
        return {
            "pool": self.pool.to_json(),
            "presence": self.presence,
            "deadline": self.deadline,
            "removed": self.removed,
            "budgets": self.budgets,
            "stays_away": self.stays_away,
            "back_at": self.back_at,
            "lost": self.lost,
            "hung": self.hung,
            "going": self.going,
        }

    @staticmethod
    def from_json(doc: Mapping[str, Any]) -> Record:
        pool, presence = Pool.from_json(doc["pool"]), Presence(doc["presence"])
        return Record(pool, presence, **{key: doc[key] for key in doc if key not in ("pool", "presence")})


def written(file: Path) -> list[Record]:
    """Return the pools that an agent recorded."""
    known = json.loads(file.read_text(encoding="utf-8")) if file.exists() else []
    return [Record.from_json(doc) for doc in known]


class Nodes:
    def __init__(self, api: Api, file: Path, clock: Clock, address: str, port: int, version: str) -> None:
        self._api = api
        self._file = file
        self._clock = clock
        self._address, self._port, self._version = address, port, version
        self._lock = threading.RLock()
        self._records = {record.pool.key: record for record in written(file)}

    def pools(self) -> list[Record]:
        with self._lock:
            return list(self._records.values())

    @contextmanager
    def changed(self, key: str) -> Iterator[Record]:
        """Yield a pool to change, and save the changes."""
        with self._lock:
            if key not in self._records:
                raise NotFound(f"there is no pool {key}", hint=f"pools are: {', '.join(self._records) or 'none'}")
            yield self._records[key]
            self._write()

    def hosts(self, target: str) -> tuple[str, list[str]]:
        """Return the key of a pool and its hosts, by name or key of the pool or by name of one host.

        A host's name returns that host alone. A name that pools of several clusters share is an error.
        """
        with self._lock:
            named = [target] if target in self._records else []
            named = named or [key for key, record in self._records.items() if record.pool.name == target]
            if len(named) > 1:
                raise Invalid(f"{len(named)} pools are called {target}", hint=f"name one of {', '.join(named)}")
            if named:
                return named[0], list(self._records[named[0]].pool.nodes)
            for key, record in self._records.items():
                if target in record.pool.nodes:
                    return key, [target]
            raise NotFound(
                f"there is no pool or host {target}", hint=f"pools are: {', '.join(self._records) or 'none'}"
            )

    def node(self, name: str) -> Node | None:
        with self._lock:
            record = next((one for one in self._records.values() if name in one.pool.nodes), None)
            if record is None:
                return None
            dead = name in record.lost or record.presence is Presence.AWAY
            return Node(
                registered_pools.labels(record.pool, name),
                registered_pools.allocatable(record.pool),
                dead,
                record.pool.cluster,
                record.pool.taints,
            )

    def add(self, pool: Pool) -> None:
        """Add a pool or change its nodes. Idempotent.

        The pool's presence does not change: a preempted pool stays away. Surplus nodes are drained, like those of a
        deleted pool.
        """
        with self._lock:
            known = self._records.get(pool.key)
            if known is not None and known.removed:
                raise Conflict(f"pool {pool.name} is being removed", hint="add it after it is removed")
            if known is not None and known.pool.nodes != pool.nodes and pool.slice and pool.slice.hosts > 1:
                raise Conflict(f"slice {pool.name} exists with other hosts", hint="remove it first")
            before = known.pool if known is not None else None
            record = self._records.setdefault(pool.key, Record(pool))
            extra = {name: zone for name, zone in record.pool.nodes.items() if name not in pool.nodes}
            deadline = self._clock.now() + PATIENCE_SECONDS
            stay = [name for name in record.going if name in pool.nodes]
            record.going = {name: record.going.get(name, deadline) for name in extra}
            record.pool = replace(pool, nodes={**pool.nodes, **extra})
            self._write()
        if record.presence is Presence.HERE:
            self.register(record, before)
        for name, going in {**dict.fromkeys(stay, False), **dict.fromkeys(record.going, True)}.items():
            with suppress(NotFound):
                self.cordon(name, unschedulable=going)

    def forget(self, key: str) -> None:
        with self._lock:
            self._records.pop(key, None)
            self._write()

    def register(self, record: Record, before: Pool | None = None) -> None:
        """Create or update the Nodes of all live hosts of the pool.

        Labels and taints that only `before` had are removed; those that other clients added stay.
        """
        for name in _alive(record):
            document = registered_pools.node_document(record.pool, name)
            try:
                self._api.create(document)
            except Conflict:
                had = registered_pools.node_document(before, name) if before and name in before.nodes else document
                self._update(name, had, document)
            self.say(record, name, ready=True)
            self._renew(name)

    def _update(self, name: str, had: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
        labels = dict.fromkeys(had["metadata"]["labels"], None) | wanted["metadata"]["labels"]
        ours = [*had["spec"].get("taints", []), *wanted["spec"].get("taints", [])]
        there = self._api.get("Node", name).get("spec", {}).get("taints", [])
        taints = [*wanted["spec"].get("taints", []), *(taint for taint in there if _plain(taint) not in ours)]
        change = {"metadata": {"labels": labels}, **({"spec": {"taints": taints}} if taints != there else {})}
        self._api.patch("Node", name, change)

    def say(self, record: Record, name: str, *, ready: bool) -> None:
        status = registered_pools.node_status(
            record.pool, self._address, self._port, self._version, self._clock.now(), ready=ready
        )
        self._api.patch("Node", name, {"status": status}, part="status", way="strategic-merge")

    def unregister(self, record: Record) -> None:
        for name in record.pool.nodes:
            self._unregister_host(record, name)

    def drop(self, record: Record, name: str) -> None:
        """Remove a host from the pool."""
        self._unregister_host(record, name)
        with self.changed(record.pool.key):
            nodes = {other: zone for other, zone in record.pool.nodes.items() if other != name}
            record.pool = replace(record.pool, nodes=nodes)
            record.going.pop(name, None)
            record.lost.pop(name, None)

    def _unregister_host(self, record: Record, name: str) -> None:
        with suppress(NotFound):
            self.say(record, name, ready=False)
        self._api.delete("Node", name)
        self._api.delete("Lease", name, LEASES)

    def taint(self, name: str) -> None:
        """Taint a node that is about to be removed, so that no new pod is scheduled to it."""
        taints = self._api.get("Node", name).get("spec", {}).get("taints", [])
        if not any(taint["key"] == IMPENDING["key"] for taint in taints):
            self._api.patch("Node", name, {"spec": {"taints": [*taints, IMPENDING]}})

    def cordon(self, name: str, *, unschedulable: bool) -> None:
        self._api.patch("Node", name, {"spec": {"unschedulable": unschedulable}})

    def beat(self) -> None:
        """Renew the lease of every live host."""
        for record in self.pools():
            if record.presence is not Presence.AWAY:
                for name in _alive(record):
                    self._renew(name)

    def restore_missing(self) -> None:
        """Register hosts again whose Node was deleted or is not ready.

        Kubernetes marks a node as unreachable after missed heartbeats, until its kubelet reports that it is ready.
        """
        records = self.pools()
        selector = f"{POOL} in ({','.join(sorted({record.pool.name for record in records}))})"
        there = self._api.list("Node", labels=selector) if records else []
        ready = {node["metadata"]["name"] for node in there if _is_ready(node)}
        for record in records:
            if record.presence is Presence.HERE and any(name not in ready for name in _alive(record)):
                self.register(record)

    def _renew(self, name: str) -> None:
        spec = {
            "holderIdentity": name,
            "leaseDurationSeconds": LEASE_SECONDS,
            "renewTime": micro_stamp(self._clock.now()),
        }
        try:
            self._api.patch("Lease", name, {"spec": spec}, LEASES)
        except NotFound:
            metadata = {"name": name, "namespace": LEASES}
            lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec}
            try:
                with suppress(Conflict):  # a concurrent heartbeat created it
                    self._api.create(lease)
            except NotFound as error:  # the namespace does not exist yet
                raise Transient(f"no lease for {name}: {error}") from error

    def _write(self) -> None:
        write_json(self._file, [record.to_json() for record in self._records.values()])


def _is_ready(node: Mapping[str, Any]) -> bool:
    conditions = node.get("status", {}).get("conditions", [])
    return any((one["type"], one["status"]) == ("Ready", "True") for one in conditions)


def _plain(taint: Mapping[str, Any]) -> dict[str, Any]:
    """Return the taint as a pool writes it; the API server adds times to some."""
    return {key: value for key, value in taint.items() if key != "timeAdded"}


def _alive(record: Record) -> list[str]:
    return [name for name in record.pool.nodes if name not in record.lost and name not in record.going]
