"""Observe attempts: combine the current state of their JobSets with what their records hold."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tpukit.core.clock import Clock
from tpukit.core.errors import Conflict, TpukitError, Transient
from tpukit.jobs.reasons import Reason, State
from tpukit.places.base import FollowUp, Handle, Observation
from tpukit.places.gke import attempts, failure, followed_logs, hosts, pending, stuck
from tpukit.places.gke.attempts import Event, Position, Where
from tpukit.places.gke.charging import DOUBTED, Judge, Judged
from tpukit.places.gke.eviction_costs import EvictionCosts
from tpukit.places.gke.evidence import Evidence, begun, key_of
from tpukit.places.gke.hosts import Records
from tpukit.places.gke.jobsets import (
    RESTART,
    UID,
    Doc,
    JobSetState,
    label,
    seconds,
)
from tpukit.places.gke.namespace import Listing
from tpukit.places.gke.unattended import Renewal
from tpukit.places.verdict import Verdict

IMAGE_SECONDS = 120.0
"""Time that a host may try to get a missing image before the job releases its slices."""
_GONE = "its JobSet was deleted by another user or tool, or ended more than a day ago while no driver ran"


@dataclass(slots=True)
class Observer:
    """The observer of the attempts in one cluster."""

    evidence: Evidence
    clock: Clock
    sender: Callable[[], str]
    renewal: Renewal
    eviction_costs: EvictionCosts | None = None  # None: this process writes none
    without_image: dict[str, float] = field(default_factory=dict)  # start times, by attempt

    @property
    def judge(self) -> Judge:
        return Judge(self.evidence, self.clock)

    def observe(self, handles: Sequence[Handle]) -> list[Observation | TpukitError]:
        listings: dict[str, Listing | TpukitError] = {}
        for team in dict.fromkeys(handle.plan.team for handle in handles):
            try:
                listings[team] = self.evidence.lister.list(team)
            except Transient:  # the API server failed: the other namespaces would fail too
                raise
            except TpukitError as error:
                listings[team] = error
        self._follow(handles, listings)
        seen = [self._one(handle, listings[handle.plan.team]) for handle in handles]
        if self.eviction_costs is None:
            return seen
        return self.eviction_costs.noted(handles, seen, [self._workload(one, listings) for one in handles])

    def _workload(self, handle: Handle, listings: Mapping[str, Listing | TpukitError]) -> Doc | None:
        listing = listings[handle.plan.team]
        return None if isinstance(listing, TpukitError) else listing.state(handle.plan.id, self.sender()).workload

    def _follow(self, handles: Sequence[Handle], listings: Mapping[str, Listing | TpukitError]) -> None:
        running: dict[str, followed_logs.Running] = {}
        by_key = {key_of(handle): handle for handle in handles}
        for key, handle in by_key.items():
            listing = listings[handle.plan.team]
            if handle.attempt.state.ended or isinstance(listing, TpukitError):
                continue
            state = listing.state(handle.plan.id, self.sender())
            where, _ = _locate(handle, state)
            pods = begun(state.current_pods()) if where is Where.CURRENT and not state.finished else []
            stall = float(handle.plan.spec.max.stall)
            running[key] = followed_logs.Running(pods, handle.plan.host_names[0], self.evidence.logs.idle(key), stall)
        self.evidence.logs.follow(
            {
                key: [self.evidence.target(by_key[key], pod) for pod in pods]
                for key, pods in followed_logs.chosen(running).items()
            }
        )

    def _one(self, handle: Handle, listing: Listing | TpukitError) -> Observation | TpukitError:
        if isinstance(listing, TpukitError):
            return listing
        try:
            return self._observe(handle, listing.state(handle.plan.id, self.sender()))
        except Transient:
            raise
        except TpukitError as error:
            return error

    def _observe(self, handle: Handle, state: JobSetState) -> Observation:
        attempt = handle.attempt
        if attempt.state.ended:
            views = hosts.views(handle.plan, hosts.recorded(attempt.learned), {}, over=True)
            return Observation(attempt.state, views, reason=attempt.reason, active=self.evidence.active(handle, state))
        where, began = _locate(handle, state)
        if where is Where.NEWER:
            raise Conflict(
                f"JobSet {handle.plan.id} was made for attempt {state.made_for}, and the record is at {attempt.number}",
                hint="a job of another store has the same mark; `tpu job forget` closes this job",
            )
        known = hosts.recorded(attempt.learned)
        if where is Where.NOT_MADE or (where is Where.OLDER and not began.uid):
            return self._to_be_made(handle, state, known)
        if where in (Where.GONE, Where.OLDER):
            return self._gone(handle, state, known)
        if where is Where.OVERTAKEN:
            return self._overtaken(handle, state, began, known)
        return self._current(handle, state, began, known)

    def _to_be_made(self, handle: Handle, state: JobSetState, known: Records) -> Observation:
        """Observe an attempt without a JobSet, which can only be created when the last attempt's hosts are gone."""
        seen = self._seen(handle, State.PENDING, known, active=self.evidence.active(handle, state))
        if not stuck.of_last_attempt(state, None):
            return seen
        nodes = self.evidence.lister.surroundings(handle.plan.team).nodes
        return replace(seen, detail=stuck.of_last_attempt(state, nodes))

    def _current(self, handle: Handle, state: JobSetState, began: Position, known: Records) -> Observation:
        """Observe the attempt that the JobSet is at."""
        plan, pods = handle.plan, state.current_pods()
        learned: dict[str, Any] = began.learned()
        if state.finished:
            return self._finished(handle, state, began, known)
        records = self.evidence.of(handle, known, pods)
        if state.leaving:
            learned["ended"] = state.ended_at
        learned |= _hosts(records, handle)
        if reason := self._no_image(handle, pods):
            return self._seen(handle, State.FAILED, records, verdict=reason, learned=learned)
        there = begun(pods)
        were_there = handle.attempt.state is State.RUNNING and state.admitted_at is not None
        if len(there) < plan.hosts and not were_there:
            why = pending.Waiting("its hosts are stopping")
            if not state.leaving:
                why = pending.why(plan, state, self.evidence.lister.surroundings(plan.team))
            seen = self._seen(handle, State.SCHEDULED, records, learned=learned)
            return self._with_renewal(
                handle, state, replace(seen, reason=why.reason, detail=why.detail, waits_as=why.counts_as)
            )
        seen = self._seen(handle, State.RUNNING, records, learned=learned)
        if stuck.in_doubt(state) and not state.leaving:
            nodes = self.evidence.lister.surroundings(plan.team).nodes
            seen = replace(seen, detail=stuck.holding_up(state, nodes))
        return self._with_renewal(handle, state, seen)

    def _with_renewal(self, handle: Handle, state: JobSetState, seen: Observation) -> Observation:
        due = FollowUp(renew=True) if self.renewal.due(handle, state) else None
        return replace(seen, follow_up=due, warning=self.renewal.denied(handle) or seen.warning)

    def _finished(self, handle: Handle, state: JobSetState, began: Position, known: Records) -> Observation:
        pods = self.evidence.fresh_pods(handle, state)
        own = [pod for pod in pods if _is_of(pod, began)]
        records = self.evidence.with_last_lines(handle, known, own)
        said = Verdict(Reason.DONE)
        if not state.condition("Completed"):
            runtime = handle.plan.spec.max.runtime
            judged = self.judge.judge(
                handle, records, own, (), state.ended_at, lambda hosts_of: failure.why(state, hosts_of, runtime)
            )
            records = judged.records
            if judged.verdict is None:
                return self._held_back(handle, began, judged)
            said = judged.verdict
            if began.evictions and not records:  # no host began: JobSet took leaving hosts for a failure
                said = failure.evicted(state.workload, ())
        learned = {**began.learned(), **_hosts(records, handle), "ended": state.ended_at}
        active = replace(state, pods=pods).active
        ended = State.COMPLETED if said.reason is Reason.DONE else State.FAILED
        return self._seen(handle, ended, records, verdict=said, active=active, ended=state.ended_at, learned=learned)

    def _overtaken(self, handle: Handle, state: JobSetState, began: Position, known: Records) -> Observation:
        """Observe how an attempt ended after which the JobSet went on by itself."""
        event, after, last = attempts.next_event(began, state)
        records = known
        if event is Event.EVICTED:
            queues = self.evidence.lister.surroundings(handle.plan.team).queues if last else None
            newest = state.evictions == after.evictions
            said = failure.evicted(state.workload, queues.workloads if queues else (), last=newest)
        else:
            pods = self.evidence.fresh_pods(handle, state)
            own, later = [pod for pod in pods if _is_of(pod, began)], [pod for pod in pods if not _is_of(pod, began)]
            rule, job_rule = failure.restarting_rule(state) if last else "", handle.plan.spec.rule
            judged = self.judge.judge(
                handle,
                self.evidence.with_last_lines(handle, known, own),
                own,
                later,
                seconds(failure.event_time(state, event)),
                lambda hosts_of: failure.restarted(event, rule, job_rule, hosts_of),
            )
            records = judged.records
            if judged.verdict is None:
                return self._held_back(handle, began, judged)
            said = judged.verdict
        at = max((one.ended for one in records.values()), default=0.0) or seconds(failure.event_time(state, event))
        seen = self._seen(
            handle,
            State.FAILED,
            records,
            verdict=said,
            active=self.evidence.active(handle, state),
            ended=at,
            learned={**began.learned(), **_hosts(records, handle)},
        )
        # JobSet may take leaving hosts for a failure, and end before the next attempt has a host: then none follows.
        ended = event is Event.EVICTED and last and state.condition("Failed") is not None
        if ended and not replace(state, pods=self.evidence.fresh_pods(handle, state)).current_pods():
            return seen
        return replace(seen, next=after.learned())

    def _held_back(self, handle: Handle, began: Position, judged: Judged) -> Observation:
        """Observe a failed attempt that is not charged before a lost host is ruled out."""
        learned = {**began.learned(), **_hosts(judged.records, handle), DOUBTED: judged.since}
        seen = self._seen(handle, State.RUNNING, judged.records, learned=learned)
        return replace(seen, detail=f"a host failed; waiting to see whether {judged.waits_for} was lost")

    def _gone(self, handle: Handle, state: JobSetState, known: Records) -> Observation:
        """Observe an attempt whose JobSet was seen and no longer exists."""
        if self.evidence.active(handle, state):
            pods = [pod for pod in state.pods if label(pod, UID) in _uid(handle)]
            records = self.evidence.of(handle, known, pods)
            return self._seen(handle, State.RUNNING, records, learned=_hosts(records, handle))
        names = handle.plan.host_names
        ended = float(handle.attempt.learned.get("ended") or 0.0)
        ended = ended or max((one.ended for one in known.values()), default=0.0)
        said = Verdict(Reason.CANCELLED, detail="" if handle.attempt.stopping else _GONE)
        if all(name in known and known[name].phase == "Succeeded" for name in names):
            said = Verdict(Reason.DONE)
        state_then = State.COMPLETED if said.reason is Reason.DONE else State.FAILED
        records = hosts.with_progress(known, self.evidence.logs.progress(key_of(handle)))
        learned = _hosts(records, handle)
        return self._seen(handle, state_then, records, verdict=said, active=False, ended=ended, learned=learned)

    def _seen(
        self,
        handle: Handle,
        state: State,
        records: Records,
        *,
        verdict: Verdict | None = None,
        active: bool = True,
        ended: float = 0.0,
        learned: Mapping[str, Any] | None = None,
    ) -> Observation:
        """Build an observation, without the run time: the JobSet itself has the deadline, on the cluster's clock."""
        views = hosts.views(handle.plan, records, self.evidence.logs.progress(key_of(handle)), over=state.ended)
        starts = [one.began for one in records.values() if one.began]
        return Observation(
            state,
            views,
            started=max(starts) if len(starts) >= handle.plan.hosts else handle.attempt.started,
            saved=max([handle.attempt.saved, *(view.saved for view in views)]),
            reason=verdict.reason if verdict else None,
            host=verdict.host if verdict else "",
            detail=verdict.detail if verdict else "",
            active=active,
            ended=ended,
            learned=learned or {},
        )

    def _no_image(self, handle: Handle, pods: Sequence[Doc]) -> Verdict | None:
        trouble = failure.image_trouble(pods)
        if trouble is None or not trouble.hopeless:
            self.without_image.pop(key_of(handle), None)
            return None
        now = self.clock.monotonic()
        if now - self.without_image.setdefault(key_of(handle), now) <= IMAGE_SECONDS:
            return None
        return Verdict(Reason.BAD_IMAGE, trouble.host, trouble.said)


def _locate(handle: Handle, state: JobSetState) -> tuple[Where, Position]:
    known = Position.of(handle.attempt.learned)
    return attempts.locate(handle.attempt.number, known, state, began=handle.attempt.state is State.RUNNING)


def _uid(handle: Handle) -> set[str]:
    known = Position.of(handle.attempt.learned)
    return {known.uid} if known else set()


def _is_of(pod: Doc, began: Position) -> bool:
    return label(pod, UID) in ("", began.uid) and label(pod, RESTART) == str(began.restarts)


def _hosts(records: Records, handle: Handle) -> dict[str, Any]:
    """Return the facts about hosts to keep in the record, if there are any."""
    telling = hosts.to_record(records)
    return {"hosts": telling} if telling or handle.attempt.learned.get("hosts") else {}
