"""Records of how an attempt's hosts ended, to be stored with the attempt for when the pods are gone. Pure."""

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
"""Number of hosts whose end a record holds, the first that ended. One slice may have thousands."""
TAILS_RECORDED, TAIL_LINES, TAIL_CHARACTERS = 3, 40, 3000
HOST_CONTAINER = "host"
_MAINTENANCE = ("cloud.google.com/active-node-maintenance", "cloud.google.com/scheduled-maintenance-time")
_SAY_NOTHING = ("Error", "Completed", "Terminated")
"""Messages of a kubelet that add nothing to the exit code."""
_SHOWN = {"Pending": "waiting", "Running": "running", "Succeeded": "ended", "Failed": "ended"}


class HostRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """The last known state of a pod, which may be gone."""

    uid: str = ""
    node: str = ""
    phase: str = "Pending"
    began: float = 0.0
    ended: float = 0.0
    code: int | None = None
    said: str = ""  # reason and message of its end
    disrupted: str = ""  # reason of the condition DisruptionTarget
    maintenance: bool = False  # of the node, when it was last seen
    deleted: bool = False  # its removal was requested before it ended
    out_of_memory: bool = False
    lost: str = ""  # the evidence that its node was lost
    tail: tuple[str, ...] = ()  # of its log
    step: int | None = None  # as last reported, as are the next two
    loss: float | None = None
    saved: int = -1

    @staticmethod
    def of(pod: Doc, node: Doc | None = None, before: HostRecord | None = None) -> HostRecord:
        """Return the record of a pod. `before` is the earlier record of the host, ignored if it is of another pod."""
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
        """Return whether the record explains anything about why an attempt ended."""
        return bool(self.disrupted or self.lost or self.ended or self.deleted or self.phase in TERMINAL)

    @property
    def failed(self) -> bool:
        return self.phase == "Failed" or self.code not in (None, 0)


# msgspec inspects a type on first use, and crashes if two threads do so at once.
msgspec.json.Decoder(HostRecord)

Records = dict[str, HostRecord]
"""Records by host name."""


def recorded(learned: Mapping[str, Any]) -> Records:
    return {str(name): msgspec.convert(doc, HostRecord) for name, doc in (learned.get("hosts") or {}).items()}


def to_record(records: Mapping[str, HostRecord]) -> dict[str, Any]:
    """Return the records to store: the most relevant first, with log tails for a few that failed."""
    telling = sorted(
        ((name, one) for name, one in records.items() if one.tells),
        key=lambda pair: (not (pair[1].disrupted or pair[1].lost), not pair[1].failed, pair[1].ended, pair[0]),
    )[:MOST_RECORDED]
    tails = {name for name, one in [pair for pair in telling if pair[1].tail][:TAILS_RECORDED]}
    return {name: msgspec.to_builtins(one if name in tails else replace(one, tail=())) for name, one in telling}


class PodRecords:
    """A cache of records of running pods, by their very document, since few of thousands change in a round."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[Doc, str, HostRecord]] = {}

    def of(self, pod: Doc) -> tuple[str, HostRecord] | None:
        """Return the host's name and its record; None for a pod that is no training host."""
        known = self._known.get(pod["metadata"]["uid"])
        if known is None or known[0] is not pod:
            if label(pod, REPLICATED_JOB) != SLICE_JOB:
                return None
            known = self._known[pod["metadata"]["uid"]] = pod, host_of(pod), HostRecord.of(pod)
        return known[1:]

    def forget(self, most: int) -> None:
        """Clear the cache if it holds more than `most` records, which includes those of removed pods."""
        if len(self._known) > most:
            self._known.clear()


def merged(
    before: Mapping[str, HostRecord],
    pods: Iterable[Doc],
    nodes: Mapping[str, Doc],
    made: PodRecords | None = None,
) -> Records:
    """Return the known records, updated from the current pods."""
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
    """Return the records of an ending attempt, with the last progress of each host."""
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
    """Return the views of all hosts of the plan. If the attempt is over, none of them run, whatever was last seen."""
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
        beat=said.beat,
        cpu=said.cpu,
        saves=said.saves,
    )


def _cut(lines: Sequence[str]) -> tuple[str, ...]:
    """Return the last lines that a record can hold, or those from the cause on where the tail begins with it.

    Shorten a traceback that is too long by its frames first, because its last line names the error.
    """
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
