"""The driver of fleets: the kernel with the Cloud TPU API, hosts and a bucket behind it. Several may run at once."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from msgspec.structs import replace

from tpukit.core.clock import Clock
from tpukit.core.errors import Denied, Invalid, NoCapacity, TpukitError, Transient
from tpukit.fleet import learning
from tpukit.fleet.act import Acting
from tpukit.fleet.decide import decide, refused
from tpukit.fleet.listing import Recent
from tpukit.fleet.observe import observe
from tpukit.fleet.progress import Progress
from tpukit.fleet.records import ACTIVE, WORKERS, Worker
from tpukit.fleet.seen import READY, Seen
from tpukit.fleet.wishes import discard, forget_seen, of, want
from tpukit.goodput.zone_odds import Offer
from tpukit.kernel import Decision, Kernel, Leases
from tpukit.kernel.store import Entry, Holder, Store, everything

__all__ = ["Driver", "FleetUse", "discard", "forget_seen", "of", "want"]
LEARNT_SECONDS = 600.0
"""Maximum age of what other workers learnt of zones."""
OBJECTS_SECONDS = 10.0
"""Maximum age of the list of the bucket."""
LONGEST_LOOK = 60.0
"""Maximum seconds of silence that one look proves: the driver may have been suspended between two looks."""
DENIED_SECONDS = 600.0
"""Seconds for which a request is denied before its worker fails.

https://cloud.google.com/iam/docs/access-change-propagation
"""
BLIND_SECONDS = 120.0
"""Seconds without a visible host in a zone before the driver gives up on the zone for now."""


class FleetUse:
    """Fleets as the kernel drives them."""

    kind = WORKERS
    states: Sequence[str] = ACTIVE

    def __init__(
        self,
        acting: Acting,
        progress: Callable[[str], Progress],
        clock: Clock,
        say: Callable[[str, str], None] = lambda key, text: None,
        everyone: Callable[[], Sequence[Worker]] = lambda: (),
    ) -> None:
        """Initialize. `everyone` reads the workers of all fleets, also those that are gone, for what they learnt."""
        self._acting, self._progress, self._clock, self._say = acting, progress, clock, say
        self._everyone = everyone
        self._learnt: tuple[float, Sequence[Worker]] = (-math.inf, ())  # when it was read
        self._recent = Recent(acting.client, clock.monotonic)
        self._marks: dict[str, tuple[object, float]] = {}  # latest sign of progress of each worker, and when
        self._silence: dict[str, tuple[object, float, float]] = {}  # mark, proven seconds, last look
        self._read: dict[str, tuple[float, Progress]] = {}
        self._denied: dict[str, float] = {}  # since when creating a TPU VM is denied

    def select(self, entries: Sequence[Entry[Worker]]) -> Sequence[Entry[Worker]]:
        return entries

    def group(self, worker: Worker) -> str | None:
        return worker.zone

    def observe(self, group: str, entries: Sequence[Entry[Worker]]) -> Mapping[str, Seen | TpukitError]:
        workers = {entry.key: entry.value for entry in entries}
        seen = observe(self._acting.client, self._acting.reach, workers, self._made, self._recent)
        offered = {key: dataclasses.replace(one, offers=self._offers(workers[key])) for key, one in seen.items()}
        return {key: self._judged(group, key, one) for key, one in offered.items()}

    def _offers(self, worker: Worker) -> tuple[Offer, ...]:
        """Return the zones of a worker that may move, with what all workers learnt of them lately."""
        if len(worker.zones) == 1:
            return ()
        now = self._clock.monotonic()
        at, learnt = self._learnt
        if now - at >= LEARNT_SECONDS:
            with suppress(TpukitError):  # without it, only what this worker learnt counts
                learnt = self._everyone()
            self._learnt = now, learnt
        return learning.offers(worker, learnt, self._clock.now())

    def decide(self, worker: Worker, seen: Seen | None, now: float) -> Decision[Worker]:
        return Decision(worker) if seen is None else decide(worker, seen, now)

    def act(self, worker: Worker, act: Any) -> None:
        self._acting.act(worker, act)
        self._denied.pop(worker.tpu, None)

    def failed(self, worker: Worker, act: Any, error: TpukitError, now: float) -> Decision[Worker] | None:
        if not isinstance(error, (NoCapacity, Invalid, Denied)):
            return None
        denied = isinstance(error, Denied)
        if denied and not self._lasts(worker.tpu):
            return None
        return refused(worker, act, str(error), now, for_good=isinstance(error, Invalid), denied=denied)

    def _lasts(self, tpu: str) -> bool:
        """Return whether creating the TPU VM has been denied for long.

        Grants take minutes to propagate, and another driver may have the rights that this one lacks.
        """
        return self._clock.monotonic() - self._denied.setdefault(tpu, self._clock.monotonic()) >= DENIED_SECONDS

    def troubled(self, worker: Worker, text: str) -> Worker:
        return replace(worker, message=text)

    def _judged(self, zone: str, key: str, seen: Seen) -> Seen | TpukitError:
        """Add the seconds for which the worker has been quiet, and for which its silence is proven.

        Return an error if the worker is READY and this driver has long seen no sign of it, nor of any host of its zone:
        another driver may see more.
        """
        quiet = self._quiet(key, seen)
        unseen = bool(seen.unseen) and not seen.foreign and seen.node in READY
        if unseen and not seen.witness and quiet >= BLIND_SECONDS and not seen.elsewhere:
            words = f"no host in {zone} can be seen from this machine ({seen.unseen})"
            hint = "nothing is changed meanwhile; check SSH to the hosts, or run `tpu fleet monitor` on another machine"
            return Transient(words, hint=hint)
        return dataclasses.replace(seen, quiet=quiet, proven=self._proven(key, seen))

    def _quiet(self, key: str, seen: Seen) -> float:
        """Return the seconds without progress while this driver looked. Time spent asleep does not count."""
        host, now = seen.host, self._clock.monotonic()
        mark = (seen.node_id, host.running, host.moved) if host else (seen.node_id, seen.shards, seen.beat)
        if self._marks.get(key, (None, 0.0))[0] != mark:
            self._marks[key] = mark, now
        return now - self._marks[key][1]

    def _proven(self, key: str, seen: Seen) -> float:
        """Return the seconds in which the host was silent while another one of its zone answered.

        Anything else, and any sign of life in the bucket, resets the sum.
        """
        if not (seen.silent and seen.witness):
            self._silence.pop(key, None)
            return 0.0
        mark, now = (seen.node_id, seen.shards, seen.beat), self._clock.monotonic()
        before = self._silence.get(key)
        if before is None or before[0] != mark:
            before = (mark, 0.0, now)
        seconds = before[1] + min(now - before[2], LONGEST_LOOK)
        self._silence[key] = mark, seconds, now
        return seconds

    def _made(self, output: str) -> Progress:
        at, made = self._read.get(output, (float("-inf"), Progress()))
        if self._clock.monotonic() - at >= OBJECTS_SECONDS:
            before, made = made, self._progress(output)
            self._read[output] = self._clock.monotonic(), made
            for problem in made.problems:
                if problem not in before.problems:
                    self._say(output, problem)
        return made


class Driver:
    """The driver of the workers of fleets."""

    def __init__(
        self,
        store: Store,
        acting: Acting,
        progress: Callable[[str], Progress],
        clock: Clock,
        holder: Holder,
        *,
        workers: int = 0,
        report: Callable[[str, str], None] = lambda key, text: None,
        complain: Callable[[str, str], None] = lambda key, text: None,
    ) -> None:
        self._store = store
        self.leases = Leases(store, holder, clock)
        if workers:
            self.leases.keep()
        use = FleetUse(acting, progress, clock, complain, lambda: [entry.value for entry in everything(store, WORKERS)])
        self.kernel: Kernel[Worker, Seen] = Kernel(
            store, use, self.leases, clock, workers=workers, report=report, complain=complain
        )

    def round(self, fleet: str) -> int:
        """Take one step for each active worker of a fleet; return how many there are."""
        active = [entry.key for entry in everything(self._store, WORKERS, states=ACTIVE) if entry.value.fleet == fleet]
        return self.kernel.round(active) if active else 0

    def close(self) -> None:
        self.kernel.close()
