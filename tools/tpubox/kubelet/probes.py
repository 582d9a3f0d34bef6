"""Probes of containers, as a kubelet runs them: when each is due, its thresholds, and the consequences.

https://github.com/kubernetes/kubernetes/blob/v1.36.3/pkg/kubelet/prober/worker.go
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from tpubox.kubelet import handlers
from tpubox.kubelet.containers import Container
from tpubox.kubelet.env import Object
from tpubox.kubelet.pod_events import PodEvents
from tpubox.kubelet.work import Line
from tpukit.core.clock import Clock
from tpukit.places.local import processes as pods
from tpukit.places.local.processes import Phase

WORKERS = 4
_RETRY_SECONDS = 10.0
_log = logging.getLogger(__name__)


class Kind(StrEnum):
    STARTUP = "startup"  # the other probes wait until it succeeds; the container has not started before
    LIVENESS = "liveness"
    READINESS = "readiness"


@dataclass(frozen=True, slots=True)
class Health:
    """The health of a running container. A container without probes is healthy."""

    started: bool = True
    ready: bool = True
    grace: float | None = None  # seconds in which it must end; None: it keeps running
    probed: bool = False  # a probe ended it: OnFailure restarts it whatever its exit code is


WELL = Health()


@dataclass(frozen=True, slots=True)
class Tally:
    """The effective result of a probe (None: not known yet), its last result, and how often in a row that came."""

    value: bool | None
    last: bool | None = None
    row: int = 0

    def after(self, good: bool, probe: Object) -> Tally:
        row = self.row + 1 if good is self.last else 1
        needed = probe.get("successThreshold", 1) if good else probe.get("failureThreshold", 3)
        return Tally(good if row >= needed else self.value, good, row)


@dataclass(slots=True)
class _Run:
    pod: Object  # as last seen
    spec: Object
    folder: Path
    address: str
    tallies: dict[Kind, Tally] = field(default_factory=dict)

    def health(self) -> Health:
        found = {kind: tally.value for kind, tally in self.tallies.items()}
        started = found.get(Kind.STARTUP, True) is True
        grace = None
        for kind in (Kind.STARTUP, Kind.LIVENESS):
            if found.get(kind) is False:
                own = self.spec[f"{kind}Probe"].get("terminationGracePeriodSeconds")
                grace = float(self.pod["spec"].get("terminationGracePeriodSeconds", 30) if own is None else own)
        ready = started and found.get(Kind.READINESS, True) is True
        return Health(started, ready, grace, probed=grace is not None)


class Probes:
    """The probes of all containers. Thread-safe. After a restart, an agent begins with the pod's status."""

    def __init__(self, events: PodEvents, clock: Clock, changed: Callable[[str], None]) -> None:
        """Take `changed`, which is called with the uid of a pod when the health of one of its containers changes."""
        self._events, self._clock, self._changed = events, clock, changed
        self._runs: dict[str, _Run] = {}  # by UID/CONTAINER/NUMBER
        self._lock = threading.Lock()
        self.line = Line()  # keys are UID/CONTAINER/NUMBER/KIND

    def health(self, pod: Object, container: Container, address: str) -> Health:
        """Return the health of a running container and start to probe it. `address` is the pod's."""
        kinds = [kind for kind in Kind if container.spec.get(f"{kind}Probe")]
        if not kinds:
            return WELL
        key = f"{pod['metadata']['uid']}/{container.name}/{len(container.runs) - 1}"
        with self._lock:
            run = self._runs.get(key)
            if run is None:
                self._drop(key.rpartition("/")[0])  # its earlier runs
                run = _Run(pod, container.spec, container.run_folder(), address, _first(pod, container, kinds))
                self._runs[key] = run
                for kind in kinds:
                    self.line.add(f"{key}/{kind}")
            run.pod = pod
            return run.health()

    def forget(self, uid: str) -> None:
        with self._lock:
            self._drop(uid)

    def _drop(self, begins: str) -> None:
        for key in [key for key in self._runs if key.startswith(f"{begins}/")]:
            del self._runs[key]

    def serve(self) -> None:
        """Run probes until the queue is closed. Run one thread for each probe to make in parallel."""
        while (key := self.line.take()) is not None:
            again: float | None = _RETRY_SECONDS
            try:
                again = self._probe(*key.rsplit("/", 1))
            except Exception:  # one probe must not end the loop of all  # noqa: BLE001
                _log.exception("probe %s", key)
            self.line.done(key)
            if again is not None:
                self.line.add(key, again)

    def _probe(self, key: str, name: str) -> float | None:
        """Make one probe and return the seconds until the next one, or None if it is not repeated."""
        kind = Kind(name)
        with self._lock:
            run = self._runs.get(key)
        if run is None:
            return None
        state = pods.status(run.folder)
        leaves = "deletionTimestamp" in run.pod["metadata"]
        if state.phase is not Phase.RUNNING or (leaves and kind is not Kind.READINESS):
            return None
        probe = run.spec[f"{kind}Probe"]
        delay = float(probe.get("initialDelaySeconds") or 0) - (self._clock.now() - state.began)
        if delay > 0:
            return delay
        if run.health().started is (kind is Kind.STARTUP):
            return None  # the startup probe is done, or the others wait for it
        began = time.monotonic()
        why = handlers.trouble(probe, run.spec, run.folder, state.pid, run.address)
        if pods.status(run.folder).phase is not Phase.RUNNING:
            return None  # a failure while the container ends means nothing
        if why:
            self._events.warn(run.pod, "Unhealthy", f"{kind.capitalize()} probe failed: {why}")
        if self._heard(key, run, kind, not why) and kind is not Kind.READINESS:
            return None
        period = float(probe.get("periodSeconds") or 10)
        return max(0.0, period - (time.monotonic() - began))

    def _heard(self, key: str, run: _Run, kind: Kind, good: bool) -> bool:
        """Count a result, and return whether the effective result changed."""
        with self._lock:
            before = run.tallies[kind]
            run.tallies[kind] = before.after(good, run.spec[f"{kind}Probe"])
            if run.tallies[kind].value is before.value:
                return False
        if kind is Kind.STARTUP and good:
            for other in run.tallies.keys() - {kind}:
                self.line.add(f"{key}/{other}")
        self._changed(key.partition("/")[0])
        return True


def _first(pod: Object, container: Container, kinds: list[Kind]) -> dict[Kind, Tally]:
    """Return the results before the first probe: alive but not ready, or what an earlier agent found of this run."""
    status = pod.get("status", {})
    everyone = [*status.get("initContainerStatuses", []), *status.get("containerStatuses", [])]
    mine = f"/{container.name}/{len(container.runs) - 1}"
    known: Object = next((one for one in everyone if one.get("containerID", "").endswith(mine)), {})
    values = {
        Kind.STARTUP: True if known.get("started") else None,
        Kind.LIVENESS: True,
        Kind.READINESS: bool(known.get("ready")),
    }
    return {kind: Tally(values[kind]) for kind in kinds}
