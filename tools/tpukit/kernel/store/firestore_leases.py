"""Leases in Firestore: one document each, swapped by its update time, on the server's clock.

A document stays for a while after its lease is released, for its token: the next holder counts on from there. The token
of a new document is the server's time, so that tokens are not reused after an earlier document was removed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from tpukit.core.errors import Conflict
from tpukit.kernel.store import LAPSED_SECONDS, PRUNED, Holder, Lease, conflicts, mark, native
from tpukit.kernel.store.firestore_calls import TRIES, Calls, Refused
from tpukit.kernel.store.process import is_dead


class FirestoreLeases:
    _calls: Calls
    address: str

    def now(self) -> float:
        return self._calls.now()

    def acquire(self, name: str, holder: Holder, seconds: float) -> Lease | None:
        for _ in range(TRIES):
            snapshot, marked = self._calls.read([self._lease_document(name), self._mark_document()])
            self._refuse_if_moved(marked)
            now = snapshot.read_time.timestamp()
            last = decode(snapshot)
            held = last if last and last.ends > now else None
            mine = held is not None and held.holder.name == holder.name
            if held and not mine and not is_dead(held.holder):
                return None
            token = held.token if held and mine else (last.token if last else int(now * 1000)) + 1
            lease = Lease(name, holder, now + seconds, token)
            if self._swap(snapshot, lease):
                if not mine:
                    self._give_up_if_moved(lease)
                return lease
        return None  # with so many contenders, one of them has it

    def renew(self, lease: Lease, seconds: float) -> Lease:
        while True:
            snapshot = self._read(lease.name)
            if not _is_of(snapshot, lease):
                raise conflicts.lost(lease, decode(snapshot))
            longer = msgspec.structs.replace(lease, ends=snapshot.read_time.timestamp() + seconds)
            if self._swap(snapshot, longer):
                return longer

    def release(self, lease: Lease) -> None:
        free = msgspec.structs.replace(lease, ends=0.0)
        while True:
            snapshot = self._read(lease.name)
            if not _is_of(snapshot, lease) or self._swap(snapshot, free):
                return

    def revoke(self) -> None:
        from google.cloud.firestore_v1.base_query import FieldFilter

        held = FieldFilter("ends", ">", 0.0)
        for snapshot in self._calls.query(self._calls.client.collection("leases").where(filter=held)):
            if lease := decode(snapshot):
                self.release(lease)

    def prune(self) -> int:
        from google.cloud.firestore_v1.base_query import FieldFilter

        client = self._calls.client
        lapsed = FieldFilter("ends", "<", self.now() - LAPSED_SECONDS)
        count = 0
        for snapshot in self._calls.query(client.collection("leases").where(filter=lapsed).limit(PRUNED)):
            batch = client.batch()
            batch.delete(snapshot.reference, option=client.write_option(last_update_time=snapshot.update_time))
            try:
                self._calls.commit(batch)
                count += 1
            except Refused:
                continue  # a holder acquired it at this moment
        return count

    def lease(self, name: str) -> Lease | None:
        snapshot = self._read(name)
        lease = decode(snapshot)
        return lease if lease and lease.ends > snapshot.read_time.timestamp() and not is_dead(lease.holder) else None

    def leases(self) -> Sequence[Lease]:
        from google.cloud.firestore_v1.base_query import FieldFilter

        later = FieldFilter("ends", ">", self.now())
        snapshots = self._calls.query(self._calls.client.collection("leases").where(filter=later))
        leases = [lease for lease in map(decode, snapshots) if lease and not is_dead(lease.holder)]
        return sorted(leases, key=lambda lease: lease.name)

    def _lease_document(self, name: str) -> Any:
        return self._calls.client.collection("leases").document(native.to_id(name))

    def _mark_document(self) -> Any:
        return self._calls.client.collection(mark.COLLECTION).document(native.to_id(mark.KEY))

    def _refuse_if_moved(self, marked: Any) -> None:
        if marked.exists and (to := marked.to_dict().get("moved_to")):
            raise mark.moved(self.address, to)

    def _give_up_if_moved(self, lease: Lease) -> None:
        """Release the lease if this home was moved away from.

        A move sets the mark before it ends all leases, so a lease written later sees the mark.
        """
        marked = self._calls.read([self._mark_document()])[0]
        try:
            self._refuse_if_moved(marked)
        except Conflict:
            self.release(lease)
            raise

    def _read(self, name: str) -> Any:
        return self._calls.read([self._lease_document(name)])[0]

    def _swap(self, snapshot: Any, lease: Lease) -> bool:
        """Write a lease over the snapshot; return False if another process wrote it first."""
        client = self._calls.client
        batch = client.batch()
        fields = {"holder": msgspec.to_builtins(lease.holder), "ends": lease.ends, "token": lease.token}
        if snapshot.exists:
            batch.update(snapshot.reference, fields, option=client.write_option(last_update_time=snapshot.update_time))
        else:
            batch.create(snapshot.reference, fields)
        try:
            self._calls.commit(batch)
        except Refused:
            return False
        return True

    def _add_fence(self, batch: Any, lease: Lease, snapshot: Any, *, release: bool) -> None:
        """Add a condition to the batch: it fails if the lease changes hands before the commit.

        `release`: the batch also releases the lease.

        Raises:
            Conflict: The lease is no longer held.
        """
        if not _is_of(snapshot, lease) or snapshot.get("ends") <= snapshot.read_time.timestamp():
            raise conflicts.lost(lease, decode(snapshot))
        same = self._calls.client.write_option(last_update_time=snapshot.update_time)
        batch.update(snapshot.reference, {"token": lease.token, **({"ends": 0.0} if release else {})}, option=same)


def decode(snapshot: Any) -> Lease | None:
    if not snapshot.exists:
        return None
    return msgspec.convert(snapshot.to_dict() | {"name": native.from_id(snapshot.id)}, Lease)


def _is_of(snapshot: Any, lease: Lease) -> bool:
    """Report whether the lease was neither taken over nor released."""
    held = decode(snapshot)
    return held is not None and held.token == lease.token and held.ends > 0
