"""Claims on jobs: a store lease for each, taken before the record changes and checked with every write.

Nothing waits for a lock. A worker claims the first job, so a single worker runs jobs first in, first out within a
priority. A worker that loses this race claims others near the front at random: workers that all want the next one would
mostly lose again. The lease's token fences: a worker that was silent for longer than its lease cannot write, because
the supervisor takes the lease over before it gives the job to another worker.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from tpukit.code_queue import decide
from tpukit.code_queue.decide import Outcome
from tpukit.code_queue.records import PENDING, RUNNING, TPU_JOBS, QueuedJob, is_number
from tpukit.core.errors import Conflict, Invalid, NotFound
from tpukit.kernel.store import Entry, Event, Holder, Lease, Store

SECONDS = 45.0
"""Duration of a lease: how long a remote worker may be silent. A dead worker on this machine loses it at once."""
FRONT = 20


@dataclass(frozen=True, slots=True)
class Claim:
    entry: Entry[QueuedJob]
    lease: Lease

    @property
    def key(self) -> str:
        return self.entry.key


def lease_name(key: str) -> str:
    return f"{TPU_JOBS.name}/{key}"


def take(
    store: Store, holder: Holder, dice: random.Random, accept: Callable[[QueuedJob], bool] = lambda job: True
) -> Claim | None:
    """Claim a job from the front of the queue; None if there is nothing to do. `holder` claims one at a time."""
    now = store.now()
    for page in _pages(store):
        ready = [entry for entry in page if decide.claimable(entry.value, now) and accept(entry.value)]
        for entry in (*ready[:1], *_shuffled(ready[1:], dice)):
            try:
                claimed = take_one(store, holder, entry)
            except Invalid as error:  # the document is invalid: end this job and continue with those behind it
                end_unfit(store, entry, entry.value, str(error))
                continue
            if claimed:
                return claimed
    return None


def take_one(store: Store, holder: Holder, entry: Entry[QueuedJob]) -> Claim | None:
    """Claim this job, unless another worker has it or was faster.

    If the response is lost, the job may be claimed nevertheless: it is then resumed like that of a dead worker.
    """
    now = store.now()
    running = decide.claim(entry.value, holder.name, now)
    note = Event(now, f"runs on {holder.name}")
    claimed = store.claim(TPU_JOBS, entry, running, lease_name(entry.key), holder, SECONDS, events=[note])
    return Claim(*claimed) if claimed else None


def finish(store: Store, claim: Claim, outcome: Outcome) -> QueuedJob | None:
    """Write the outcome; return None if this worker no longer holds the job."""
    return _write(store, claim, lambda job, now: decide.finish(claim.key, job, outcome, now))


def give_back(store: Store, claim: Claim) -> QueuedJob | None:
    return _write(store, claim, decide.give_back)


def revoke(store: Store, holder: Holder, key: str) -> bool:
    """Take the lease so that a former holder can no longer write. Return False while a live worker has it."""
    lease = store.acquire(lease_name(key), holder, SECONDS)
    if lease is None:
        return False
    store.release(lease)
    return True


def end_unfit(
    store: Store, entry: Entry[QueuedJob], job: QueuedJob, why: str, *, claim: Claim | None = None
) -> QueuedJob | None:
    """End a job whose document cannot be written unchanged. Return None if another process was faster."""
    now = store.now()
    smaller, ended = decide.unfit(entry, job, why, now)
    lease, note = claim.lease if claim else None, Event(now, f"failed: {ended.error}"[:500])
    try:
        store.put(TPU_JOBS, smaller, ended, lease=lease, release=lease is not None, events=[note])
    except Conflict:
        return None
    return ended


def _write(store: Store, claim: Claim, following: Callable[[QueuedJob, float], QueuedJob]) -> QueuedJob | None:
    entry = claim.entry
    while True:
        now = store.now()
        job = following(entry.value, now)
        note = f"{job.status}: {job.error or job.reason}" if job.status != PENDING else f"waits again: {job.reason}"
        try:
            store.put(TPU_JOBS, entry, job, lease=claim.lease, release=True, events=[Event(now, note[:500])])
        except Conflict:
            fresh = _still_ours(store, claim)
            if fresh is None:
                return None
            entry = fresh  # the application changed the document meanwhile
        else:
            return job


def _still_ours(store: Store, claim: Claim) -> Entry[QueuedJob] | None:
    held = store.lease(claim.lease.name)
    if held is None or held.token != claim.lease.token:
        return None
    try:
        entry = store.get(TPU_JOBS, claim.key)
    except NotFound:
        return None
    same = entry.value.status == RUNNING and entry.value.attempts == claim.entry.value.attempts
    return entry if same else None


def _pages(store: Store) -> Iterator[list[Entry[QueuedJob]]]:
    page = store.list(TPU_JOBS, states=[PENDING], limit=FRONT)
    yield list(page.entries)
    while page.next:
        page = store.list(TPU_JOBS, states=[PENDING], after=page.next, limit=FRONT)
        yield list(page.entries)


def _shuffled(entries: Iterable[Entry[QueuedJob]], dice: random.Random) -> list[Entry[QueuedJob]]:
    """Shuffle the entries within each priority."""
    return sorted(entries, key=lambda entry: (-_priority(entry.value), dice.random()))


def _priority(job: QueuedJob) -> float:
    return float(job.priority) if is_number(job.priority) else 0.0
