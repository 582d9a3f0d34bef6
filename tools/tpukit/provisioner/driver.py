"""Drive pools: the kernel, applied to a cluster. Several replicas may run; one of them leads."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from msgspec.structs import replace

from tpukit.core.clock import Clock
from tpukit.core.errors import Denied, Invalid, NoCapacity, TpukitError
from tpukit.google.gke import Gke, Operation
from tpukit.kernel import Decision, Holding, Hooks, Kernel
from tpukit.kernel.controller import BLIND_SECONDS
from tpukit.kernel.store import Entry
from tpukit.kube import Cluster
from tpukit.provisioner import failures, settings
from tpukit.provisioner.act import Actor
from tpukit.provisioner.decide import Cordon, Create, Delete, Step, decide
from tpukit.provisioner.events import About, Events
from tpukit.provisioner.observe import Observer
from tpukit.provisioner.pace import Pace
from tpukit.provisioner.pool_cache import Intervals, PoolCache
from tpukit.provisioner.records import SLICES, ClusterRecords, SliceRecord
from tpukit.provisioner.settings import Settings
from tpukit.provisioner.view import View

GROUP = "cluster"
KEEPS_SECONDS = 3600.0
"""Time for which a replica whose changes are denied keeps leading after it has let others try: all may be denied."""
log = logging.getLogger("tpukit.provisioner")


class Leads(Holding, Protocol):
    """One lease for all keys."""

    def leading(self) -> bool: ...


@dataclass(frozen=True, slots=True)
class Counting:
    """Callbacks for metrics; called from any thread."""

    decided: Callable[[Mapping[str, Step]], None] = lambda steps: None  # after each observation
    announced: Callable[[Step | None, str], None] = lambda step, reason: None  # for each event, with its reason
    called: Callable[[str, str], None] = lambda act, outcome: None  # after each GKE call that changes something
    finished: Callable[[Operation], None] = lambda operation: None  # once for each operation


class PoolUse:
    """The kernel's interface to pools."""

    kind = SLICES
    states: Sequence[str] = ("active",)

    def __init__(self, steps: Callable[[], Mapping[str, Step]], actor: Actor, events: Events) -> None:
        self._steps, self._actor, self._events = steps, actor, events

    def select(self, entries: Sequence[Entry[SliceRecord]]) -> Sequence[Entry[SliceRecord]]:
        """Return the entries that need an action, an event or a write."""
        steps = self._steps()
        return [one for one in entries if (step := steps.get(one.key)) and (step.act or step.event or _differs(step))]

    def group(self, value: SliceRecord) -> str | None:
        return GROUP

    def observe(self, group: str, entries: Sequence[Entry[SliceRecord]]) -> Mapping[str, Step | TpukitError]:
        steps = self._steps()
        return {entry.key: steps[entry.key] for entry in entries if entry.key in steps}

    def decide(self, value: SliceRecord, seen: Step | None, now: float) -> Decision[SliceRecord]:
        if seen is None:
            return Decision(value)
        note = f"{seen.event}: {seen.reason}" if seen.event else ""
        return Decision(replace(value, tries=seen.tries), seen.act, note)

    def act(self, value: SliceRecord, act: Create | Delete | Cordon) -> None:
        self._actor.act(value.pool, act)

    def failed(
        self, value: SliceRecord, act: Create | Delete | Cordon, error: TpukitError, now: float
    ) -> Decision[SliceRecord] | None:
        """Continue with the next choice if GKE refused a create."""
        if not isinstance(act, Create) or not isinstance(error, (Invalid, NoCapacity)):
            return None
        choices = len(act.need.choices)
        tries = failures.after(value.tries, error.message, choices, value.pool, now, refused=True)
        return Decision(replace(value, tries=tries), note=f"{failures.event(tries)}: {error}")

    def troubled(self, value: SliceRecord, text: str) -> SliceRecord:
        about = About(value.namespace, value.jobset, value.uid, value.pod, value.pod_uid)
        self._events.tell(about, "NodePoolTrouble", text)
        return value


class Driver:
    def __init__(
        self,
        cluster: Cluster,
        gke: Gke,
        view: View,
        leader: Leads,
        clock: Clock,
        *,
        zones: tuple[str, ...] = (),
        workers: int = 0,
        report: Callable[[str, str], None] = lambda pool, text: None,
        complain: Callable[[str, str], None] = lambda pool, text: None,
        counting: Counting | None = None,
        hooks: Hooks | None = None,
        intervals: Intervals | None = None,
        seed: int | None = None,
    ) -> None:
        self._view, self._clock, self._complain = view, clock, complain
        self._counting = counting or Counting()
        self._leader = leader
        self._events = Events(cluster, clock, background=workers > 0)
        self._cache = PoolCache(gke, clock, intervals, self._counting.finished)
        self._observer = Observer(view, self._cache, zones, clock)
        self._pace = Pace()
        self._settings = Settings()
        self._config = ""
        self._led = float("-inf")  # when this replica last led, by `Clock.elapsed`
        self._denied: float | None = None  # since when GKE denies changes, by `Clock.elapsed`
        self._keeps = float("-inf")  # until then, denied changes do not make it resign
        self._failing: float | None = None  # since when rounds fail, by the monotonic clock
        self.steps: Mapping[str, Step] = {}
        records = ClusterRecords(cluster, self._events, leader, self._next, self._observer.recorded, self._announced)
        actor = Actor(cluster, gke, self._cache, self._pace, clock, leader.leading, self._called)
        self.kernel: Kernel[SliceRecord, Step] = Kernel(
            records,
            PoolUse(lambda: self.steps, actor, self._events),
            leader,
            clock,
            workers=workers,
            report=report,
            complain=complain,
            hooks=hooks,
            seed=seed,
        )

    def round(self) -> int:
        """Run one step for each pool, and return the number of pools that exist or are needed."""
        led = self._leader.leading()
        now = self._clock.elapsed()
        if led:
            self._led = now
        elif now - self._led > BLIND_SECONDS:
            self._observer.forget()
        try:
            count = self.kernel.round()
        except TpukitError:
            self._yield_if_blind(led=led)
            raise
        self._failing = None
        return count

    def _yield_if_blind(self, *, led: bool) -> None:
        """Let another replica lead if this one has long been unable to observe the cluster."""
        now = self._clock.monotonic()
        since = self._failing = now if self._failing is None or not led else self._failing
        if now - since >= BLIND_SECONDS:
            self._failing = None
            self._leader.resign()

    def _called(self, act: str, outcome: str) -> None:
        """Let another replica lead, at most once an hour, if GKE has long denied every change of this one."""
        now = self._clock.elapsed()
        if outcome != Denied.__name__:
            self._denied = None
        elif self._denied is None:
            self._denied = now
        elif now - self._denied >= BLIND_SECONDS and now >= self._keeps:
            self._denied, self._keeps = None, now + KEEPS_SECONDS
            self._leader.resign()
        self._counting.called(act, outcome)

    def busy(self) -> bool:
        """Return whether something is expected to change without a new event."""
        return self._cache.busy() or any(step.state not in ("retained", "stuck") for step in self.steps.values())

    def close(self) -> None:
        """Release the leases, then wait for events that are not written yet."""
        self.kernel.close()
        self._events.close()

    def _next(self) -> Mapping[str, Step]:
        """Return the step of each pool, from a fresh observation."""
        now, options = self._clock.now(), self._read_settings()
        limit = self._pace.limit(options.max_operations, self._clock.monotonic())
        seen = self._observer.observe(options, now)
        steps = decide(seen, options, now, limit)
        if unchecked := [name for name, step in steps.items() if step.unchecked]:
            vacant = {name for name in unchecked if steps[name].idle and steps[name].need is None}
            seen = self._observer.with_foreign(seen, unchecked, vacant)
            steps = decide(seen, options, now, limit)
        self._observer.remember(seen, steps)
        for one in seen.refusals:
            about = About(one.namespace, one.jobset, one.uid, one.pod, one.pod_uid)
            self._events.tell(about, "NodePoolImpossible", one.text)
        self.steps = steps
        self._counting.decided(steps)
        return steps

    def _announced(self, pool: str, reason: str) -> None:
        if self._observer.announced(pool, reason):
            self._counting.announced(self.steps.get(pool), reason)

    def _read_settings(self) -> Settings:
        """Return the settings of the ConfigMap; if it is invalid, the previous ones."""
        document = self._view.config()
        version = document["metadata"]["resourceVersion"] if document else ""
        if version == self._config:
            return self._settings
        try:
            self._settings = settings.of_config_map((document or {}).get("data") or {})
        except Invalid as error:
            self._complain("ConfigMap", f"{error}\n  continuing with the earlier settings")
        self._config = version
        return self._settings


def _differs(step: Step) -> bool:
    return step.tries != step.before
