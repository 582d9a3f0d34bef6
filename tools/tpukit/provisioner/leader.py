"""Leader election over a Lease object, as in Kubernetes controllers: one replica acts, the others wait.

A leader that was suspended may still believe that it leads. `check` detects that immediately before each call that
changes something; if a create is sent nevertheless, the next leader finds the pool by its labels and removes it.
"""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime

from tpukit.core import fence
from tpukit.core.clock import Clock
from tpukit.core.errors import Conflict, LeaseLost, NotFound, TpukitError
from tpukit.kernel.store import Holder, Lease
from tpukit.kube import Cluster, Doc

SECONDS = 30.0
"""Duration of the lease. Calls end before it does: GKE takes several seconds to accept a create."""
_API = "coordination.k8s.io/v1"
log = logging.getLogger("tpukit.provisioner")


class Leadership:
    """Leadership, held or not; for the kernel, one lease for all keys. Safe from any thread."""

    def __init__(
        self,
        cluster: Cluster,
        namespace: str,
        name: str,
        holder: Holder,
        clock: Clock,
        *,
        seconds: float = SECONDS,
        changed: Callable[[bool], None] = lambda leading: None,
    ) -> None:
        self._cluster, self._namespace, self._name = cluster, namespace, name
        self._holder, self._clock, self._seconds = holder, clock, seconds
        self._changed = changed
        self._lock = threading.RLock()
        self._until = float("-inf")  # by this machine's clock, which includes suspended time
        self._token = 0
        self._seen: tuple[str, float] = ("", 0.0)  # another holder's last write, and when this replica first saw it
        self._rests = float("-inf")  # until then another replica may lead
        self._closed = threading.Event()

    def leading(self) -> bool:
        return self._left() > 0

    def hold(self, name: str) -> Lease | None:
        with self._lock:
            left = self._left()
            return Lease(name, self._holder, self._clock.now() + left, self._token) if left > 0 else None

    def check(self, lease: Lease) -> float:
        """Return the seconds for which the lease is certainly held, after renewing it if little of it is left.

        Raises:
            LeaseLost: Another replica has led since `lease` was given, or may lead now, or this one was suspended.
        """
        with self._lock:
            if self._left() < self._seconds / 3:
                self.renew()
            left = self._left()
            if left <= 0 or lease.token != self._token:
                raise LeaseLost("another replica is the leader, or may be: this one was suspended or disconnected")
            return left

    def lost(self, name: str) -> None:
        """Do nothing: one key says nothing about the lease, which the next renewal checks."""

    def release(self, *names: str) -> None:
        """Do nothing: one lease is for all keys."""

    def resign(self, *names: str) -> None:
        """Release the lease, and let other replicas lead before this one tries again."""
        with self._lock:
            self._rests = self._clock.elapsed() + 2 * self._seconds
            if self.leading():
                self._release()
                self._changed(False)  # noqa: FBT003 (a callback)

    def renew(self) -> bool:
        """Take the lease or prolong it, and return whether it is held now."""
        with self._lock, fence.held(lambda: math.inf):  # a check may trigger the renewal
            return self._renew()

    def _left(self) -> float:
        return self._until - self._clock.elapsed()

    def _renew(self) -> bool:
        began = self._clock.elapsed()
        if began < self._rests:
            return False
        before = self.leading()
        try:
            held = self._take()
        except Conflict:
            held, self._until = False, float("-inf")  # another replica was faster
        except TpukitError as error:
            log.warning("the lease could not be renewed", extra={"error": str(error)})
            held = before and self.leading()
        else:
            self._until = began + self._seconds * 2 / 3 if held else float("-inf")
        if held != before:
            self._changed(held)
        return held

    def keep(self) -> None:
        """Renew the lease in a background thread from now on."""
        threading.Thread(target=self._keep, name="leader", daemon=True).start()

    def close(self) -> None:
        """Release the lease, so that another replica does not have to wait for its end."""
        self._closed.set()
        with self._lock:
            if self.leading():
                self._release()

    def _release(self) -> None:
        self._until = float("-inf")
        with suppress(TpukitError), fence.held(lambda: math.inf):
            lease = self._cluster.get("Lease", self._name, self._namespace)
            if lease["spec"].get("holderIdentity") == self._holder.name:
                lease["spec"] |= {"holderIdentity": "", "leaseDurationSeconds": 1, "renewTime": self._stamp()}
                self._put(lease)

    def _keep(self) -> None:
        while not self._closed.wait(self._seconds / 3 if self.leading() else self._seconds / 6):
            self.renew()

    def _take(self) -> bool:
        try:
            lease = self._cluster.get("Lease", self._name, self._namespace, seconds=self._seconds / 3)
        except NotFound:
            self._create()
            return True
        spec = lease.get("spec") or {}
        other = spec.get("holderIdentity") or ""
        if other not in ("", self._holder.name) and not self._lapsed(spec):
            return False
        # A lapsed term is over, even if no other replica led: its decisions are out of date.
        new = other != self._holder.name or not self.leading()
        self._token = int(spec.get("leaseTransitions") or 0) + new
        self._put({**lease, "spec": self._spec(spec, self._token)})
        return True

    def _create(self) -> None:
        """Create the lease, and its namespace if nothing was deployed, as on a developer's machine."""
        meta = {"name": self._name, "namespace": self._namespace}
        lease = {"apiVersion": _API, "kind": "Lease", "metadata": meta, "spec": self._spec({}, 0)}
        try:
            self._cluster.create(lease)
        except NotFound:
            self._cluster.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self._namespace}})
            self._cluster.create(lease)

    def _lapsed(self, spec: Doc) -> bool:
        """Return whether the lease has lapsed, by our own clock since its last observed renewal: clocks differ."""
        mark = f"{spec.get('holderIdentity')} {spec.get('renewTime')}"
        if self._seen[0] != mark:
            self._seen = mark, self._clock.elapsed()
            return False
        return self._clock.elapsed() - self._seen[1] > float(spec.get("leaseDurationSeconds") or self._seconds)

    def _spec(self, before: Doc, token: int) -> Doc:
        mine = before.get("holderIdentity") == self._holder.name
        return {
            "holderIdentity": self._holder.name,
            "leaseDurationSeconds": max(1, round(self._seconds)),
            "acquireTime": before.get("acquireTime") if mine and before.get("acquireTime") else self._stamp(),
            "renewTime": self._stamp(),
            "leaseTransitions": token,
        }

    def _put(self, lease: Doc) -> None:
        """Write the lease. Raise Conflict if it has changed since it was read."""
        path = f"/apis/{_API}/namespaces/{self._namespace}/leases/{self._name}"
        self._cluster.call("PUT", path, body=lease, seconds=self._seconds / 3)

    def _stamp(self) -> str:
        at = datetime.fromtimestamp(self._clock.now(), UTC)
        return at.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
