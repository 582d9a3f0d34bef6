"""Samples of one job, from the lines of its hosts and from its pods. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from tpukit.cluster.verify.checks import NAMES, Sample
from tpukit.places.gke.jobsets import host_of

Doc = Mapping[str, Any]
LINE = "tpukit-verify "
"""Prefix of the lines of `tpukit.host.probe`."""
_PULL = ("ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull")


@dataclass(frozen=True, slots=True)
class Heard:
    """A line of a host, and when it could be read here."""

    document: Mapping[str, Any]
    arrived: float

    @property
    def host(self) -> str:
        return str(self.document["host"])

    @property
    def at(self) -> float:
        return float(self.document["at"])

    @property
    def told(self) -> float | None:
        """When SIGTERM came, if it did."""
        told = self.document.get("told")
        return None if told is None else float(told)


@dataclass(frozen=True, slots=True)
class Evidence:
    """Everything known of one job."""

    heard: Sequence[Heard] = ()
    pods: Sequence[Doc] = ()
    asked: float | None = None  # when the job was stopped; the pods know it better, while they can be read
    why: str = ""  # why the job did not report in full
    refused: Mapping[str, str] = field(default_factory=dict)  # checks that the end of the job decides, and its words


def parse(text: str, arrived: float) -> Heard | None:
    """Return the measurements in a line of a log; None if it is another line, or damaged."""
    if not text.startswith(LINE):
        return None
    try:
        heard = Heard(json.loads(text.removeprefix(LINE)), arrived)
        return heard if heard.host and heard.at >= 0 else None
    except (ValueError, KeyError, TypeError):
        return None


def complete(heard: Iterable[Heard]) -> set[str]:
    """Return the hosts that have measured everything."""
    return {one.host for one in heard if one.document.get("done")}


def left(heard: Iterable[Heard]) -> set[str]:
    """Return the hosts that reported SIGTERM."""
    return {one.host for one in heard if one.told is not None}


def samples(job: str, evidence: Evidence) -> list[Sample]:
    pulls = {_short(job, host_of(pod)): _image(pod) for pod in evidence.pods}
    leaving = {_short(job, host_of(pod)): _leaving(pod) for pod in evidence.pods}
    by_host: dict[str, list[Heard]] = {}
    for one in evidence.heard:
        by_host.setdefault(one.host, []).append(one)
    return [
        _sample(host, by_host.get(host, []), pulls.get(host), leaving.get(host), evidence)
        for host in sorted({*by_host, *(host for host, pull in pulls.items() if pull is not None)})
    ] + ([Sample("all", dict(evidence.refused))] if evidence.refused else [])


def nodes(pods: Iterable[Doc]) -> set[str]:
    return {name for pod in pods if (name := pod.get("spec", {}).get("nodeName"))}


def _sample(
    host: str, heard: Sequence[Heard], pull: float | str | None, leaving: float | None, evidence: Evidence
) -> Sample:
    values: dict[str, float | str] = {}
    unseen: dict[str, str] = {}
    if heard:
        last = max(heard, key=lambda one: one.at)
        values = {name: said for name, said in last.document.get("values", {}).items() if _usable(name, said)}
        unseen = {name: str(said) for name, said in last.document.get("unseen", {}).items()}
        values["logs"] = max(0.0, min(one.arrived - one.at for one in heard))
    told = next((one.told for one in heard if one.told is not None), None)
    asked = evidence.asked if leaving is None else leaving
    if told is not None and asked is not None:
        values["notice"] = max(0.0, told - asked)
    elif evidence.asked is not None:
        unseen["notice"] = "no line reported SIGTERM before the pod was gone"
    if pull is not None:
        values["image"] = pull
    return Sample(host, values, unseen)


def _usable(name: str, said: object) -> bool:
    return name in NAMES and isinstance(said, (int, float, str)) and not isinstance(said, bool)


def _image(pod: Doc) -> float | str | None:
    """Return the seconds from the pod's node to the start of its container, or why its image cannot be pulled."""
    status = pod.get("status", {})
    conditions = {one["type"]: one for one in status.get("conditions", []) if one.get("status") == "True"}
    placed = conditions.get("PodScheduled", {}).get("lastTransitionTime") or status.get("startTime")
    started = []
    for box in status.get("containerStatuses", []):
        state = box.get("state", {})
        waiting = state.get("waiting", {})
        if waiting.get("reason") in _PULL:
            return f"{waiting['reason']}: {waiting.get('message', '')}".rstrip(": ")
        began = state.get("running", {}).get("startedAt") or state.get("terminated", {}).get("startedAt")
        if began:
            started.append(_seconds(began))
    return max(0.0, max(started) - _seconds(placed)) if placed and started else None


def _leaving(pod: Doc) -> float | None:
    """Return when the deletion of a pod was requested: its timestamp is the end of the grace."""
    metadata = pod["metadata"]
    due = metadata.get("deletionTimestamp")
    return _seconds(due) - float(metadata.get("deletionGracePeriodSeconds") or 0) if due else None


def _seconds(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def _short(job: str, host: str) -> str:
    """Return SLICE-HOST of a host's full name."""
    return "-".join(host.removeprefix(f"{job}-").rsplit("-", 2)[-2:])
