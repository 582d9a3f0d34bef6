"""Client for applications: submit code, and read the result.

from tpukit.code_queue import Client

queue = Client.open()                       # the store in the settings; or open("firestore://my-project")
job_id = queue.submit("result = 6 * 7", timeout=60)
print(queue.wait(job_id).result)
"""

from __future__ import annotations

import asyncio
import hashlib
import secrets
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from msgspec.structs import replace

from tpukit.code_queue import decide
from tpukit.code_queue.records import ATTEMPTS, ENDED, TIMEOUT, TPU_JOBS, QueuedJob
from tpukit.core import retry
from tpukit.core.clock import SYSTEM
from tpukit.core.errors import Conflict, Invalid, NotFound, NotYet, Transient
from tpukit.kernel.store import Entry, Event, Store, change

POLL_SECONDS = 10.0
"""Seconds between reads without a watch event: a watch is only a hint."""
PAUSES = (0.2, 0.5, 1.0, 2.0, 5.0)
"""Seconds between attempts to submit a job while the store is unavailable."""


class Client:
    """A client of the queue. Thread-safe."""

    def __init__(self, store: Store) -> None:
        self._store = store

    @classmethod
    def open(cls, store: str | None = None) -> Client:
        """Open a store: sqlite or firestore://PROJECT[/DATABASE] (default: the store in the settings)."""
        from tpukit.core import paths
        from tpukit.jobs.spec import settings
        from tpukit.kernel.store.home import open_store

        return cls(open_store(store or settings.store(), paths.state()))

    def close(self) -> None:
        self._store.close()

    def submit(
        self,
        code: str,
        *,
        timeout: float = TIMEOUT,
        challenge_number: int | None = None,
        priority: float = 0,
        unique: str = "",
        metadata: Mapping[str, Any] | None = None,
        max_faults: int = ATTEMPTS,
    ) -> str:
        """Submit a job and return its id. With `unique`, return the existing job of that key if there is one."""
        job = QueuedJob(
            challenge_number=challenge_number,
            code=code,
            timeout=timeout,
            metadata=dict(metadata or {}),
            priority=priority,
            max_faults=max_faults,
        )
        if wrong := decide.problems(job):
            raise Invalid(wrong)
        key = f"unique-{hashlib.sha256(unique.encode()).hexdigest()[:20]}" if unique else secrets.token_hex(10)

        def create() -> None:
            now = self._store.now()  # may query the store, too
            with suppress(Conflict):  # a job of that key exists; a random key is ours, and the response was lost
                self._store.create(
                    TPU_JOBS, key, replace(job, created_at=now, updated_at=now), events=[Event(now, "submitted")]
                )

        retry.call(create, PAUSES, SYSTEM.sleep)
        return key

    def ping(self) -> None:
        """Raise Transient while the store is unavailable."""
        self._store.lease("queue/ping")

    def get(self, job_id: str) -> QueuedJob:
        try:
            return self._store.get(TPU_JOBS, job_id).value
        except NotFound as error:
            raise NotFound(f"there is no queued job {job_id}", hint="see `tpu queue list`") from error

    def list(self, *, states: Sequence[str] = (), limit: int = 20) -> Sequence[Entry[QueuedJob]]:
        """List jobs, newest first."""
        entries: list[Entry[QueuedJob]] = []
        page = self._store.list(TPU_JOBS, states=states)
        entries += page.entries
        return sorted(entries, key=lambda entry: -entry.value.created_at)[: limit or None]

    def events(self, job_id: str) -> Sequence[Event]:
        return self._store.events(TPU_JOBS, job_id)

    def cancel(self, job_id: str) -> QueuedJob:
        """Cancel a job: a pending one immediately, a running one as soon as its worker reads the request."""
        self.get(job_id)
        now = self._store.now()
        return change(self._store, TPU_JOBS, job_id, lambda job: decide.cancel(job, now), note="cancel", at=now).value

    def retry(self, job_id: str) -> QueuedJob:
        self.get(job_id)
        now = self._store.now()

        def again(job: QueuedJob) -> QueuedJob:
            if job.status not in ENDED:
                raise Conflict(f"{job_id} has not ended: it is {job.status}", hint=f"`tpu queue cancel {job_id}` first")
            return decide.retry(job, now)

        return change(self._store, TPU_JOBS, job_id, again, note="sent again", at=now).value

    def purge(self, *, older_than: float) -> Sequence[str]:
        """Remove jobs that ended at least `older_than` seconds ago, and return their ids."""
        now, removed = self._store.now(), []
        for entry in self._store.list(TPU_JOBS, states=ENDED).entries:
            if now - entry.value.completed_at >= older_than:
                self._store.delete(TPU_JOBS, entry)
                removed.append(entry.key)
        return removed

    def wait(self, job_id: str, seconds: float | None = None, *, unless: str = "") -> QueuedJob:
        """Return the job when it has ended; with `unless`, as soon as its status differs from that.

        Raises:
            NotYet: It took longer than `seconds`.
        """
        changed = threading.Event()
        due = None if seconds is None else SYSTEM.monotonic() + seconds
        unwatch = self._store.watch(TPU_JOBS, changed.set)
        try:
            while True:
                changed.clear()
                try:
                    job = self.get(job_id)
                except Transient as error:
                    state = error.message  # keep waiting for a store that is unavailable
                else:
                    if job.status in ENDED or (unless and job.status != unless):
                        return job
                    state = f"{job_id} is {job.status}"
                left = POLL_SECONDS if due is None else min(POLL_SECONDS, due - SYSTEM.monotonic())
                if left <= 0:
                    raise NotYet(state, hint=f"`tpu queue show {job_id}` shows its status")
                changed.wait(left)
        finally:
            unwatch()


class AsyncClient:
    """The same client for programs with an event loop: each call waits in a thread."""

    def __init__(self, client: Client) -> None:
        self._client = client

    @classmethod
    async def open(cls, store: str | None = None) -> AsyncClient:
        return cls(await asyncio.to_thread(Client.open, store))

    async def submit(self, code: str, **options: Any) -> str:
        return await asyncio.to_thread(self._client.submit, code, **options)

    async def get(self, job_id: str) -> QueuedJob:
        return await asyncio.to_thread(self._client.get, job_id)

    async def cancel(self, job_id: str) -> QueuedJob:
        return await asyncio.to_thread(self._client.cancel, job_id)

    async def retry(self, job_id: str) -> QueuedJob:
        return await asyncio.to_thread(self._client.retry, job_id)

    async def wait(self, job_id: str, seconds: float | None = None) -> QueuedJob:
        return await asyncio.to_thread(self._client.wait, job_id, seconds)

    async def close(self) -> None:
        await asyncio.to_thread(self._client.close)
