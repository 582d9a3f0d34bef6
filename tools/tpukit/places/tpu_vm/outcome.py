"""The outcome of an attempt, from all its hosts and its TPU VMs together. Input and output are plain data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from tpukit.jobs.reasons import Reason, State
from tpukit.places import peers, progress
from tpukit.places.base import FollowUp, Handle, HostView, Observation
from tpukit.places.local import processes as pods
from tpukit.places.local.processes import Phase, PodState
from tpukit.places.progress import Progress
from tpukit.places.tpu_vm.machines import NODES, Gone, Machines
from tpukit.places.verdict import KILLED, TERMINATED, HostEnd, Verdict, verdict

SILENT_SECONDS = 240.0
"""Time without an answer after which a host counts as lost, once a peer of its attempt has failed.

A TPU VM that reboots takes minutes, and resumes on the same hardware.

Silence alone is no evidence: our own connection to the host may be broken. A peer that failed, or whose TPU VM is gone,
is evidence that the attempt cannot continue, whatever the silent host does.
"""
NOTHING = Progress()
_SHOWN = {Phase.ABSENT: "waiting", Phase.RUNNING: "running", Phase.ENDED: "ended", Phase.LOST: "lost"}


@dataclass(frozen=True, slots=True)
class Report:
    """The state that one host reported, or the reason why it reported none."""

    state: PodState | None = None  # None: no request, or no answer
    frozen: bool = False
    progress: Progress = NOTHING
    tail: Sequence[str] = ()  # of a host that has ended
    finished: bool = False  # it had finished before the request to stop, by its progress or log
    stop_requested: bool = False
    saved: int = -1  # the newest checkpoint in its workdir
    gone: Gone | None = None
    silent: float = 0.0  # seconds without an answer

    @property
    def seen(self) -> bool:
        return self.state is not None or self.gone is not None


@dataclass(frozen=True, slots=True)
class Judgement:
    observation: Observation
    unseen: bool = False  # no host of a begun attempt is visible: `observation` is the earlier state


def report_of(answer: dict[str, Any], now: float) -> Report:
    """Convert the supervisor's `answer` about one attempt. Clocks of hosts and this machine may differ a little."""
    said = answer.get("progress")
    return Report(
        state=pods.state_of(answer["began"], answer["end"], locked=answer["locked"], stopping=answer["stop"]),
        frozen=bool(answer.get("frozen")),
        progress=progress.parse(said["text"], min(now, said["at"])) if said else NOTHING,
        stop_requested=bool(answer["stop"]),
        saved=int(answer.get("saved", -1)),
    )


def judge(handle: Handle, machines: Machines, reports: Sequence[Report], now: float, heard: float) -> Judgement:
    """Return the outcome of an attempt.

    `reports`: host by host, slice by slice. `heard`: now, on the monotonic clock.
    """
    begun = bool(handle.attempt.learned.get(NODES))
    hosts = tuple(_view(handle, machines, index, report, heard) for index, report in enumerate(reports))
    saved = max((host.saved for host in hosts), default=-1)
    states = [report.state for report in reports]
    alive = [index for index, state in enumerate(states) if state is not None and state.phase is Phase.RUNNING]
    silent = [index for index, report in enumerate(reports) if not report.seen]
    absent = [index for index, state in enumerate(states) if state is not None and state.phase is Phase.ABSENT]
    if not begun and (absent or silent):
        return Judgement(
            Observation(State.PENDING, hosts, saved=saved, active=bool(alive or silent), held=machines.held)
        )
    learned = {} if begun else {NODES: [node.id for node in machines.nodes if node is not None]}
    started = max((state.began for state in states if state is not None), default=0.0)
    seen = Observation(
        State.RUNNING,
        hosts,
        started,
        saved,
        held=machines.held,
        ran=max(0.0, now - started) if started else 0.0,
        learned=learned,
    )
    failed = [index for index, report in enumerate(reports) if index not in silent and _failed(report)]
    if len(silent) == len(reports):
        return Judgement(seen, unseen=True)
    waited = all(reports[index].silent >= SILENT_SECONDS for index in silent)
    if alive or (silent and not (failed and waited)):
        return Judgement(_with_peers_leaving(handle, seen, reports, failed, alive, now))
    return Judgement(_ended(handle, seen, reports, now))


def _failed(report: Report) -> bool:
    state = report.state
    return state is None or state.phase in (Phase.LOST, Phase.ABSENT) or bool(state.code) or _left(report)


def _left(report: Report) -> bool:
    """Return whether it stopped on request with exit code 0, which would otherwise mean success."""
    state = report.state
    return state is not None and state.phase is Phase.ENDED and state.signalled and state.code == 0


def _with_peers_leaving(
    handle: Handle,
    seen: Observation,
    reports: Sequence[Report],
    failed: Sequence[int],
    alive: Sequence[int],
    now: float,
) -> Observation:
    if not failed:
        return seen
    states = [reports[index].state for index in failed]
    left = any(_left(reports[index]) for index in failed)
    since = min((state.ended for state in states if state is not None and state.ended), default=0.0)
    codes = [KILLED if state is None else state.code for state in states]
    wait, grace = peers.leave([*codes, TERMINATED] if left else codes, float(handle.plan.spec.max.grace))
    told = tuple(handle.plan.host_names[index] for index in alive if not reports[index].stop_requested)
    return replace(seen, follow_up=FollowUp(leave=told, grace=grace)) if told and now - since >= wait else seen


def _ended(handle: Handle, seen: Observation, reports: Sequence[Report], now: float) -> Observation:
    names = handle.plan.host_names
    ends = [_end(name, report, now) for name, report in zip(names, reports, strict=True)]
    silent = [(name, report.silent) for name, report in zip(names, reports, strict=True) if not report.seen]
    found = verdict(ends)
    if silent and found.reason is Reason.PEER_LOST:
        name, seconds = silent[0]
        words = f"it has not responded for {seconds:.0f} s, and its peers lost their connection to it"
        found = Verdict(Reason.HOST_LOST, name, words)
    return replace(
        seen,
        state=State.COMPLETED if found.reason is Reason.DONE else State.FAILED,
        reason=found.reason,
        host=found.host,
        detail=found.detail,
        active=bool(silent),  # part of it may still run
        ended=max((report.state.ended for report in reports if report.state is not None), default=0.0) or now,
    )


def _end(name: str, report: Report, now: float) -> HostEnd:
    state = report.state
    if not report.seen:  # it is not blamed for what its peers report
        return HostEnd(name, TERMINATED, order=now, signalled_by_us=True)
    if state is None or report.gone is not None:
        gone = report.gone or Gone(Reason.HOST_LOST, "")
        return HostEnd(name, KILLED, order=now, lost=True, taken=gone.reason, how=gone.words)
    lost = state.phase in (Phase.LOST, Phase.ABSENT)
    return HostEnd(
        name,
        code=KILLED if lost else state.code,
        order=state.ended or now,  # hosts share no other clock
        lost=lost,
        there=True,
        signalled_by_us=state.signalled,
        error=state.error,
        out_of_memory=state.out_of_memory,
        disk_full=state.disk_full,
        finished=report.finished or report.progress.finished,
        tail=report.tail,
    )


def _view(handle: Handle, machines: Machines, index: int, report: Report, heard: float) -> HostView:
    slice_index, host_index = divmod(index, handle.plan.slice.hosts)
    node, state, said = machines.nodes[slice_index], report.state, report.progress
    shown = "lost" if report.gone else "running" if state is None else _SHOWN[state.phase]
    return HostView(
        handle.plan.host_names[index],
        slice=slice_index,
        index=host_index,
        state="stopped" if report.frozen and shown == "running" else shown,
        node=f"{node.name} worker {host_index}" if node else "",
        code=state.code if state is not None and state.phase in (Phase.ENDED, Phase.LOST) else None,
        step=said.step,
        loss=said.loss,
        steps_per_s=said.steps_per_s,
        saved=said.saved if said.saved >= 0 else report.saved,
        total=said.planned or said.total,
        moved=said.moved,
        heard=heard if state is not None else 0.0,
        pace=said.pace,
        early=said.early,
        beat=said.beat,
        cpu=said.cpu,
        saves=said.saves,
    )
