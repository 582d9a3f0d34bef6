"""Deliver each notice once, by whichever process comes first, and try again after errors.

A record marks a notice before it is sent and after. If a process dies between, another sends the notice again after
`STALE_SECONDS`: this is the one case in which a notice can come twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec
from msgspec.structs import replace

from tpukit.core.clock import Clock
from tpukit.core.errors import Conflict, NotFound, TpukitError, Transient
from tpukit.goodput import budgets
from tpukit.jobs.records import ACTIVE, JOBS, Job
from tpukit.kernel.store import Entry, Kind, Store, everything
from tpukit.serve.notices import sending
from tpukit.serve.notices.decide import LATEST_SECONDS, Idle, Notice, due
from tpukit.serve.notices.rules import Rule, read

STALE_SECONDS = 600.0
TRIES_MOST = 8
FIRST_PAUSE = 60.0
KEPT_SECONDS = 30 * 86_400.0
NEWEST = 100
SINCE = "since"
"""Key of the record that holds when notices were first read: what happened before is no news."""


class Delivery(msgspec.Struct, frozen=True):
    """State of one notice. It holds neither its text nor its address."""

    state: str  # sending, sent, failed; since
    at: float
    tries: int = 0
    next: float = 0.0  # when it may be tried again


DELIVERIES: Kind[Delivery] = Kind("notices", Delivery, state="state", order="at")
msgspec.json.Decoder(Delivery)


class Notices:
    def __init__(
        self,
        store: Store,
        clock: Clock,
        file: Path,
        idle: Callable[[], Iterable[Idle]] = tuple,
        say: Callable[[str], None] = lambda text: None,
        send: Callable[[Rule, Notice], None] = sending.send,
    ) -> None:
        self._store, self._clock, self._file = store, clock, file
        self._idle, self._say, self._send = idle, say, send
        self._active: set[str] = set()
        self._ended: dict[str, Job] | None = None  # lately, by id; None: not read yet

    def round(self) -> None:
        """Send what is due."""
        rules = read(self._file)
        if not rules:
            return
        now = self._clock.now()
        since = self._since(now)
        self._deliver(rules, due(rules, self._jobs(now), self._idle(), now, since), now)
        self._forget(now)

    def _jobs(self, now: float) -> list[Job]:
        """Return active jobs and those that ended lately. All records are read only once: there may be thousands."""
        active = {entry.key: entry.value for entry in everything(self._store, JOBS, states=ACTIVE)}
        if self._ended is None:
            found = budgets.recent(self._store, now - LATEST_SECONDS)
        else:
            newest = self._store.list(JOBS, newest=True, limit=NEWEST)  # some begin and end between two rounds
            left = [job for name in self._active - active.keys() if (job := self._job(name))]
            found = [*self._ended.values(), *(entry.value for entry in newest.entries), *left]
        self._active = set(active)
        self._ended = {job.id: job for job in found if job.state.ended and now - job.ended < LATEST_SECONDS}
        return list({**self._ended, **active}.values())

    def _job(self, name: str) -> Job | None:
        try:
            return self._store.get(JOBS, name).value
        except (NotFound, Conflict):
            return None

    def _deliver(self, rules: Sequence[Rule], notices: Iterable[Notice], now: float) -> None:
        by_name = {rule.name: rule for rule in rules}
        known = {entry.key: entry for entry in everything(self._store, DELIVERIES)}
        for notice in notices:
            claimed = self._claim(notice, known.get(notice.key), now)
            if claimed is None:
                continue
            try:
                self._send(by_name[notice.rule], notice)
                after = replace(claimed.value, state="sent")
            except TpukitError as error:
                tries = claimed.value.tries
                again = isinstance(error, Transient) and tries < TRIES_MOST
                pause = FIRST_PAUSE * 2 ** (tries - 1)
                after = replace(claimed.value, state="sending" if again else "failed", next=now + pause)
                self._say(f"notice of rule {notice.rule} was not sent: {error}" + ("; trying again" if again else ""))
            with suppress(Conflict, NotFound):
                self._store.put(DELIVERIES, claimed, after)

    def _claim(self, notice: Notice, there: Entry[Delivery] | None, now: float) -> Entry[Delivery] | None:
        """Mark a notice as being sent by this process; None if it is sent, given up, or another process sends it."""
        try:
            if there is None:
                mark = Delivery("sending", now, 1, now + STALE_SECONDS)
                return self._store.create(DELIVERIES, notice.key, mark)
            if there.value.state != "sending" or now < there.value.next:
                return None
            mark = replace(there.value, tries=there.value.tries + 1, next=now + STALE_SECONDS)
            return self._store.put(DELIVERIES, there, mark)
        except (Conflict, NotFound):
            return None

    def _since(self, now: float) -> float:
        try:
            return self._store.get(DELIVERIES, SINCE).value.at
        except NotFound:
            with suppress(Conflict):
                self._store.create(DELIVERIES, SINCE, Delivery("since", now))
            return now

    def _forget(self, now: float) -> None:
        for entry in everything(self._store, DELIVERIES, states=("sent", "failed")):
            if now - entry.value.at > KEPT_SECONDS:
                with suppress(Conflict, NotFound):
                    self._store.delete(DELIVERIES, entry)
