"""Fault injection for hosts: preempt, drain, hang, lose, restore.

    preempt   take a spot pool away: its pods are told to leave and fail as disrupted, its nodes are removed and later
              return; GKE decides when its own pools return, because it has to find chips for them
    drain     as in maintenance: the node is cordoned and its pods are evicted through the API server
    hang      stop the processes; the host still looks healthy
    lose      cut the host's power: its processes end, and it reports nothing
    restore   end any of these faults

A slice of several hosts is preempted as a whole, as on Google Cloud. A fault with a step is injected when a host of the
pool reports that step, so that runs are repeatable.
"""

from __future__ import annotations

import json
import logging
import os
import signal
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tpubox.kubelet.api_server import Api
from tpubox.kubelet.containers import Ending, containers, write_json
from tpubox.kubelet.draining import Drain, evict
from tpubox.kubelet.env import Object
from tpubox.kubelet.kubelet import Kubelet
from tpubox.kubelet.launch import PROGRESS
from tpubox.kubelet.nodes import Nodes, Presence, Record
from tpukit.core.clock import Clock
from tpukit.core.errors import Conflict, Invalid, NotFound
from tpukit.places import progress
from tpukit.places.local import processes as pods
from tpukit.places.log_progress import LogProgress

SHUTDOWN = "Pod was terminated in response to imminent node shutdown."
LOST = "PodGC: node no longer exists"
_SLACK_SECONDS = 30.0
"""Seconds after the deadline for which pods may still delay the removal of a pool."""
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Fault:
    action: str  # preempt, drain, hang, lose, restore
    target: str  # a pool or a host
    grace: float = 25.0  # preempt: grace period of pods in seconds
    back: float | None = 30.0  # preempt and lose: seconds until it returns; None: only after restore
    step: int | None = None  # inject when a host of the target reports this step; None: now

    @staticmethod
    def from_json(doc: Mapping[str, Any]) -> Fault:
        try:
            fault = Fault(**doc)
        except TypeError as error:
            raise Invalid(f"a fault has action, target, grace, back and step: {error}") from error
        if fault.action not in _ACTIONS:
            raise Invalid(f"nothing here can {fault.action!r} a host", hint=f"write one of {', '.join(_ACTIONS)}")
        return fault


class Faults:
    def __init__(self, api: Api, nodes: Nodes, kubelet: Kubelet, clock: Clock, file: Path) -> None:
        self._api = api
        self._nodes = nodes
        self._kubelet = kubelet
        self._clock = clock
        self._removal = Drain(api, clock)
        self._file = file
        self._lines = LogProgress(lambda line: line.split(" ", 3)[-1])  # after the time, the stream and the tag
        known = json.loads(file.read_text(encoding="utf-8")) if file.exists() else []
        self._planned = [Fault.from_json(doc) for doc in known]

    @property
    def planned(self) -> list[Fault]:
        return list(self._planned)

    def cause(self, fault: Fault) -> None:
        pool, hosts = self._nodes.hosts(fault.target)
        if fault.step is not None:
            self._plan([*self._planned, fault])
        else:
            _log.info("%s %s", fault.action, fault.target)
            _ACTIONS[fault.action](self, fault, pool, hosts)

    def remove_pool(self, key: str, patience: float, *, budgets: bool = False) -> None:
        """Start to drain a pool for at most `patience` seconds and then remove it; `tick` does the work."""
        with suppress(NotFound):
            with self._nodes.changed(key) as record:
                asked_before = record.deadline if record.removed else None
                record.removed, record.budgets = True, budgets
                self._leave(record, patience, None)
                if asked_before is not None:
                    record.deadline = min(record.deadline, asked_before)
            for host in record.pool.nodes:
                with suppress(NotFound):
                    self._nodes.cordon(host, unschedulable=True)

    def tick(self) -> None:
        """Continue the faults and removals that are in progress."""
        now = self._clock.now()
        for record in self._nodes.pools():
            if record.presence is Presence.LEAVING:
                self._go_on_leaving(record, now)
            elif record.returns(now):
                with self._nodes.changed(record.pool.key):
                    record.presence, record.back_at, record.lost = Presence.HERE, None, {}
                self._nodes.register(record)
            for host, deadline in list(record.going.items()):
                told = [host] if host not in record.lost else []
                if self._removal.go_on(self._kubelet.on(told), deadline, budgets=True):
                    self._nodes.drop(record, host)
                    self._removal.end(self._kubelet.on(told))
            for host, back_at in list(record.lost.items()):
                if back_at is not None and now >= back_at:
                    self.cause(Fault("restore", host))
        for fault in self.planned:
            if fault.step is not None and self._step(fault.target) >= fault.step:
                self._plan([other for other in self._planned if other is not fault])
                self.cause(Fault(fault.action, fault.target, fault.grace, fault.back))

    def _preempt(self, fault: Fault, pool: str, _hosts: list[str]) -> None:
        with self._nodes.changed(pool) as record:
            if record.presence is not Presence.HERE:
                raise Conflict(f"pool {pool} is {record.presence} already")
            self._leave(record, fault.grace, fault.back)
        self._taint(record)

    def _leave(self, record: Record, grace: float, back: float | None) -> None:
        record.presence, record.deadline, record.stays_away = Presence.LEAVING, self._clock.now() + grace, back

    def _taint(self, record: Record) -> None:
        for host in record.pool.nodes:
            with suppress(NotFound):
                self._nodes.taint(host)

    def _ended(self, hosts: list[str], record: Record, deadline: float, now: float) -> bool:
        """Tell the pods of these hosts to end; return whether they did or exceeded the deadline. Skip lost hosts."""
        alive = []
        for pod in self._kubelet.on(host for host in hosts if host not in record.lost):
            if pod.get("status", {}).get("phase") in ("Succeeded", "Failed"):
                continue
            alive.append(pod)
            own = float(pod["spec"].get("terminationGracePeriodSeconds", 30))
            ending = Ending("Terminated", SHUTDOWN, min(deadline, now + own), "TerminationByKubelet")
            self._kubelet.end(pod, ending)
        return not alive or now >= deadline + _SLACK_SECONDS

    def _go_on_removing(self, record: Record) -> None:
        """Drain and remove the pool, except lost hosts: other controllers notice that their node is gone."""
        told = [host for host in record.pool.nodes if host not in record.lost]
        if self._removal.go_on(self._kubelet.on(told), record.deadline, budgets=record.budgets):
            self._nodes.unregister(record)
            self._removal.end(self._kubelet.on(told))
            self._nodes.forget(record.pool.key)

    def _go_on_leaving(self, record: Record, now: float) -> None:
        if record.removed:
            self._go_on_removing(record)
            return
        if not self._ended(list(record.pool.nodes), record, record.deadline, now):
            return
        self._nodes.unregister(record)
        with self._nodes.changed(record.pool.key):
            record.presence = Presence.AWAY
            record.back_at = None if record.stays_away is None else now + record.stays_away

    def _drain(self, _fault: Fault, _pool: str, hosts: list[str]) -> None:
        for host in hosts:
            self._nodes.cordon(host, unschedulable=True)
        for pod in self._kubelet.on(hosts):
            evict(self._api, pod)

    def _hang(self, _fault: Fault, pool: str, hosts: list[str]) -> None:
        with self._nodes.changed(pool) as record:
            record.hung = sorted({*record.hung, *hosts})
        self._signal(hosts, signal.SIGSTOP)

    def _lose(self, fault: Fault, pool: str, hosts: list[str]) -> None:
        back_at = None if fault.back is None else self._clock.now() + fault.back
        with self._nodes.changed(pool) as record:
            record.lost |= dict.fromkeys(hosts, back_at)
        for pod in self._kubelet.on(hosts):
            for run in self._runs(pod):
                pods.lose(run)

    def _restore(self, _fault: Fault, pool: str, hosts: list[str]) -> None:
        with self._nodes.changed(pool) as record:
            was_hung = [host for host in hosts if host in record.hung]
            was_lost = [host for host in hosts if host in record.lost]
        # A new machine takes its place, and no other component would report the old pods soon. Do this before the host
        # is back, so that the end of the processes is not taken for the program's own.
        for pod in self._kubelet.on(was_lost):
            self._kubelet.end(pod, Ending("NodeLost", LOST, self._clock.now(), "DeletionByPodGC"))
        with self._nodes.changed(pool) as record:
            record.hung = [host for host in record.hung if host not in hosts]
            record.lost = {host: back for host, back in record.lost.items() if host not in hosts}
            if record.presence is Presence.AWAY:
                record.presence, record.back_at = Presence.HERE, None
        self._signal(was_hung, signal.SIGCONT)
        if record.presence is Presence.HERE:
            self._nodes.register(record)
            for host in hosts:
                self._nodes.cordon(host, unschedulable=False)
        for pod in self._kubelet.on(hosts):
            self._kubelet.line.add(pod["metadata"]["uid"])

    def _signal(self, hosts: list[str], number: signal.Signals) -> None:
        for pod in self._kubelet.on(hosts):
            for run in self._runs(pod):
                for process in pods.members(run):
                    with suppress(ProcessLookupError):
                        os.kill(process, number)

    def _runs(self, pod: Object) -> list[Path]:
        found = containers(pod, self._kubelet.folder(pod))
        return [container.run_folder() for container in found if container.running]

    def _step(self, target: str) -> int:
        """Return the highest step that a running host of the target has reported."""
        try:
            _, hosts = self._nodes.hosts(target)
        except NotFound:
            return -1
        runs = [run for pod in self._kubelet.on(hosts) for run in self._runs(pod)]
        return max((step for run in runs if (step := self._step_of(run)) is not None), default=-1)

    def _step_of(self, run: Path) -> int | None:
        """Return the step from the program's progress report, or else from its output."""
        now = self._clock.now()
        reported = progress.read(run / PROGRESS, now).step
        if reported is not None:
            return reported
        said = [self._lines.read(log, "", now).step for log in pods.log_files(run)]
        return max((step for step in said if step is not None), default=None)

    def _plan(self, faults: list[Fault]) -> None:
        self._planned = faults
        write_json(self._file, [asdict(fault) for fault in faults])


_ACTIONS: Mapping[str, Callable[[Faults, Fault, str, list[str]], None]] = {
    "preempt": Faults._preempt,
    "drain": Faults._drain,
    "hang": Faults._hang,
    "lose": Faults._lose,
    "restore": Faults._restore,
}
