"""Server-sent events: one watch of the store for all listeners, each of which gets at most one change per second."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable

from tpukit.core.errors import TpukitError
from tpukit.jobs.records import JOBS
from tpukit.kernel.store import Store

LISTENERS_MOST = 500
PAUSE_SECONDS = 1.0
HEARTBEAT_SECONDS = 15.0


class Changes:
    """Change notifications for the listeners of one event loop."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._loop: asyncio.AbstractEventLoop | None = None
        self._unwatch: Callable[[], None] = lambda: None
        self._changed = asyncio.Event()
        self.listeners = 0

    async def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        with contextlib.suppress(TpukitError):  # without the watch, the heartbeat refreshes
            self._unwatch = await asyncio.to_thread(self._store.watch, JOBS, self._wake)

    def stop(self) -> None:
        self._unwatch()

    def _wake(self) -> None:
        if self._loop and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._tell)

    def _tell(self) -> None:
        told, self._changed = self._changed, asyncio.Event()
        told.set()

    async def stream(self) -> AsyncIterator[str]:
        """Yield the lines for one listener. Beyond the limit, ask it to reconnect later."""
        if self.listeners >= LISTENERS_MOST:
            yield "retry: 30000\n\n"
            return
        self.listeners += 1
        try:
            yield "retry: 2000\n\n"
            while True:
                changed = self._changed
                try:
                    await asyncio.wait_for(changed.wait(), HEARTBEAT_SECONDS)
                except TimeoutError:
                    yield ": alive\n\n"
                    continue
                yield "event: changed\ndata: jobs\n\n"
                await asyncio.sleep(PAUSE_SECONDS)
        finally:
            self.listeners -= 1
