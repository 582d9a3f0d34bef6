"""Hosts of an attempt: how their pods ended, in a form that the attempt's record holds when the pods are gone. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from tpukit.jobs.plan import SLICE_JOB, Plan
from tpukit.places import log_tail
from tpukit.places.base import HostView
from tpukit.places.gke.jobsets import REPLICATED_JOB, TERMINAL, Doc, host_of, label, phase, seconds, true_condition
from tpukit.places.log_tail import Cause
from tpukit.places.progress import Progress

MOST_RECORDED = 32
"""Hosts of which a record holds the end: the first that ended. One slice may have thousands."""
TAILS_RECORDED, TAIL_LINES, TAIL_CHARACTERS = 3, 40, 3000
HOST_CONTAINER = "host"
_MAINTENANCE = ("cloud.google.com/active-node-maintenance", "cloud.google.com/scheduled-maintenance-time")
_SAY_NOTHING = ("Error", "Completed", "Terminated")
"""Words of a kubelet that say no more than the exit code does."""
_SHOWN = {"Pending": "waiting", "Running": "running", "Succeeded": "ended", "Failed": "ended"}


class HostRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is known of a pod, also when it is gone."""

    uid: str = ""
    node: str = ""
    phase: str = "Pending"
    began: float = 0.0
    ended: float = 0.0
    code: int | None = None
    said: str = ""  # reason and message of its end
    disrupted: str = ""  # reason of the condition DisruptionTarget
    maintenance: bool = False  # of the node, when it was last seen
    deleted: bool = False  # somebody had asked for its removal before it ended
    out_of_memory: bool = False
    lost: str = ""  # how it is known that its node was lost
    tail: tuple[str, ...] = ()  # of its log
    step: int | None = None  # as it last reported, as are the next two
    loss: float | None = None
    saved: int = -1

    @staticmethod
    def of(pod: Doc, node: Doc | None = None, before: HostRecord | None = None) -> HostRecord:
        """`before`: the same host as it was known; of another pod, it counts for nothing."""
        uid = str(pod["metadata"]["uid"])
        if before is not None and before.uid != uid:
            before = None
        status = pod.get("status", {})
        ended = (_container(status) or {}).get("state", {}).get("terminated") or {}
        disrupted = true_condition(pod, "DisruptionTarget")
        done = phase(pod) in TERMINAL
        words = [status.get("reason"), status.get("message"), ended.get("reason"), ended.get("message")]
        labels = (node["metadata"].get("labels") or {}) if node else {}
        asked = "deletionTimestamp" in pod["metadata"] and not disrupted
        return HostRecord(
            uid=uid,
            node=pod.get("spec", {}).get("nodeName") or "",
            phase=phase(pod),
            began=seconds(status.get("startTime")),
            ended=seconds(ended.get("finishedAt")),
            code=ended.get("exitCode"),
            said=": ".join(dict.fromkeys(word.strip(" .\n") for word in words if word and word not in _SAY_NOTHING))[
                :500
            ],
            disrupted=str(disrupted.get("reason") or "Disrupted") if disrupted else "",
            maintenance=any(key in labels for key in _MAINTENANCE) or bool(before and before.maintenance),
            deleted=(before.deleted if before and done else False) or (asked and not done),
            out_of_memory=ended.get("reason") == "OOMKilled",
            lost=before.lost if before else "",
            tail=before.tail if before else (),
            step=before.step if before else None,
            loss=before.loss if before else None,
            saved=before.saved if before else -1,
        )

    @property
    def tells(self) -> bool:
        """Whether it says something about why an attempt ended."""
        return bool(self.disrupted or self.lost or self.ended or self.deleted or self.phase in TERMINAL)

    @property
    def failed(self) -> bool:
        return self.phase == "Failed" or self.code not in (None, 0)


# msgspec finds out what a type is made of when it first reads one, and crashes if another thread does so meanwhile.
msgspec.json.Decoder(HostRecord)

Records = dict[str, HostRecord]
"""By the host's name."""


def recorded(learned: Mapping[str, Any]) -> Records:
    return {str(name): msgspec.convert(doc, HostRecord) for name, doc in (learned.get("hosts") or {}).items()}


def to_record(records: Mapping[str, HostRecord]) -> dict[str, Any]:
    """Those that tell something, the first that ended before others; the log's last lines of a few that failed."""
    telling = sorted(
        ((name, one) for name, one in records.items() if one.tells),
        key=lambda pair: (not (pair[1].disrupted or pair[1].lost), not pair[1].failed, pair[1].ended, pair[0]),
    )[:MOST_RECORDED]
    tails = {name for name, one in [pair for pair in telling if pair[1].tail][:TAILS_RECORDED]}
    return {name: msgspec.to_builtins(one if name in tails else replace(one, tail=())) for name, one in telling}


class PodRecords:
    """Records of pods that just run, by the very document they were made from: of thousands few change in a round."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[Doc, str, HostRecord]] = {}

    def of(self, pod: Doc) -> tuple[str, HostRecord] | None:
        """The host's name and its record; None for a pod that trains nothing."""
        known = self._known.get(pod["metadata"]["uid"])
        if known is None or known[0] is not pod:
            if label(pod, REPLICATED_JOB) != SLICE_JOB:
                return None
            known = self._known[pod["metadata"]["uid"]] = pod, host_of(pod), HostRecord.of(pod)
        return known[1:]

    def forget(self, most: int) -> None:
        """All, where there are more than so many: those of pods that are gone are among them."""
        if len(self._known) > most:
            self._known.clear()


def merged(
    before: Mapping[str, HostRecord],
    pods: Iterable[Doc],
    nodes: Mapping[str, Doc],
    made: PodRecords | None = None,
) -> Records:
    """What is known of hosts, brought up by their pods as they are now."""
    known, made = dict(before), made or PodRecords()
    for pod in pods:
        if one := made.of(pod):
            name, record = one
            if record.tells or nodes:
                node = nodes.get(pod.get("spec", {}).get("nodeName") or "")
                record = HostRecord.of(pod, node, known.get(name))
            known[name] = record
    return known


def with_tails(records: Mapping[str, HostRecord], tails: Mapping[str, Sequence[str]]) -> Records:
    return {
        name: replace(one, tail=_cut(tails[name])) if tails.get(name) and one.tells else one
        for name, one in records.items()
    }


def with_progress(records: Mapping[str, HostRecord], progress: Mapping[str, tuple[Progress, float]]) -> Records:
    """Records of an attempt that ends, with how far each host was."""
    return {
        name: replace(one, step=said.step, loss=said.loss, saved=max(one.saved, said.saved))
        if (said := progress.get(name, (Progress(), 0.0))[0]).step is not None
        else one
        for name, one in records.items()
    }


def views(
    plan: Plan,
    records: Mapping[str, HostRecord],
    progress: Mapping[str, tuple[Progress, float]],
    *,
    over: bool = False,
) -> tuple[HostView, ...]:
    """All hosts of the plan. Those of an attempt that is over do not run, whatever was last seen of them."""
    return tuple(
        _view(name, index, plan.slice.hosts, records.get(name), *progress.get(name, (Progress(), 0.0)), over=over)
        for index, name in enumerate(plan.host_names)
    )


def _view(
    name: str, index: int, per_slice: int, record: HostRecord | None, said: Progress, heard: float, *, over: bool
) -> HostView:
    state = _SHOWN.get(record.phase, "lost") if record else "waiting"
    return HostView(
        name,
        slice=index // per_slice,
        index=index % per_slice,
        state="ended" if over else state,
        node=record.node if record else "",
        code=record.code if record else None,
        step=record.step if record and said.step is None else said.step,
        loss=record.loss if record and said.step is None else said.loss,
        steps_per_s=said.steps_per_s,
        saved=max(said.saved, record.saved if record else -1),
        total=said.planned or said.total,
        moved=said.moved,
        heard=heard,
        pace=said.pace,
        early=said.early,
    )


def _cut(lines: Sequence[str]) -> tuple[str, ...]:
    """The last ones, as many as a record holds; where they begin with the cause, those that follow it. Of a traceback
    too long for that, the frames are left out first: its last line says what it was."""
    cause = log_tail.read(lines)
    if cause.cause is not Cause.UNKNOWN:
        first = cause.rest.count("\n") + 1
        rest = lines[len(lines) - first :]
        for indent in ("", "    ", " "):
            kept = _fitting([line for line in rest if not indent or not line.startswith(indent)][:TAIL_LINES])
            if log_tail.read(kept).cause is cause.cause:
                break
        return kept
    return tuple(reversed(_fitting(tuple(reversed(lines[-TAIL_LINES:])))))


def _fitting(lines: Sequence[str]) -> tuple[str, ...]:
    taken: list[str] = []
    room = TAIL_CHARACTERS
    for line in lines:
        room -= len(line)
        if room < 0:
            break
        taken.append(line)
    return tuple(taken)


def _container(status: Doc) -> Mapping[str, Any] | None:
    statuses: list[Mapping[str, Any]] = status.get("containerStatuses", [])
    return next((one for one in statuses if one["name"] == HOST_CONTAINER), statuses[0] if statuses else None)
