"""Host logs for the user: from the pods while they exist, else from this machine, else from Cloud Logging.

Lines are passed on as they are read, each once and in order for each host; a broken connection is reopened.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tpukit.core.clock import Clock
from tpukit.core.errors import NotFound, TpukitError, Transient
from tpukit.jobs.plan import UPLOADER_JOB
from tpukit.jobs.reasons import State
from tpukit.places.base import Handle, Line
from tpukit.places.gke import log_lines
from tpukit.places.gke.attempts import Position, Where, locate
from tpukit.places.gke.jobsets import RESTART, UID, Doc, JobSetState, host_of, label, phase
from tpukit.places.gke.log_cache import LogCache
from tpukit.places.gke.namespace import Lister
from tpukit.places.gke.pod_log import PodLog, Target

FOLLOW_SECONDS = 1.0
AT_ONCE = 8
TRIES = 5
TAIL_LINES = 50
Archive = Callable[[Handle, str], Iterator[Line]]
"""Lines of an attempt, of one host or of all, from long-term storage."""


@dataclass(frozen=True, slots=True)
class LogReader:
    lister: Lister
    clock: Clock
    cache: Callable[[Handle, str], Path]
    archive: Archive

    def logs(self, handle: Handle, host: str, *, follow: bool) -> Iterator[Line]:
        names = [host] if host else [*handle.plan.host_names, f"{handle.plan.id}-{UPLOADER_JOB}-0-0"]
        state = self.lister.fresh(handle.plan.team, handle.plan.id)
        going_on = _goes_on(handle, state)
        pods = self._pods(handle, state, names)
        if not pods and not (follow and going_on):
            yield from self._from_elsewhere(handle, host, names)
            return
        logs: dict[str, PodLog] = {}
        for name in names:  # local lines first: hosts drop the beginning of a long log
            yield from _lines(name, LogCache(self.cache(handle, name)).lines())
        while True:
            self._open(handle, logs, pods)
            try:
                yield from self._rest(logs)
            except Transient:
                if not follow or not going_on:
                    raise
            if not follow or not going_on:
                return
            self.clock.sleep(max(FOLLOW_SECONDS, len(logs) / (AT_ONCE * 4)))
            try:
                state = self.lister.fresh(handle.plan.team, handle.plan.id)
            except Transient:
                continue
            going_on = _goes_on(handle, state)
            pods = self._pods(handle, state, names)

    def tail(self, handle: Handle, host: str, size: int) -> list[str]:
        """Return the last lines of a host: from its pod, or from this machine if the pod is gone."""
        state = self.lister.fresh(handle.plan.team, handle.plan.id)
        pod = self._pods(handle, state, [host]).get(host)
        read: list[str] = []
        if pod is not None:
            target = Target.of(self.lister.cluster, pod)
            with suppress(TpukitError):  # not started yet, or gone: use the local lines
                read += target.cluster.logs(
                    target.pod, target.namespace, container=target.container, timestamps=True, tail=TAIL_LINES
                )
        last = list(log_lines.for_people(iter(read or LogCache(self.cache(handle, host)).tail())))
        while len(last) > 1 and sum(map(len, last)) > size:
            last.pop(0)
        return last

    def _open(self, handle: Handle, logs: dict[str, PodLog], pods: Mapping[str, Doc]) -> None:
        for name, pod in pods.items():
            target = Target.of(self.lister.cluster, pod)
            if name not in logs or logs[name].target.uid != target.uid:
                logs[name] = PodLog(target, LogCache(self.cache(handle, name)).position())

    def _rest(self, logs: Mapping[str, PodLog]) -> Iterator[Line]:
        """Yield new lines of each log, one piece at a time, so that a long log is never in memory as a whole."""
        if len(logs) == 1 or not logs:
            for name, log in logs.items():
                yield from _lines(name, self._pieces(log))
            return
        left = dict(logs)
        with ThreadPoolExecutor(min(AT_ONCE, len(left))) as pool:
            while left:
                names = list(left)[:AT_ONCE]
                for name, (lines, more) in zip(names, pool.map(self._piece, [left[one] for one in names]), strict=True):
                    yield from _lines(name, iter(lines))
                    if not more:
                        del left[name]

    def _pieces(self, log: PodLog) -> Iterator[str]:
        more = True
        while more:
            lines, more = self._piece(log)
            yield from lines

    def _piece(self, log: PodLog) -> tuple[list[str], bool]:
        for left in reversed(range(TRIES)):
            try:
                return log.read()
            except Transient:
                if not left:
                    raise
                self.clock.sleep(0.2 * 2 ** (TRIES - left))
            except TpukitError:  # not started yet, or gone
                break
        return [], False

    def _pods(self, handle: Handle, state: JobSetState, names: Sequence[str]) -> dict[str, Doc]:
        """Return the pods of this attempt that have begun, by host, in the order of `names`."""
        known = Position.of(handle.attempt.learned)
        where, began = _locate(handle, state)
        pods: Sequence[Doc] = ()
        if where is Where.CURRENT:
            pods = state.current_pods() or state.pods_of_restart(began.restarts)
        elif known and known.uid and where in (Where.OVERTAKEN, Where.GONE):
            pods = [
                one
                for one in state.pods
                if label(one, UID) == known.uid
                and label(one, RESTART) == str(known.restarts)
                # After an eviction, pods of two attempts have the same restart count.
                and (state.evictions == known.evictions or one["metadata"]["uid"] in _recorded(handle))
            ]
        by_host = {host_of(pod): pod for pod in pods if phase(pod) != "Pending"}
        return {name: by_host[name] for name in names if name in by_host}

    def _from_elsewhere(self, handle: Handle, host: str, names: Sequence[str]) -> Iterator[Line]:
        cached = [name for name in names if LogCache(self.cache(handle, name)).position().count]
        for name in cached:
            yield from _lines(name, LogCache(self.cache(handle, name)).lines())
        if any(name in cached for name in handle.plan.host_names) and len(cached) >= len(names) - 1:
            return  # the uploader may have printed nothing
        empty = not cached
        try:
            for line in self.archive(handle, host):
                if line.host not in cached:
                    empty = False
                    yield line
        except TpukitError as error:
            if empty:
                raise _nothing(handle, f"reading Cloud Logging failed: {error.message}", error.hint) from error
        if empty:
            raise _nothing(handle, "Cloud Logging has no lines of it", "")


def _lines(name: str, lines: Iterator[str]) -> Iterator[Line]:
    return (Line(name, text, at) for text, at in log_lines.timed(lines))


def _locate(handle: Handle, state: JobSetState) -> tuple[Where, Position]:
    attempt = handle.attempt
    return locate(attempt.number, Position.of(attempt.learned), state, began=attempt.state is State.RUNNING)


def _goes_on(handle: Handle, state: JobSetState) -> bool:
    """Return whether more lines of this attempt may come."""
    where, _ = _locate(handle, state)
    if where in (Where.NOT_MADE, Where.OLDER):
        return not handle.attempt.state.ended
    return where is Where.CURRENT and not state.finished


def _recorded(handle: Handle) -> set[str]:
    return {str(one.get("uid", "")) for one in (handle.attempt.learned.get("hosts") or {}).values()}


def _nothing(handle: Handle, archive: str, hint: str) -> NotFound:
    return NotFound(
        f"there are no logs of attempt {handle.attempt.number} of {handle.plan.id}: its pods were deleted, "
        f"this machine has no copy of their logs, and {archive}",
        hint=hint,
    )
