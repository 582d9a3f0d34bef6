"""The order in which Kueue admits jobs: priorities, quotas, borrowing and preemption. Pure.

It follows Kueue 0.16 to 0.19 without fair sharing, topologies and nested cohorts, which tpukit's queues do not use
(https://kueue.sigs.k8s.io/docs/concepts/preemption/). In each cycle, the first job of every queue is tried. Jobs that
need no borrowing go first, then by priority, then by age. A queue takes its own quota back from borrowers, and within a
queue a job takes the place of lower ones. In a simulation, evicted jobs leave at once.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

Key = tuple[str, str]
"""A flavor and one of its resources."""
CYCLES_MOST = 10_000


@dataclass(frozen=True, slots=True)
class Queue:
    """A ClusterQueue."""

    name: str
    cohort: str
    own: Mapping[Key, float]
    most: Mapping[Key, float]  # its own and what it may borrow
    within: str = "LowerPriority"  # preemption in the queue; Never: none
    reclaim: str = "Any"  # from borrowers in the cohort; LowerPriority, Never
    strict: bool = False  # a job that does not fit blocks those behind it
    stopped: bool = False


@dataclass(frozen=True, slots=True)
class Entry:
    """A job: what it needs, and its place in the order."""

    id: str
    queue: str
    need: Mapping[Key, float]
    priority: int = 0
    since: float = 0.0
    order: tuple[int, float, str] = field(init=False, compare=False)
    asks: tuple[tuple[Key, float], ...] = field(init=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "order", (-self.priority, self.since, self.id))
        object.__setattr__(self, "asks", tuple(sorted((key, number) for key, number in self.need.items() if number)))


@dataclass(frozen=True, slots=True)
class Change:
    """A job that got its quota, or lost it to another."""

    entry: Entry
    by: str = ""  # the job that evicted it; "": admitted


@dataclass(slots=True)
class _Running:
    entry: Entry
    admitted: float


@dataclass(slots=True)
class Line:
    """The waiting and running jobs of all queues."""

    queues: Mapping[str, Queue]
    _waiting: dict[str, list[tuple[tuple[int, float, str], Entry]]] = field(default_factory=dict)
    _running: dict[str, dict[str, _Running]] = field(default_factory=dict)  # by queue
    _where: dict[str, str] = field(default_factory=dict)  # queue of each running job
    _used: dict[str, dict[Key, float]] = field(default_factory=dict)
    _cohort_used: dict[tuple[str, Key], float] = field(default_factory=dict)
    _cohort_own: dict[tuple[str, Key], float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for queue in self.queues.values():
            self._used[queue.name] = dict.fromkeys(queue.own, 0.0)
            for key, own in queue.own.items():
                at = self._cohort(queue), key
                self._cohort_own[at] = self._cohort_own.get(at, 0.0) + own

    def copy(self) -> Line:
        made = Line(self.queues)
        made._waiting = {name: list(entries) for name, entries in self._waiting.items()}
        made._running = {name: dict(running) for name, running in self._running.items()}
        made._where = dict(self._where)
        made._used = {name: dict(used) for name, used in self._used.items()}
        made._cohort_used = dict(self._cohort_used)
        return made

    @property
    def running(self) -> dict[str, Entry]:
        return {name: one.entry for running in self._running.values() for name, one in running.items()}

    @property
    def waiting(self) -> list[Entry]:
        return [entry for entries in self._waiting.values() for _, entry in entries]

    def wait(self, entry: Entry) -> None:
        insort(self._waiting.setdefault(entry.queue, []), (entry.order, entry))

    def run(self, entry: Entry, admitted: float) -> None:
        self._running.setdefault(entry.queue, {})[entry.id] = _Running(entry, admitted)
        self._where[entry.id] = entry.queue
        self._use(entry, 1.0)

    def end(self, name: str) -> Entry | None:
        """Remove a running job."""
        queue = self._where.pop(name, None)
        if queue is None:
            return None
        found = self._running[queue].pop(name)
        self._use(found.entry, -1.0)
        return found.entry

    def arrive(self, entry: Entry, now: float) -> list[Change]:
        """Add a job to settled queues: unless it gets its quota, nothing changes for the others."""
        self.wait(entry)
        queue = self.queues.get(entry.queue)
        if queue is None or queue.stopped or not (self._fits(queue, entry) or self._targets(queue, entry)):
            return []
        return self.settle(now)

    def settle(self, now: float) -> list[Change]:
        """Admit and evict until nothing changes."""
        changes: list[Change] = []
        parked: set[str] = set()
        failed: set[tuple[str, tuple[tuple[Key, float], ...]]] = set()
        for _ in range(CYCLES_MOST):
            heads = self._heads(parked, failed)
            if not heads:
                return changes
            heads.sort(key=lambda entry: (self._borrows(entry), entry.order))
            taken: set[str] = set()
            for entry in heads:
                queue = self.queues[entry.queue]
                if self._fits(queue, entry):
                    self._admit(entry, now)
                    changes.append(Change(entry))
                    continue
                targets = self._targets(queue, entry)
                if not targets:
                    parked.add(entry.id)
                    failed.add((entry.queue, entry.asks))
                    continue
                if taken & {one.id for one in targets}:
                    continue  # tried again in the next cycle
                taken |= {one.id for one in targets}
                for one in targets:
                    self.end(one.id)
                    self.wait(one)
                    changes.append(Change(one, entry.id))
                self._admit(entry, now)
                changes.append(Change(entry))
                parked.clear()
                failed.clear()
        return changes

    def _heads(self, parked: set[str], failed: set[tuple[str, tuple[tuple[Key, float], ...]]]) -> list[Entry]:
        """Return the first job of each queue that was not tried since the last change.

        A job that needs the same as an earlier one, which did not fit, does not fit either.
        """
        heads = []
        for name, entries in self._waiting.items():
            queue = self.queues.get(name)
            if queue is None or queue.stopped:
                continue
            for _, entry in entries:
                if entry.id in parked or (not queue.strict and (name, entry.asks) in failed):
                    if queue.strict:
                        break
                    continue
                heads.append(entry)
                break
        return heads

    def _admit(self, entry: Entry, now: float) -> None:
        self._waiting[entry.queue].remove((entry.order, entry))
        self.run(entry, now)

    def _use(self, entry: Entry, sign: float) -> None:
        queue = self.queues.get(entry.queue)
        if queue is None:
            return
        used = self._used[entry.queue]
        for key, number in entry.asks:
            used[key] = used.get(key, 0.0) + sign * number
            at = self._cohort(queue), key
            self._cohort_used[at] = self._cohort_used.get(at, 0.0) + sign * number

    def _cohort(self, queue: Queue) -> str:
        return queue.cohort or f"/{queue.name}"

    def _fits(self, queue: Queue, entry: Entry, *, borrowing: bool = True) -> bool:
        used, cohort = self._used[queue.name], self._cohort(queue)
        for key, number in entry.asks:
            after = used.get(key, 0.0) + number
            if after > (queue.most.get(key, 0.0) if borrowing else queue.own.get(key, 0.0)):
                return False
            if self._cohort_used.get((cohort, key), 0.0) + number > self._cohort_own.get((cohort, key), 0.0):
                return False
        return True

    def _borrows(self, entry: Entry) -> bool:
        queue = self.queues[entry.queue]
        used = self._used[queue.name]
        return any(used.get(key, 0.0) + number > queue.own.get(key, 0.0) for key, number in entry.asks)

    def _targets(self, queue: Queue, entry: Entry) -> list[Entry]:
        """Return the jobs to evict so that the entry fits; none if it does not fit even so."""
        if any(number > queue.most.get(key, 0.0) for key, number in entry.asks):
            return []
        short = self._short(queue, entry.asks)
        own = self._candidates(queue, entry, short) if queue.within != "Never" else []
        others = self._borrowers(queue, entry, short) if queue.cohort and queue.reclaim != "Never" else []
        if not others:
            return self._fewest(queue, entry, own, borrowing=True)
        used = self._used[queue.name]
        if all(used.get(key, 0.0) < queue.own.get(key, 0.0) for key in short) and (
            found := self._fewest(queue, entry, others + own, borrowing=False)
        ):
            return found
        return self._fewest(queue, entry, own, borrowing=True)

    def _short(self, queue: Queue, needed: Iterable[tuple[Key, float]]) -> set[Key]:
        used, cohort = self._used[queue.name], self._cohort(queue)
        return {
            key
            for key, number in needed
            if used.get(key, 0.0) + number > queue.most.get(key, 0.0)
            or self._cohort_used.get((cohort, key), 0.0) + number > self._cohort_own.get((cohort, key), 0.0)
        }

    def _candidates(self, queue: Queue, entry: Entry, short: set[Key]) -> list[Entry]:
        newer = queue.within == "LowerOrNewerEqualPriority"
        found = [
            one
            for one in self._running.get(queue.name, {}).values()
            if (
                one.entry.priority < entry.priority
                or (newer and one.entry.priority == entry.priority and one.entry.since > entry.since)
            )
            and short & one.entry.need.keys()
        ]
        return [one.entry for one in sorted(found, key=_first_to_go)]

    def _borrowers(self, queue: Queue, entry: Entry, short: set[Key]) -> list[Entry]:
        found = [
            one
            for name, running in self._running.items()
            if name != queue.name and self._is_borrower(name, queue.cohort, short)
            for one in running.values()
            if short & one.entry.need.keys() and (queue.reclaim == "Any" or one.entry.priority < entry.priority)
        ]
        return [one.entry for one in sorted(found, key=_first_to_go)]

    def _is_borrower(self, name: str, cohort: str, short: set[Key]) -> bool:
        queue = self.queues.get(name)
        if queue is None or queue.cohort != cohort:
            return False
        used = self._used[name]
        return any(used.get(key, 0.0) > queue.own.get(key, 0.0) for key in short)

    def _fewest(self, queue: Queue, entry: Entry, candidates: Sequence[Entry], *, borrowing: bool) -> list[Entry]:
        """Return a minimal list of candidates without which the entry fits, as Kueue finds it."""
        removed: list[Entry] = []
        fits = False
        short = self._short(queue, entry.asks)
        for one in candidates:
            if one.queue != queue.name and not self._is_borrower(one.queue, queue.cohort, short):
                continue
            self._use(one, -1.0)
            removed.append(one)
            if fits := self._fits(queue, entry, borrowing=borrowing):
                break
        kept: list[Entry] = []
        if fits:
            for one in reversed(removed[:-1]):
                self._use(one, 1.0)
                if not self._fits(queue, entry, borrowing=borrowing):
                    self._use(one, -1.0)
                    kept.append(one)
            kept.append(removed[-1])
        for one in kept if fits else removed:
            self._use(one, 1.0)
        return kept


def _first_to_go(one: _Running) -> tuple[int, float, str]:
    """Return the key of Kueue's order of victims: the lowest priority, then the last admitted."""
    return one.entry.priority, -one.admitted, one.entry.id
