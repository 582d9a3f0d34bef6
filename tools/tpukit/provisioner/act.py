"""Carry out decisions through GKE. A call returns when GKE has accepted it; its outcome is observed."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress

from tpukit.core.clock import Clock
from tpukit.core.errors import Conflict, LeaseLost, NotFound, TpukitError, Transient
from tpukit.google.gke import Gke, NodePool, Operation
from tpukit.kube import Cluster
from tpukit.provisioner import pools
from tpukit.provisioner.decide import Cordon, Create, Delete
from tpukit.provisioner.pace import Pace
from tpukit.provisioner.pool_cache import PoolCache
from tpukit.provisioner.pool_names import CORDONED, UID

log = logging.getLogger("tpukit.provisioner")


class Actor:
    """Idempotent calls to GKE and Kubernetes. Safe from any thread."""

    def __init__(
        self,
        cluster: Cluster,
        gke: Gke,
        cache: PoolCache,
        pace: Pace,
        clock: Clock,
        leading: Callable[[], bool],
        done: Callable[[str, str], None] = lambda act, outcome: None,
    ) -> None:
        self._cluster, self._gke, self._cache, self._pace, self._clock = cluster, gke, cache, pace, clock
        self._leading = leading
        self._done = done  # called with the outcome of each call

    def act(self, name: str, act: Create | Delete | Cordon) -> None:
        if not self._leading():
            raise Conflict("another replica is the leader now")
        if isinstance(act, Cordon):
            self._cordon(act)
            return
        verb = "create" if isinstance(act, Create) else "delete"
        try:
            if isinstance(act, Create):
                self._create(name, act)
            else:
                self._delete(name, act)
        except TpukitError as error:
            self._done(verb, type(error).__name__)
            if isinstance(error, (Transient, Conflict)):
                self._cache.doubt()
            if isinstance(error, (Transient, Conflict)) and not isinstance(error, LeaseLost):
                self._pace.slow(self._clock.monotonic())
            raise
        self._done(verb, "accepted")
        why = act.reason if isinstance(act, Delete) else str(act.choice)
        log.info("%s node pool", verb, extra={"pool": name, "reason": why})

    def _create(self, name: str, act: Create) -> None:
        body = pools.body(name, act.need, act.choice, act.number, self._clock.now())
        try:
            operation = self._gke.create_pool(body)
        except Conflict as error:
            if isinstance(error, LeaseLost) or "already exists" not in str(error).lower():
                raise
            # An earlier call succeeded, though its response was lost.
            self._cache.doubt()
            return
        self._cache.created(_expected(body), operation)

    def _cordon(self, act: Cordon) -> None:
        value = "true" if act.on else None
        change = {"metadata": {"annotations": {CORDONED: value}}, "spec": {"unschedulable": act.on or None}}
        for host in act.hosts:
            with suppress(NotFound):
                self._cluster.patch("Node", host, change, uid=act.uids.get(host, ""))

    def _delete(self, name: str, act: Delete) -> None:
        if not act.labels.get(UID):  # the owner: a pool without one is not ours
            raise Conflict(f"node pool {name} has no label for its owner")
        operation: Operation | None = None
        with suppress(NotFound):
            operation = self._gke.delete_pool(name, act.labels)
        self._cache.deleted(name, operation)


def _expected(body: dict[str, object]) -> NodePool:
    """Return the pool as GKE will list it, until it does."""
    config = body["config"]
    assert isinstance(config, dict)
    return NodePool(str(body["name"]), "PROVISIONING", labels=config["labels"])
