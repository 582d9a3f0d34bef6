"""Probes of containers, as a kubelet has them: when one is due, how often in a row it must say something to be heard,
and what follows.

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
    STARTUP = "startup"  # until it succeeds the others wait, and the container has not started
    LIVENESS = "liveness"
    READINESS = "readiness"


@dataclass(frozen=True, slots=True)
class Health:
    """How a container is that runs. One without probes is well."""

    started: bool = True
    ready: bool = True
    grace: float | None = None  # it is to be ended, and has so many seconds; None: it may run on
    probed: bool = False  # its probes say so: OnFailure starts it again however it ends


WELL = Health()


@dataclass(frozen=True, slots=True)
class Tally:
    """What a probe is taken to say (None: nothing yet), and what it said last, how often in a row."""

    value: bool | None
    last: bool | None = None
    row: int = 0

    def after(self, good: bool, probe: Object) -> Tally:
        row = self.row + 1 if good is self.last else 1
        needed = probe.get("successThreshold", 1) if good else probe.get("failureThreshold", 3)
        return Tally(good if row >= needed else self.value, good, row)


@dataclass(slots=True)
class _Run:
    pod: Object  # as it was seen last
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
    """Safe from any thread. An agent that comes after another one begins with what a pod's status says."""

    def __init__(self, events: PodEvents, clock: Clock, changed: Callable[[str], None]) -> None:
        """`changed` is told the uid of a pod with a container that is not as it was."""
        self._events, self._clock, self._changed = events, clock, changed
        self._runs: dict[str, _Run] = {}  # by UID/CONTAINER/NUMBER
        self._lock = threading.Lock()
        self.line = Line()  # of UID/CONTAINER/NUMBER/KIND

    def health(self, pod: Object, container: Container, address: str) -> Health:
        """Of a container that runs, which is probed from now on. `address`: the pod's."""
        kinds = [kind for kind in Kind if container.spec.get(f"{kind}Probe")]
        if not kinds:
            return WELL
        key = f"{pod['metadata']['uid']}/{container.name}/{len(container.runs) - 1}"
        with self._lock:
            run = self._runs.get(key)
            if run is None:
                self._drop(key.rpartition("/")[0])  # earlier runs of it
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
        """For as many threads as probes are to be made side by side."""
        while (key := self.line.take()) is not None:
            again: float | None = _RETRY_SECONDS
            try:
                again = self._probe(*key.rsplit("/", 1))
            except Exception:
                _log.exception("probe %s", key)
            self.line.done(key)
            if again is not None:
                self.line.add(key, again)

    def _probe(self, key: str, name: str) -> float | None:
        """Seconds until the next one; None where none is to come by itself."""
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
            return None  # it has done its work, or waits for the one of the start
        began = time.monotonic()
        why = handlers.trouble(probe, run.spec, run.folder, state.pid, run.address)
        if pods.status(run.folder).phase is not Phase.RUNNING:
            return None  # who asks somebody who leaves learns nothing
        if why:
            self._events.warn(run.pod, "Unhealthy", f"{kind.capitalize()} probe failed: {why}")
        if self._heard(key, run, kind, not why) and kind is not Kind.READINESS:
            return None
        period = float(probe.get("periodSeconds") or 10)
        return max(0.0, period - (time.monotonic() - began))

    def _heard(self, key: str, run: _Run, kind: Kind, good: bool) -> bool:
        """Count what a probe said; whether it is taken for something else now than before."""
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
    """Before anything was probed: not ready, and alive. What another agent found of this very run stays."""
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
