"""Observe many attempts in one zone, with one list of its TPU VMs and concurrent requests to all hosts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tpukit.core.clock import Clock
from tpukit.core.errors import Denied, TpukitError, Transient
from tpukit.goodput.causes import Cause
from tpukit.google.tpu_vm import Node, Queued, TpuVms
from tpukit.jobs.reasons import Reason, State
from tpukit.places import lines, log_tail, progress
from tpukit.places.base import FollowUp, Handle, Observation
from tpukit.places.local import processes as pods
from tpukit.places.local.processes import Phase
from tpukit.places.log_progress import LogProgress
from tpukit.places.tpu_vm import outcome, renewals, target
from tpukit.places.tpu_vm.asking import Hosts, bytes_of
from tpukit.places.tpu_vm.channel import Answer, Call, Login
from tpukit.places.tpu_vm.log_store import LogStore
from tpukit.places.tpu_vm.machines import Machines, assess, state_of
from tpukit.places.tpu_vm.outcome import Report

_Key = tuple[str, int, int]  # job, attempt, number of the host


@dataclass(frozen=True, slots=True)
class Observer:
    client: TpuVms
    hosts: Hosts
    logs: LogStore
    clock: Clock
    lines: LogProgress = field(default_factory=LogProgress)
    silent: dict[_Key, float] = field(default_factory=dict)  # hosts that do not answer, since when

    def observe(self, handles: Sequence[Handle]) -> Sequence[Observation | TpukitError]:
        """Observe attempts of one zone."""
        machines = self._machines(handles)
        self._forget(handles, machines)
        asked = [
            self._calls(handle, seen) if seen.ready else [] for handle, seen in zip(handles, machines, strict=True)
        ]
        answers = iter(self.hosts.channel.ask([call for calls in asked for call in calls if call is not None]))
        return [
            self._observed(handle, seen, [None if call is None else next(answers) for call in calls])
            for handle, seen, calls in zip(handles, machines, asked, strict=True)
        ]

    def read_logs(self, handle: Handle, names: Sequence[str]) -> bool:
        """Copy all log lines of these hosts to this machine; return whether more may come later."""
        (machines,) = self._machines([handle])
        if not machines.ready:
            return bool(machines.waits)
        more = True
        while more:
            more = running = False
            for index, answer in self._ask(handle, machines, names):
                if isinstance(answer, TpukitError) or "attempts" not in answer:
                    continue
                (facts,) = answer["attempts"]
                more = self.logs.take(handle, handle.plan.host_names[index], facts.get("log")) or more
                running = running or bool(facts["locked"])
        return running

    def tail(self, handle: Handle, host: str, size: int) -> list[str]:
        """Return the last lines of a host's log, from the local copy if the host is unreachable."""
        stored = self.logs.path(handle, host)
        (machines,) = self._machines([handle])
        piece = self._piece(handle, machines, host, None) if machines.ready else None
        if piece is None:
            return lines.tail(stored, size)
        if not self.logs.add(handle, host, piece):
            return lines.tail(stored, size)
        # The local copy only has the beginning: read the end, without storing a log with a gap.
        piece = self._piece(handle, machines, host, max(0, piece["size"] - size))
        return lines.split(bytes_of(piece), cut=piece["at"] > 0) if piece else lines.tail(stored, size)

    def _piece(self, handle: Handle, machines: Machines, host: str, position: int | None) -> Mapping[str, Any] | None:
        for _, answer in self._ask(handle, machines, [host], position):
            if not isinstance(answer, TpukitError) and "attempts" in answer:
                (facts,) = answer["attempts"]
                found: Mapping[str, Any] | None = facts.get("log")
                return found
        return None

    def _ask(
        self, handle: Handle, machines: Machines, names: Sequence[str], position: int | None = None
    ) -> list[tuple[int, Answer | TpukitError]]:
        calls = enumerate(self._calls(handle, machines, position))
        chosen = [(i, call) for i, call in calls if call is not None and handle.plan.host_names[i] in names]
        answers = self.hosts.channel.ask([call for _, call in chosen])
        return [(index, answer) for (index, _), answer in zip(chosen, answers, strict=True)]

    def _machines(self, handles: Sequence[Handle]) -> list[Machines]:
        zone = target.of(handles[0].plan).zone
        nodes = {one.name: one for one in self.client.nodes(zone)}
        self.hosts.keep_only(zone, {one.id for one in nodes.values()})
        # List requests only if a TPU VM is missing, or hardware may have to be released.
        calm = all(_is_ready(handle, nodes) for handle in handles)
        queued: dict[str, Queued] = {} if calm else {one.name: one for one in self.client.queued(zone)}
        store = target.store_label(self.hosts.sender())
        return [assess(handle, nodes, queued, store) for handle in handles]

    def _forget(self, handles: Sequence[Handle], machines: Sequence[Machines]) -> None:
        """Forget silent hosts of attempts that are over: a job may be preempted for weeks."""
        if not self.silent:
            return
        current = {
            one.plan.id: one.attempt.number if seen.ready else -1 for one, seen in zip(handles, machines, strict=True)
        }
        for key in [key for key in list(self.silent) if current.get(key[0], key[1]) != key[1]]:
            self.silent.pop(key, None)

    def _calls(self, handle: Handle, machines: Machines, position: int | None = None) -> list[Call | None]:
        there = [None if index in machines.gone else node for index, node in enumerate(machines.nodes)]
        logins: list[Login | None] = self.hosts.logins(handle.plan, there)
        positions = [
            self.logs.position(handle, name) if position is None else position for name in handle.plan.host_names
        ]
        keys = [(handle.plan.id, handle.attempt.number, index) for index in range(len(logins))]
        return self.hosts.status(handle, logins, positions, [key in self.silent for key in keys])

    def _observed(
        self, handle: Handle, machines: Machines, answers: Sequence[Answer | TpukitError | None]
    ) -> Observation | TpukitError:
        if not machines.ready:
            return _unready(machines)
        now, monotonic = self.clock.now(), self.clock.monotonic()
        reports = [
            self._report(handle, machines, index, answer, now, monotonic) for index, answer in enumerate(answers)
        ]
        errors = [answer for answer in answers if isinstance(answer, TpukitError)]
        judged = outcome.judge(handle, machines, reports, now, monotonic)
        pending = judged.observation.state is State.PENDING
        if any(isinstance(error, Denied) for error in errors) and not self.hosts.is_admitted(handle.plan, machines):
            return judged.observation if pending else replace(judged.observation, follow_up=FollowUp(admit=True))
        if judged.unseen and not handle.attempt.state.ended:
            if handle.cancelled:  # the stop itself reports unreachable hosts, and deletes what the job created
                return replace(judged.observation, active=True)
            return _unseen(handle, machines, errors)
        if errors and pending:
            return errors[0]
        seen, silent = judged.observation, max((report.silent for report in reports), default=0.0)
        if seen.state is State.RUNNING and renewals.are_due(handle.plan, machines, silent, now):
            return replace(seen, follow_up=replace(seen.follow_up or FollowUp(), renew=True))
        return seen

    def _report(
        self, handle: Handle, machines: Machines, index: int, answer: Answer | TpukitError | None, now: float, at: float
    ) -> Report:
        key = handle.plan.id, handle.attempt.number, index
        if gone := machines.gone.get(index // handle.plan.slice.hosts):
            return Report(gone=gone)
        if answer is None or isinstance(answer, TpukitError) or "attempts" not in answer:
            return Report(silent=at - self.silent.setdefault(key, at))
        self.silent.pop(key, None)
        (facts,) = answer["attempts"]
        name = handle.plan.host_names[index]
        if self.logs.take(handle, name, facts.get("log")) and facts["end"]:
            self.read_logs(handle, [name])  # its last lines decide the verdict
        return self._with_log(handle, name, outcome.report_of(facts, now), now)

    def _with_log(self, handle: Handle, name: str, report: Report, now: float) -> Report:
        """Return the report with what the log read so far contains."""
        file = self.logs.path(handle, name)
        said, state = report.progress, report.state
        pattern = handle.plan.spec.progress or ""
        report = replace(report, progress=progress.first_of(said, lambda: self.lines.read(file, pattern, now)))
        if state is None or state.phase is not Phase.ENDED:
            return report
        finished = state.signalled and log_tail.finished(pods.tail(file.parent, until=state.told_at))
        return replace(report, tail=pods.tail(file.parent), finished=finished)


def _is_ready(handle: Handle, nodes: dict[str, Node]) -> bool:
    there = [nodes.get(name) for name in target.nodes(handle.plan)]
    renewing = handle.attempt.action == "reapply" and not handle.attempt.learned
    return all(node is not None and node.state == "READY" for node in there) and not renewing


def _unseen(handle: Handle, machines: Machines, errors: Sequence[TpukitError]) -> TpukitError:
    """Return the error of an attempt that may well run: as far as known, only our connection to its hosts failed."""
    error = errors[0] if errors else Transient("no host key is published")
    names = ", ".join(node.name for node in machines.nodes if node is not None)
    words = f"hosts of {handle.plan.id} are not reachable over SSH: {error.message}; the API says that {names} is READY"
    return Denied(words, hint=error.hint) if isinstance(error, Denied) else Transient(words, hint=error.hint)


def _unready(machines: Machines) -> Observation:
    reason: Reason | None = Reason.NO_CAPACITY if machines.short else None
    words = machines.waits
    if machines.failed is not None:
        reason, words = machines.failed.reason, machines.failed.words
    return Observation(
        state_of(machines),
        reason=reason,
        detail=words,
        active=bool(machines.waits) and machines.held,
        held=machines.held,
        waits_as=Cause.MAKING if machines.waits and not machines.short else Cause.WAITING,
    )
