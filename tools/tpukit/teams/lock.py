"""A Lease that allows one change of quotas at a time.

Kueue hands out what its queues say, and quotas are in several of them. Two processes that read the queues at once could
each give away the same slices. Only the holder of the Lease may write; others wait. A Lease is taken over once it has
not changed for as long as it is valid, by the clock of the waiting process.
"""

from __future__ import annotations

import os
import socket
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Protocol

from tpukit.core import waiting
from tpukit.core.clock import Clock
from tpukit.core.errors import Conflict, NotFound, NotYet

NAME, NAMESPACE = "tpukit-quotas", "kueue-system"
VALID_SECONDS = 30.0
PATIENCE_SECONDS = 120.0
_POLL_SECONDS = 0.5


class Leases(Protocol):
    """The cluster operations that the lock needs."""

    def get(self, kind: str, name: str, namespace: str = "") -> dict[str, Any]: ...
    def create(self, document: dict[str, Any]) -> dict[str, Any]: ...
    def replace(self, document: dict[str, Any]) -> dict[str, Any]: ...


@dataclass(slots=True)
class QuotaLock:
    """A held lock. `check` it before each write: it raises Conflict after a takeover."""

    cluster: Leases
    clock: Clock
    lease: dict[str, Any]
    renewed: float = field(default=0.0)

    def check(self) -> None:
        if self.clock.now() - self.renewed > VALID_SECONDS / 3:
            try:
                self.lease = self.cluster.replace(_lease(self.lease, _holder(self.lease), self.clock))
            except (Conflict, NotFound) as error:
                raise Conflict(
                    "another process is changing quotas", hint="run the command again: no change was lost"
                ) from error
            self.renewed = self.clock.now()


@contextmanager
def held(cluster: Leases, clock: Clock, say: Callable[[str], None] = waiting.silent) -> Iterator[QuotaLock]:
    lock = _taken(cluster, clock, say)
    try:
        yield lock
    finally:
        with suppress(Conflict, NotFound):  # taken over
            cluster.replace(_lease(lock.lease, "", clock))


def _taken(cluster: Leases, clock: Clock, say: Callable[[str], None]) -> QuotaLock:
    me = f"{socket.gethostname()}/{os.getpid()}/{uuid.uuid4().hex[:8]}"
    began, told = clock.now(), False
    version, since = "", 0.0
    while True:
        with suppress(Conflict):  # another process was faster
            try:
                lease = cluster.get("Lease", NAME, NAMESPACE)
            except NotFound:
                made = cluster.create(_lease({"metadata": {}}, me, clock))
                return QuotaLock(cluster, clock, made, clock.now())
            if lease["metadata"]["resourceVersion"] != version:
                version, since = lease["metadata"]["resourceVersion"], clock.now()
            if not _holder(lease) or clock.now() - since > VALID_SECONDS:
                return QuotaLock(cluster, clock, cluster.replace(_lease(lease, me, clock)), clock.now())
            if clock.now() - began > waiting.TELL_SECONDS and not told:
                say(f"waiting for {_holder(lease)}, which is changing quotas, for up to {PATIENCE_SECONDS:.0f} s")
                told = True
            if clock.now() - began > PATIENCE_SECONDS:
                what = f"quotas are being changed by {_holder(lease)} since {lease['spec'].get('renewTime', 'a while')}"
                raise NotYet(what, hint="run the command again in a minute")
        clock.sleep(_POLL_SECONDS)


def _holder(lease: dict[str, Any]) -> str:
    return str(lease.get("spec", {}).get("holderIdentity") or "")


def _lease(before: dict[str, Any], holder: str, clock: Clock) -> dict[str, Any]:
    version = before["metadata"].get("resourceVersion")
    now = datetime.fromtimestamp(clock.now(), UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    metadata = {"name": NAME, "namespace": NAMESPACE, "labels": {"app.kubernetes.io/managed-by": "tpukit"}}
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {**metadata, **({"resourceVersion": version} if version else {})},
        "spec": {"holderIdentity": holder, "leaseDurationSeconds": int(VALID_SECONDS), "renewTime": now},
    }
